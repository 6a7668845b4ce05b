package refunds

import (
	"context"
	"database/sql"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/bench/internal/sqlengine"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/idempotency/staged"
)

// twoSteps returns a refund of two steps: the service's statements, and a call that costs nothing.
func twoSteps[Tx any](ctx context.Context, db *holdfast.DB[Tx], steps func(ctx context.Context, tx Tx, order int64, key string) error) (Do, error) {
	store, err := store(ctx, db)
	if err != nil {
		return nil, err
	}
	type refund struct {
		Order int64
		Key   string
	}
	runner, err := staged.New(store, staged.Workflow[refund, string, Tx]{Name: "refund", Run: func(ctx context.Context, r *staged.Run[Tx], of refund) (string, error) {
		if _, err := staged.Local(ctx, r, "book", func(ctx context.Context, tx Tx) (string, error) { return of.Key, steps(ctx, tx, of.Order, of.Key) }); err != nil {
			return "", err
		}
		return staged.Call(ctx, r, staged.ExternalCall[string]{Step: "pay"}, func(_ context.Context, key string) (string, error) { return key, nil })
	}})
	return func(ctx context.Context, order int64, key string) error {
		_, err := runner.Do(ctx, idempotency.Op{Key: key}, refund{order, key})
		return err
	}, err
}

func twoStepsSQL(ctx context.Context, db *holdfast.DB[*sql.Tx], _ *sql.DB, s *steps) (Do, error) {
	return twoSteps(ctx, db, s.run)
}

func twoStepsPgx(ctx context.Context, db *holdfast.DB[pgx.Tx], _ *sqlengine.Engine) (Do, error) {
	return twoSteps(ctx, db, stepsPgx)
}
