package core

// Row is one row of Rows.
type Row interface {
	Scan(dest ...any) error
}

// Collect reads all rows with scan and closes them.
func Collect[T any](rows Rows, scan func(row Row) (T, error)) (list []T, err error) {
	defer func() {
		if e := rows.Close(); err == nil && e != nil {
			list, err = nil, e
		}
	}()
	for rows.Next() {
		v, err := scan(rows)
		if err != nil {
			return nil, err
		}
		list = append(list, v)
	}
	if err := rows.Err(); err != nil {
		return nil, err
	}
	return list, nil
}

// Value scans a row of one column. It is an argument for Collect.
func Value[T any](row Row) (v T, err error) {
	err = row.Scan(&v)
	return v, err
}
