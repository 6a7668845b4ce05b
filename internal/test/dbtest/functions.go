package dbtest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
)

// Querier is a pool, a connection or a transaction.
type Querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// Call calls one of Holdfast's functions in the database with all of its arguments, as a client in another language
// does, and returns the columns of its row that are not NULL.
func (e Engine) Call(ctx context.Context, q Querier, function string, args ...any) (map[string]string, error) {
	form, params := "CALL holdfast_%s(%s)", make([]string, len(args))
	if e == Postgres {
		form = "SELECT * FROM holdfast_%s(%s)"
	}
	for i, a := range args {
		params[i] = "?"
		if e == Postgres {
			params[i] = fmt.Sprintf("$%d", i+1)
			if _, is := a.([]byte); is {
				params[i] += "::bytea"
			}
		}
	}
	rows, err := q.QueryContext(ctx, fmt.Sprintf(form, function, strings.Join(params, ", ")), args...)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	names, err := rows.Columns()
	if err != nil {
		return nil, err
	}
	values, targets := make([]sql.NullString, len(names)), make([]any, len(names))
	for i := range values {
		targets[i] = &values[i]
	}
	found := map[string]string{}
	for rows.Next() {
		if err := rows.Scan(targets...); err != nil {
			return nil, err
		}
		for i, v := range values {
			if v.Valid {
				found[names[i]] = v.String
			}
		}
	}
	return found, errors.Join(rows.Err(), rows.Close())
}
