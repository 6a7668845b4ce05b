package simulation

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/idempotency/staged"
	"github.com/holdfast-go/holdfast/internal/core"
)

// slowest is how long a request is on its way at most, to the provider and within it.
const slowest = 12 * tick

// refund is the operation: it books, pays and closes.
func (w *stagedScene) refund(ctx context.Context, r *staged.Run[*tx], q request) (done receipt, err error) {
	f, _ := ctx.Value(callKey{}).(*stagedCall)
	if done.Book, err = staged.Local(ctx, r, "book", func(ctx context.Context, t *tx) (int, error) {
		return f.local(ctx, t, q.Key+"/book", f.how == bookFails)
	}); err != nil {
		return done, err
	}
	pay := staged.ExternalCall[int]{Step: "pay", Provider: "bank", Timeout: w.timeout}
	switch w.mode {
	case takesOver:
		pay.OnLeaseEnd = staged.TakeOver
	case reconciles:
		pay.Reconcile = func(ctx context.Context, key string) (int, error) { return w.find(ctx, f, key, q.Key) }
	}
	no := idempotency.Reject("no", "not wanted")
	if !q.Refuse {
		done.Pay, no = staged.Call(ctx, r, pay, func(ctx context.Context, key string) (int, error) { return w.pay(ctx, f, key, q.Key) })
	}
	var rej *idempotency.Rejection
	if errors.As(no, &rej) {
		if _, err := staged.Local(ctx, r, "take back", func(ctx context.Context, t *tx) (int, error) { return 0, unbook(ctx, t, q.Key) }); err != nil {
			return done, err
		}
	}
	switch {
	case no != nil:
		return done, no
	case f.how == runFails:
		return done, funcError(f.number)
	case f.how == runPanics:
		panic(funcError(f.number))
	}
	done.Close, err = staged.Local(ctx, r, "close", func(ctx context.Context, t *tx) (int, error) { return f.local(ctx, t, q.Key+"/close", false) })
	return done, err
}

// local is the function of a step in this database.
func (f *stagedCall) local(ctx context.Context, t *tx, row string, failing bool) (int, error) {
	value := f.number*runsOfCall + int(f.runs.Add(1))
	time.Sleep(f.pause)
	if err := book(ctx, t, row, value); err != nil {
		return 0, err
	}
	time.Sleep(f.pause)
	if failing {
		return 0, funcError(f.number)
	}
	return value, nil
}

// book writes a row of the program's, and unbook takes back those of an operation, but for that of StartTx's caller.
func book(ctx context.Context, t *tx, row string, value int) error {
	_, err := core.Stmt{Name: "effect", Text: effectText}.Exec(ctx, t, row, int64(value))
	return err
}

func unbook(ctx context.Context, t *tx, key string) error {
	for _, row := range []string{"/book", "/close"} {
		if _, err := (core.Stmt{Name: "effect.undo", Text: `DELETE FROM effects WHERE k = ?`}).Exec(ctx, t, key+row); err != nil {
			return err
		}
	}
	return nil
}

// account is what the provider knows of an operation.
type account struct {
	key      string // of its requests: there is one
	paid     []int
	refused  bool
	requests int
}

// The answers of the provider.
const (
	saysPaid int64 = iota
	saysRefused
	saysNothing // was done, and nothing will be
	saysUnable
)

// pay asks the provider to pay.
func (w *stagedScene) pay(ctx context.Context, f *stagedCall, key, of string) (int, error) {
	time.Sleep(f.late)
	staged.SetReference(ctx, "ref "+of)
	return w.ask(ctx, f, "provider.pay", key, of)
}

// find asks what became of a request.
func (w *stagedScene) find(ctx context.Context, f *stagedCall, key, of string) (int, error) {
	age := staged.CallAge(ctx) // before it asks: a request may arrive between the answer and now
	value, err := w.ask(ctx, f, "provider.find", key, of)
	if !errors.Is(err, errNone) || w.honours || age > w.provable() {
		return value, err
	}
	return 0, staged.AskAgain(2 * tick)
}

// provable is the age of a call from which "not found" means "not done": it may have been sent as late as the function was allowed to run.
func (w *stagedScene) provable() time.Duration { return max(workerLease, w.timeout) + slowest }

var errNone = errors.New("nothing was paid")

// ask sends a request to the provider, unless the context has ended.
func (w *stagedScene) ask(ctx context.Context, f *stagedCall, name, key, of string) (int, error) {
	switch w.gate.see(); {
	case killed(ctx):
		return 0, errCut
	case ctx.Err() != nil:
		return 0, context.Cause(ctx)
	}
	a, err := w.send(&statement{conn: &conn{of: handles[f.process], provider: true}, ctx: ctx, name: name, text: name, args: []any{key, of}})
	if err != nil {
		return 0, err
	}
	switch value := a.rows[0]; value[0] {
	case saysPaid:
		return int(as[int64](value[1])), nil
	case saysRefused:
		return 0, idempotency.Reject("refused", "the provider refused")
	case saysNothing:
		return 0, staged.NotDone(errNone)
	}
	return 0, errors.New("the provider is not able to answer")
}

// serve runs a request at the provider.
func (w *stagedScene) serve(s *statement) (known bool) {
	key, a := as[string](s.args[0]), w.provider[as[string](s.args[1])]
	answers := func(what int64, value int) bool {
		s.answer = answer{rows: [][]any{{what, int64(value)}}}
		return true
	}
	switch {
	case a == nil: // of an episode that is over
		s.err = errCut
		return true
	case a.key != "" && a.key != key:
		w.violatef("%s has the keys %s and %s at the provider", s.args[1], a.key, key)
	}
	asks := s.name == "provider.find"
	known = asks || w.honours
	if a.key = key; !asks {
		a.requests++
	}
	switch {
	case !asks && time.Since(s.sent) > slowest: // it never arrives
		s.err = errCut
		return true
	case known && len(a.paid) > 0:
		return answers(saysPaid, a.paid[0])
	case known && a.refused:
		return answers(saysRefused, 0)
	case asks:
		return answers(saysNothing, 0)
	}
	switch n := w.rng.IntN(10); {
	case !w.calm && n == 0:
		return answers(saysNothing, 0)
	case !w.calm && n == 1:
		return answers(saysUnable, 0)
	case n == 2:
		a.refused = true
		if len(a.paid) > 0 {
			w.violatef("%s was paid, and then refused", s.args[1])
		}
		return answers(saysRefused, 0)
	}
	w.payments++
	a.paid = append(a.paid, w.payments)
	switch row := w.opOf(as[string](s.args[1])); {
	case len(a.paid) > 1:
		w.violatef("%s was paid twice: %v", s.args[1], a.paid)
	case a.refused:
		w.violatef("%s was refused, and then paid", s.args[1])
	case row == nil || row[opState] == rejectedState:
		w.violatef("%s was paid, and was rejected or cancelled before", s.args[1])
	}
	return answers(saysPaid, w.payments)
}
