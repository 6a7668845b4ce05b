package faults_test

import (
	"context"
	"database/sql"
	"errors"
	"strconv"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/internal/conformance"
	"github.com/holdfast-go/holdfast/internal/dbtest"
	"github.com/holdfast-go/holdfast/internal/faultproxy"
)

// stagedLease is that of the killed workers' operations.
const stagedLease = 1500 * time.Millisecond

// TestStagedKilledWorker: a worker is killed (SIGKILL) at every step of a staged
// operation, with every declaration of its outside call. Whoever asks next brings
// it to its end within the lease, or finds it parked where it was declared so; the
// effects in the tables and the payments at the provider are exactly one.
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

// TestStagedKilledInCommit: a worker is killed while the answer to one of its
// commits is lost: each commit of the operation in turn.
func TestStagedKilledInCommit(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, engine dbtest.Engine) {
		if engine == dbtest.SQLite {
			return // no connection that could break
		}
		base := conformance.New(t, conformance.SQL(), engine)
		b := newBank(t)
		// The claim; the first transaction; the call's beginning and end; the last
		// transaction; the operation's end.
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
						w.proxy.CutAll() // the server learns that the worker is gone
						e := *base
						e.T = w.T
						// In doubt is the step that had begun; when the answer was
						// on its way, the provider had paid.
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

// stagedGoesOn asks again for an operation whose worker is dead, as its caller
// would, and counts.
func stagedGoesOn(e *conformance.Env[*sql.Tx], b *bank, j stagedJob, parks bool) {
	e.Helper()
	store := e.Store(idempotency.Options{Wait: 30 * time.Second})
	s, err := stagedRefund(store, e.DB.Engine(), j, func(string) {})
	if err != nil {
		e.Fatal(err)
	}
	ref := idempotency.Ref{Name: "refund", Key: j.Key}
	key := s.ProviderKey(ref, "pay")
	start := time.Now()
	_, err = s.Do(e.Ctx, idempotency.Op{Key: j.Key}, j.Key)
	took := time.Since(start)
	if took > j.Lease+2*slack {
		e.Errorf("it was stuck for %v, the lease is %v", took, j.Lease)
	}
	if parks {
		var parked *idempotency.ParkedError
		if !errors.As(err, &parked) || parked.Step != "pay" {
			e.Errorf("asked again: %v, want it parked", err)
		}
		// A person looks at the provider, and says what is the case there.
		r := idempotency.Resolution{Step: idempotency.SettlesNotDone}
		if b.payments(key) == 1 {
			r = idempotency.Resolution{Step: idempotency.SettlesDone, StepResult: "paid with " + key}
		}
		if err := store.Operators().Resolve(e.Ctx, ref, r, idempotency.Who{By: "test", Reason: "looked at the provider"}); err != nil {
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

// TestStagedLostRequests: each request of a staged operation in turn is lost, or
// its reply is; the worker lives on and asks again. Effects and payments are one.
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

// stagedLoses runs one operation under a fault; false when it did not strike.
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
	if n := b.payments(s.ProviderKey(idempotency.Ref{Name: "refund", Key: j.Key}, "pay")); n != 1 {
		w.Errorf("%s: %d payments", what, n)
	}
	if !f.Fired() {
		f.Disarm()
		return false
	}
	return true
}

// TestStagedDoubtIsKept: a worker finds that an outside call was begun by another
// one, commits that it goes on with it, and the answer to that commit is lost. It
// finds its own token then, and must not take the call for one that was not made.
func TestStagedDoubtIsKept(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, engine dbtest.Engine) {
		if engine == dbtest.SQLite {
			return // no connection that could break
		}
		base := conformance.New(t, conformance.SQL(), engine)
		inMode(t, base, conformance.SQL(), modes(engine)[0], func(w *world[*sql.Tx]) {
			calls, asked := 0, 0
			s, err := idempotency.NewStaged(w.Store(idempotency.Options{}), idempotency.Stages[*sql.Tx, string, string]{
				Name: "refund", Backoff: time.Millisecond,
				Run: func(ctx context.Context, r *idempotency.Run[*sql.Tx], _ string) (string, error) {
					return idempotency.Call(ctx, r, idempotency.Outside[string]{
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
