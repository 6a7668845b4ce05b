package operations

import (
	"context"
	"errors"
	"strings"

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
	if lost := errors.Is(err, holdfast.ErrTxLost); !errors.Is(err, boom) || lost == e.DB.Capabilities().TransactionalDDL {
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

// functionEndsTheTransaction uses a function that commits or rolls back itself, through its handle or in SQL,
// and then succeeds, fails, rejects the operation or panics. Do returns an error, and the next call reports a commit
// as unknown, not as done and not as rejected.
func functionEndsTheTransaction[Tx any](e *env[Tx]) {
	s := e.Store(idempotency.Options{})
	ends := func(commit bool) func(ctx context.Context, tx Tx) {
		return func(ctx context.Context, tx Tx) { _ = e.End(ctx, tx, commit) }
	}
	texts := func(texts ...string) func(ctx context.Context, tx Tx) {
		return func(ctx context.Context, tx Tx) {
			for _, text := range texts {
				_, _ = e.Exec(ctx, tx, text)
			}
		}
	}
	boom, no, panics := errors.New("boom"), &idempotency.Rejection{Code: "no"}, errors.New("panic")
	for _, c := range []struct {
		key string
		end func(ctx context.Context, tx Tx)
		err error
	}{
		{"commits", ends(true), nil},
		{"rolls back", ends(false), nil},
		{"commits and fails", ends(true), boom},
		{"rolls back and fails", ends(false), boom},
		{"commits and rejects", ends(true), no},
		{"commits and panics", ends(true), panics},
		{"rolls back and panics", ends(false), panics},
		{"commits in SQL and fails", texts(`COMMIT`), boom},
		{"commits in SQL and panics", texts(`COMMIT`), panics},
		{"commits in SQL, begins and fails", texts(`COMMIT`, `BEGIN`), boom},
		{"commits and fails when its context has ended", ends(true), boom},
	} {
		ctx, cancel := context.WithCancel(e.Ctx)
		err := conformance.Recovered(func() error {
			_, err := idempotency.Do(ctx, s, conformance.Op(c.key), func(ctx context.Context, tx Tx) (string, error) {
				if err := e.Effect(ctx, tx, c.key); err != nil {
					return "", err
				}
				c.end(ctx, tx)
				if strings.HasSuffix(c.key, "context has ended") {
					cancel()
				}
				if errors.Is(c.err, panics) {
					panic(panics)
				}
				return "", c.err
			})
			return err
		})
		cancel()
		stands := e.Effects(c.key) == 1
		fails, rejects := errors.Is(c.err, boom), errors.Is(c.err, no)
		unknown := errors.Is(err, holdfast.ErrTxLost) || errors.Is(err, idempotency.ErrUnknown)
		if errors.Is(c.err, panics) != errors.Is(err, panics) || fails && !errors.Is(err, boom) || (fails || rejects) && stands && !unknown || c.err == nil && !unknown {
			e.Errorf("it %s: got %v", c.key, err)
		}
		r, err := e.Do(s, conformance.Op(c.key))
		switch {
		case stands && !errors.Is(err, idempotency.ErrUnknown):
			e.Errorf("it %s, its effect stands: %v, %v", c.key, r, err)
		case !stands && !rejects && (err != nil || r.Outcome != idempotency.Executed):
			e.Errorf("it %s, nothing stands: %v, %v", c.key, r, err)
		}
		if stands || !rejects {
			e.WantOnce(c.key)
		}
	}
}
