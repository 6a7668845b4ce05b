package holdfast

// TableSpec names one of the program's own tables, for rowlock.NewTable, optimistic.NewTable and
// businessrow.New.
type TableSpec struct {
	// Table is the name of the table. Schema is its schema (on MySQL and MariaDB its
	// database). Schema "" is the schema that Open found.
	Table, Schema string
	// Key lists the columns of a unique key, such as the primary key. The columns must be NOT
	// NULL, and a full unique index on exactly these columns must exist. Rows are found by
	// this key.
	Key []string
}
