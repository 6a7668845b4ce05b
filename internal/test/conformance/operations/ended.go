package operations

import (
	"context"
	"errors"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/internal/test/conformance"
)

// ddlInTheFunction runs DDL in the function. On MySQL and MariaDB, DDL commits the claim and the
// effect before it. A committed claim without a result is unknown, never done.
func ddlInTheFunction[Tx any](e *env[Tx]) {
	s := e.Store(idempotency.Options{})
	boom := errors.New("boom")
	_, err := idempotency.Do(e.Ctx, s, conformance.Op("a"), func(ctx context.Context, tx Tx) (string, error) {
		if err := e.Effect(ctx, tx, "a"); err != nil {
			return "", err
		}
		if _, err := e.Exec(ctx, tx, `CREATE TABLE surprise (n INT)`); err != nil {
			return "", err
		}
		return "", boom
	})
	if !errors.Is(err, boom) {
		e.Errorf("got %v", err)
	}
	r, err := e.Do(s, conformance.Op("a"))
	if e.DB.Capabilities().TransactionalDDL {
		if err != nil || r.Outcome != idempotency.Executed {
			e.Errorf("all was rolled back, but: %v, %v", r, err)
		}
	} else if !errors.Is(err, idempotency.ErrUnknown) {
		e.Errorf("the effect stands without a result: got %v, %v, want unknown", r, err)
	}
	e.WantOnce("a")

	err = e.DB.InTx(e.Ctx, func(ctx context.Context, tx Tx) error {
		_, err := e.Exec(ctx, tx, `CREATE TABLE surprise2 (n INT)`)
		return err
	})
	if lost := errors.Is(err, holdfast.ErrTxLost); lost == e.DB.Capabilities().TransactionalDDL {
		e.Errorf("InTx with DDL: %v", err)
	}
}

// functionBeginsAnother uses a function that rolls back and begins again in SQL, so that the driver
// does not know of it. What it does then must not stand.
func functionBeginsAnother[Tx any](e *env[Tx]) {
	s := e.Store(idempotency.Options{})
	_, err := idempotency.Do(e.Ctx, s, conformance.Op("a"), func(ctx context.Context, tx Tx) (string, error) {
		for _, text := range []string{`ROLLBACK`, `BEGIN`} {
			if _, err := e.Exec(ctx, tx, text); err != nil {
				return "", err
			}
		}
		return "", e.Effect(ctx, tx, "a")
	})
	e.WantLost("Do", err, "a")
	if r, err := e.Do(s, conformance.Op("a")); err != nil || r.Outcome != idempotency.Executed {
		e.Errorf("afterwards: %v, %v", r, err)
	}
}

// functionEndsTheTransaction uses a function that commits or rolls back itself. Do returns an
// error, and the next call reports a commit as unknown, not as done.
func functionEndsTheTransaction[Tx any](e *env[Tx]) {
	s := e.Store(idempotency.Options{})
	for key, commit := range map[string]bool{"commits": true, "rolls back": false} {
		_, err := idempotency.Do(e.Ctx, s, conformance.Op(key), func(ctx context.Context, tx Tx) (string, error) {
			if err := e.Effect(ctx, tx, key); err != nil {
				return "", err
			}
			_ = e.End(ctx, tx, commit)
			return "", nil
		})
		if !errors.Is(err, holdfast.ErrTxLost) {
			e.Errorf("it %s: got %v", key, err)
		}
		stands := e.Effects(key) == 1
		r, err := e.Do(s, conformance.Op(key))
		switch {
		case stands && !errors.Is(err, idempotency.ErrUnknown):
			e.Errorf("it %s, its effect stands: %v, %v", key, r, err)
		case !stands && (err != nil || r.Outcome != idempotency.Executed):
			e.Errorf("it %s, nothing stands: %v, %v", key, r, err)
		}
		e.WantOnce(key)
	}
}
