package operations

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"testing"

	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/idempotency/inbox"
	"github.com/holdfast-go/holdfast/internal/test/conformance"
)

// Rejections is the suite of rejections that are not stored.
func Rejections[Tx any](t *testing.T, h conformance.Handle[Tx]) {
	for name, f := range map[string]func(*env[Tx]){
		"RejectionOnAnEndedContext": rejectionOnAnEndedContext[Tx],
		"RejectionThatIsNotStored":  rejectionThatIsNotStored[Tx],
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(t, h, f)
		})
	}
}

// notRejected fails if err looks like a stored rejection.
func (e *env[Tx]) notRejected(what string, err error) {
	e.Helper()
	var rej *idempotency.Rejection
	switch {
	case err == nil:
		e.Errorf("%s: no error", what)
	case errors.As(err, &rej):
		e.Errorf("%s: nothing is stored, and the error is a *Rejection: %v", what, err)
	case inbox.DispositionOf(err) != inbox.Redeliver:
		e.Errorf("%s: %v is to be %v", what, err, inbox.DispositionOf(err))
	}
	if n := e.Int(`SELECT COUNT(*) FROM holdfast_records`) + e.Effects("a"); n != 0 {
		e.Errorf("%s: %d rows are there", what, n)
	}
}

// rejectionOnAnEndedContext ends the context while the function rejects. The rejection cannot be
// stored, so the next call executes.
func rejectionOnAnEndedContext[Tx any](e *env[Tx]) {
	s := e.Store(idempotency.Options{})
	in, err := inbox.New(s, "ledger")
	if err != nil {
		e.Fatal(err)
	}
	for what, call := range map[string]func(ctx context.Context, fn func(context.Context, Tx) (string, error)) error{
		"Do": func(ctx context.Context, fn func(context.Context, Tx) (string, error)) error {
			_, err := idempotency.Do(ctx, s, conformance.Op("a"), fn)
			return err
		},
		"DoTx": func(ctx context.Context, fn func(context.Context, Tx) (string, error)) error {
			_, err := idempotency.DoTx(ctx, s, e.BeginTx(sql.LevelDefault), conformance.Op("a"), fn)
			return err
		},
		"Inbox": func(ctx context.Context, fn func(context.Context, Tx) (string, error)) error {
			_, err := in.Process(ctx, inbox.Message{ID: "a"}, func(ctx context.Context, tx Tx) error {
				_, err := fn(ctx, tx)
				return err
			})
			return err
		},
	} {
		ctx, cancel := context.WithCancelCause(e.Ctx)
		over := idempotency.Reject("over", "the caller's own cause")
		err := call(ctx, func(ctx context.Context, tx Tx) (string, error) {
			err := e.Effect(ctx, tx, "a")
			cancel(over) // even where the cause of the cancellation is a rejection
			return "", errors.Join(err, fmt.Errorf("booking: %w", idempotency.Reject("no", "never")))
		})
		e.notRejected(what, err)
		if !errors.Is(err, over) && !errors.Is(err, context.Canceled) {
			e.Errorf("%s: %v does not say that the context has ended", what, err)
		}
	}
	if r, err := e.Do(s, conformance.Op("a")); err != nil || r.Outcome != idempotency.Executed {
		e.Errorf("the next call: %v, %v", r, err)
	}
	e.WantOnce("a")
}

// refusing is a codec whose Encode always fails.
type refusing struct{ err error }

func (refusing) Name() string                         { return "refusing" }
func (c refusing) Encode(_, _ []byte) ([]byte, error) { return nil, c.err }
func (refusing) Decode(b, _ []byte) ([]byte, error)   { return b, nil }

// rejectionThatIsNotStored makes the second transaction fail, which should store the rejection.
func rejectionThatIsNotStored[Tx any](e *env[Tx]) {
	cause := errors.New("the key service is away")
	s := e.Store(idempotency.Options{Codec: refusing{errors.Join(cause, idempotency.Reject("inner", "none of ours"))}})
	_, err := idempotency.Do(e.Ctx, s, conformance.Op("a"), func(ctx context.Context, tx Tx) (string, error) {
		return "", errors.Join(e.Effect(ctx, tx, "a"), idempotency.Reject("no", "never"))
	})
	e.notRejected("Do", err)
	if !errors.Is(err, cause) {
		e.Errorf("got %v", err)
	}
	tx := e.BeginTx(sql.LevelDefault)
	_, err = idempotency.DoTx(e.Ctx, s, tx, conformance.Op("a"), func(ctx context.Context, tx Tx) (string, error) {
		return "", errors.Join(e.Effect(ctx, tx, "a"), idempotency.Reject("no", "never"))
	})
	e.WantRolledBack(tx)
	e.notRejected("DoTx", err)
	if !errors.Is(err, cause) {
		e.Errorf("got %v", err)
	}
}
