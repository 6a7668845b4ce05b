package staged

import (
	"context"
	"database/sql"
	"errors"
	"strings"

	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/idempotency/staged"
	"github.com/holdfast-go/holdfast/internal/test/conformance"
	"github.com/holdfast-go/holdfast/optimistic"
)

// stagedWithin starts a staged operation in a function that runs within a transaction. It would
// wait for locks of that transaction, or pay for work that is rolled back. It is refused at
// once, and may start after the transaction has ended.
func stagedWithin[Tx any](e *env[Tx]) {
	store := e.Store(idempotency.Options{})
	f, s := e.stagedRefunds(0)
	refuses := func(ctx context.Context) error {
		_, err := s.Complete(ctx)
		if !errors.Is(err, staged.ErrInTx) {
			e.Errorf("the completer: %v", err)
		}
		_, err = s.Do(ctx, stagedOp("a"), "a")
		return err
	}
	inFunction := func(ctx context.Context, _ Tx) error { return refuses(ctx) }
	returns := func(ctx context.Context, _ Tx) (string, error) { return "", refuses(ctx) }
	outer := e.staged(staged.Workflow[string, string, Tx]{Name: "outer", Run: func(ctx context.Context, r *staged.Run[Tx], _ string) (string, error) {
		return staged.Local(ctx, r, "book", returns)
	}}, idempotency.Options{})
	var within context.Context
	for name, err := range map[string]error{
		"InTx": e.DB.InTx(e.Ctx, func(ctx context.Context, _ Tx) error {
			within = ctx //nolint:fatcontext // it is used once the transaction has ended
			return refuses(ctx)
		}),
		"Do": func() error {
			_, err := idempotency.Do(e.Ctx, store, conformance.Op("do"), returns)
			return err
		}(),
		"DoTx": func() error {
			_, err := idempotency.DoTx(e.Ctx, store, e.BeginTx(sql.LevelDefault), conformance.Op("do tx"), returns)
			return err
		}(),
		"Retry": optimistic.Retry(e.Ctx, e.DB, inFunction),
		"Local": func() error {
			_, err := outer.Do(e.Ctx, stagedOp("outer"), "a")
			return err
		}(),
	} {
		var typed *staged.InTxError
		if !errors.Is(err, staged.ErrInTx) || !errors.As(err, &typed) || typed.Operation != "refund" || !strings.Contains(typed.Error(), "StartTx") {
			e.Errorf("in %s: %v", name, err)
		}
	}
	f.provider.want(e, 0, 0)
	if n := e.Int(`SELECT COUNT(*) FROM holdfast_staged WHERE operation = 'refund'`); n != 0 {
		e.Errorf("%d operations were begun", n)
	}
	if _, err := s.Do(within, stagedOp("a"), "a"); err != nil {
		e.Errorf("after the transaction: %v", err)
	}
	if _, err := e.Refunds().Do(e.Ctx, conformance.Refund{No: "1", Amount: 1}, inFunction); !errors.Is(err, staged.ErrInTx) {
		e.Errorf("in the business row's: %v", err)
	}
	isNew, err := staged.HandleEvent(e.Ctx, store, staged.ProviderEvent{ID: "1", Ref: ref("a")}, func(ctx context.Context, _ Tx, _ staged.Operation) error { return refuses(ctx) })
	if isNew || !errors.Is(err, staged.ErrInTx) {
		e.Errorf("in HandleEvent: %v", err)
	}
	f.provider.want(e, 1, 1)
	e.wantRefunded("a")
}
