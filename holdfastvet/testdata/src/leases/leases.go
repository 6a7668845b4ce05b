package leases

import (
	"context"
	"database/sql"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/sqllock"
)

func settle(context.Context, *sql.Tx) error { return nil }

func work(context.Context) error { return nil }

func leases(ctx context.Context, db *holdfast.DB[*sql.Tx], locks *sqllock.Locker) error {
	return locks.Do(ctx, "settlement", func(ctx context.Context, lease *sqllock.Lease) error {
		if err := locks.InTx(lease.Context(), lease, settle); err != nil { // want `the lease's context is given to InTx`
			return err
		}
		held := lease.Context()
		if err := db.InTx(held, settle); err != nil { // want `the lease's context is given to InTx`
			return err
		}
		if err := work(lease.Context()); err != nil {
			return err
		}
		return locks.InTx(ctx, lease, settle)
	})
}
