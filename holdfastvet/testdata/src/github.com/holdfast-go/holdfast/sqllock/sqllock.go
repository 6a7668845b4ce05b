package sqllock

import (
	"context"
	"database/sql"
)

type Lease struct{}

func (*Lease) Context() context.Context { return nil }

type Locker struct{}

func (*Locker) Do(context.Context, string, func(ctx context.Context, lease *Lease) error) error {
	return nil
}

func (*Locker) InTx(context.Context, *Lease, func(ctx context.Context, tx *sql.Tx) error) error {
	return nil
}
