package faults_test

import (
	"context"
	"database/sql"
	"errors"
	"strconv"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/idempotency/operators"
	"github.com/holdfast-go/holdfast/idempotency/staged"
	"github.com/holdfast-go/holdfast/internal/test/conformance"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
	"github.com/holdfast-go/holdfast/internal/test/faultproxy"
)

// stagedLease is the lease of operations whose worker is killed within Do, or loses a request.
const stagedLease = 1500 * time.Millisecond

// TestStagedKilledWorker kills a worker (SIGKILL) at every step of a staged operation, with
// every declaration of its external call. The next caller finishes the operation within the
// lease, or finds it parked where the declaration says so. There is exactly one effect in the
// tables and one payment at the provider.
func TestStagedKilledWorker(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, engine dbtest.Engine) {
		e := conformance.New(t, conformance.SQL(), engine)
		b := newBank(t)
		for _, declared := range []string{declaredPark, declaredTakeOver, declaredReconcile} {
			for _, stage := range []string{
				stagedBefore, stagedClaimed, stagedBooking, stagedBooked, stagedCalling, stagedPaid,
				stagedAnswered, stagedClosing, stagedClosed, stagedFinished,
			} {
				t.Run(declared+", "+stage, func(t *testing.T) {
					t.Parallel()
					e := *e
					e.T = t
					j := stagedJob{DSN: e.DSN, Provider: b.URL, Key: t.Name(), Stage: stage, Declared: declared, Lease: stagedLease}
					killStaged(t, j, nil)
					inCall := stage == stagedCalling || stage == stagedPaid
					stagedGoesOn(&e, b, j, declared == declaredPark && inCall)
				})
			}
		}
	})
}

// TestStagedKilledInCommit kills a worker while the answer to one of its commits is lost: each
// commit of the operation in turn.
func TestStagedKilledInCommit(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, engine dbtest.Engine) {
		if engine == dbtest.SQLite {
			return // no connection that could break
		}
		base := conformance.New(t, conformance.SQL(), engine)
		b := newBank(t)
		// The claim; the first transaction; the call's beginning and end; the last transaction;
		// the operation's end.
		for n, what := range []string{"claim", "book", "begin", "answer", "close", "finish"} {
			for name, lose := range map[string]func(*faultproxy.Proxy, faultproxy.Match, faultproxy.Ending, ...func()) *faultproxy.Fault{
				"reply": (*faultproxy.Proxy).LoseReply, "request": (*faultproxy.Proxy).LoseRequest,
			} {
				t.Run(what+", "+name, func(t *testing.T) {
					t.Parallel()
					inMode(t, base, conformance.SQL(), modes(engine)[0], func(w *world[*sql.Tx]) {
						f := lose(w.proxy, nthCommit(n+1), faultproxy.Silence)
						j := stagedJob{DSN: w.DSN, Provider: b.URL, Key: t.Name(), Stage: stagedNeverThere, Declared: declaredPark, Lease: 2 * stagedLease}
						killStaged(w.T, j, f.Struck())
						w.proxy.CutAll() // the server notices that the worker is gone
						e := *base
						e.T, e.Ctx = w.T, w.Ctx // of this subtest: base's began long before its turn
						// The step that had begun has an unknown outcome; if the answer was on
						// its way, the provider had paid.
						stagedGoesOn(&e, b, j, what == "begin" && name == "reply" || what == "answer" && name == "request")
					})
				})
			}
		}
	})
}

func nthCommit(n int) faultproxy.Match {
	return func(request []byte) bool {
		if faultproxy.Commit(request) {
			n--
			return n == 0
		}
		return false
	}
}

// stagedGoesOn repeats the call for an operation whose worker is dead, as its caller would, and
// counts.
func stagedGoesOn(e *conformance.Env[*sql.Tx], b *bank, j stagedJob, parks bool) {
	e.Helper()
	store := e.Store(idempotency.Options{Wait: 30 * time.Second})
	s, err := stagedRefund(store, e.DB.Engine(), j, func(string) {})
	if err != nil {
		e.Fatal(err)
	}
	ref := staged.Ref{Name: "refund", Key: j.Key}
	key := s.ProviderKey(ref, "pay")
	start := time.Now()
	_, err = s.Do(e.Ctx, idempotency.Op{Key: j.Key}, j.Key)
	took := time.Since(start)
	if took > j.Lease+2*dbtest.Slack {
		e.Errorf("it was stuck for %v, the lease is %v", took, j.Lease)
	}
	if parks {
		var parked *staged.ParkedError
		if !errors.As(err, &parked) || parked.Step != "pay" {
			e.Errorf("asked again: %v, want it parked", err)
		}
		// An operator checks with the provider and records the outcome.
		r := operators.Resolution{Step: staged.StepNotDone}
		if b.payments(key) == 1 {
			r = operators.Resolution{Step: staged.StepDone, StepResult: "paid with " + key}
		}
		if err := operators.New(store).Resolve(e.Ctx, ref, r, holdfast.Actor{By: "test", Reason: "looked at the provider"}); err != nil {
			e.Error(err)
		}
		_, err = s.Do(e.Ctx, idempotency.Op{Key: j.Key}, j.Key)
	}
	if err != nil {
		e.Errorf("asked again: %v", err)
	}
	if r, err := s.Do(e.Ctx, idempotency.Op{Key: j.Key}, j.Key); err != nil || r.Outcome != idempotency.Replayed || r.Value != "paid with "+key {
		e.Errorf("a duplicate: %v, %v", r, err)
	}
	e.WantOnce(j.Key)
	e.WantOnce(j.Key + " closed")
	if n := b.payments(key); n != 1 {
		e.Errorf("%d payments", n)
	}
}

// TestStagedLostRequests loses each request of a staged operation in turn, or its reply. The
// worker stays alive and calls again. There is one effect and one payment.
func TestStagedLostRequests(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, engine dbtest.Engine) {
		if engine == dbtest.SQLite {
			return // no connection that could break
		}
		base := conformance.New(t, conformance.SQL(), engine)
		b := newBank(t)
		for name, lose := range map[string]func(*faultproxy.Proxy, faultproxy.Match, faultproxy.Ending, ...func()) *faultproxy.Fault{
			"reply": (*faultproxy.Proxy).LoseReply, "request": (*faultproxy.Proxy).LoseRequest,
		} {
			inMode(t, base, conformance.SQL(), modes(engine)[0], func(w *world[*sql.Tx]) {
				before := b.keys()
				struck, operations := true, 0
				for n := 1; struck && n < 200; n++ {
					struck = stagedLoses(w, b, name+" "+strconv.Itoa(n), func() *faultproxy.Fault { return lose(w.proxy, faultproxy.Nth(n), faultproxy.Close) })
					operations++
				}
				if operations < 20 {
					w.Errorf("only %d requests were lost: the operation has more", operations)
				}
				w.Logf("%d requests lost one at a time; %d keys at the provider", operations-1, b.keys()-before)
			})
		}
	})
}

// stagedLoses runs one operation under a fault; it returns false if the fault did not strike.
func stagedLoses(w *world[*sql.Tx], b *bank, what string, arm func() *faultproxy.Fault) bool {
	w.Helper()
	j := stagedJob{Provider: b.URL, Key: w.key(what), Declared: declaredTakeOver, Lease: stagedLease}
	store := w.Store(idempotency.Options{})
	s, err := stagedRefund(store, w.DB.Engine(), j, func(string) {})
	if err != nil {
		w.Fatal(err)
	}
	f := arm()
	start := time.Now()
	for {
		_, err = s.Do(w.Ctx, idempotency.Op{Key: j.Key}, j.Key)
		if err == nil || w.Ctx.Err() != nil {
			break
		}
		w.within(start, 2*stagedLease)
	}
	w.WantOnce(j.Key)
	w.WantOnce(j.Key + " closed")
	if n := b.payments(s.ProviderKey(staged.Ref{Name: "refund", Key: j.Key}, "pay")); n != 1 {
		w.Errorf("%s: %d payments", what, n)
	}
	if !f.Fired() {
		f.Disarm()
		return false
	}
	return true
}

// TestStagedDoubtIsKept uses a worker that finds an external call begun by another worker. It
// commits that it continues the call, and the answer to that commit is lost. It then finds its
// own token, and must not conclude that the call was never made.
func TestStagedDoubtIsKept(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, engine dbtest.Engine) {
		if engine == dbtest.SQLite {
			return // no connection that could break
		}
		base := conformance.New(t, conformance.SQL(), engine)
		inMode(t, base, conformance.SQL(), modes(engine)[0], func(w *world[*sql.Tx]) {
			calls, asked := 0, 0
			s, err := staged.New(w.Store(idempotency.Options{}), staged.Workflow[string, string, *sql.Tx]{
				Name: "refund", Backoff: time.Millisecond,
				Run: func(ctx context.Context, r *staged.Run[*sql.Tx], _ string) (string, error) {
					return staged.Call(ctx, r, staged.ExternalCall[string]{
						Step: "pay", Reconcile: func(context.Context, string) (string, error) {
							asked++
							return "found", nil
						},
					}, func(context.Context, string) (string, error) {
						calls++
						return "", errors.New("no answer, and it was paid")
					})
				},
			})
			if err != nil {
				w.Fatal(err)
			}
			op := idempotency.Op{Key: w.key("doubt")}
			if _, err := s.Do(w.Ctx, op, ""); !errors.Is(err, idempotency.ErrUnknown) {
				w.Fatal(err)
			}
			f := w.proxy.LoseReply(nthCommit(2), faultproxy.Close) // the claim is the first
			if r, err := s.Do(w.Ctx, op, ""); err != nil || r.Value != "found" {
				w.Errorf("%v, %v", r, err)
			}
			if !f.Fired() || calls != 1 || asked != 1 {
				w.Errorf("the commit's answer was lost: %v; %d calls, asked %d times", f.Fired(), calls, asked)
			}
		})
	})
}
