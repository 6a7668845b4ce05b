package idempotency

import (
	"context"
	"database/sql"
)

type Op struct{ Owner, Name, Key string }

func KeyOf(parts ...string) string { return "" }

func Do[T any](ctx context.Context, op Op, fn func(ctx context.Context, tx *sql.Tx) (T, error)) (res T, err error) {
	return
}
