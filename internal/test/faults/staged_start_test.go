package faults_test

import (
	"crypto/rand"
	"database/sql"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/idempotency/staged"
	"github.com/holdfast-go/holdfast/internal/test/conformance"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
	"github.com/holdfast-go/holdfast/internal/test/faultproxy"
)

// startedLease is the lease of the killed processes' operations. No process that lives loses one,
// however busy the machine is: the test ends the lease once its process is dead.
const startedLease = 2 * dbtest.Hang

// TestStagedStartKilled kills a process (SIGKILL) at every step of an operation that begins in its
// caller's transaction, whose provider answers at once or settles later. The caller asks again, two
// completers continue it at once, and the provider's event comes before them or after. There is one
// effect of each kind in the tables, and one payment.
func TestStagedStartKilled(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, engine dbtest.Engine) {
		e := conformance.New(t, conformance.SQL(), engine)
		b := newBank(t)
		for name, j := range map[string]stagedJob{
			"park": {Declared: declaredPark}, "reconcile": {Declared: declaredReconcile},
			"accepted, park": {Declared: declaredPark, Accepts: true}, "accepted, reconcile": {Declared: declaredReconcile, Accepts: true},
		} {
			stages := []string{
				stagedBefore, stagedAsking, stagedStarting, stagedStarted, stagedClaimed, stagedBooking, stagedBooked, stagedCalling, stagedPaid,
			}
			if j.Accepts {
				stages = append(stages, stagedSettling)
			} else {
				stages = append(stages, stagedAnswered, stagedClosing, stagedClosed, stagedFinished)
			}
			for _, stage := range stages {
				for _, eventFirst := range []bool{true, false} {
					when := "event last"
					if eventFirst {
						when = "event first"
					}
					t.Run(name+", "+stage+", "+when, func(t *testing.T) {
						t.Parallel()
						e := *e
						e.T = t
						j := j
						j.DSN, j.Provider, j.Key, j.Stage, j.Lease, j.Starts = e.DSN, b.URL, t.Name(), stage, startedLease, true
						j.Namespace = rand.Text()
						killStaged(t, j, nil)
						startedGoesOn(&e, b, j, eventFirst)
					})
				}
			}
		}
	})
}

// TestStagedStartKilledInCommit kills the process while the answer to one of its commits, or the commit
// itself, is lost: the caller's and each of the operation's in turn.
func TestStagedStartKilledInCommit(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, engine dbtest.Engine) {
		if engine == dbtest.SQLite {
			return // no connection that could break
		}
		base := conformance.New(t, conformance.SQL(), engine)
		b := newBank(t)
		for _, accepts := range []bool{false, true} {
			commits := []string{"caller", "claim", "book", "begin", "answer", "close", "finish"}
			kind := "at once"
			if accepts {
				commits, kind = commits[:5], "accepted"
			}
			for n, what := range commits {
				for name, lose := range map[string]func(*faultproxy.Proxy, faultproxy.Match, faultproxy.Ending, ...func()) *faultproxy.Fault{
					"reply": (*faultproxy.Proxy).LoseReply, "request": (*faultproxy.Proxy).LoseRequest,
				} {
					t.Run(kind+", "+what+", "+name, func(t *testing.T) {
						t.Parallel()
						inMode(t, base, conformance.SQL(), modes(engine)[0], func(w *world[*sql.Tx]) {
							f := lose(w.proxy, nthCommit(n+1), faultproxy.Silence)
							j := stagedJob{
								DSN: w.DSN, Provider: b.URL, Key: t.Name(), Stage: stagedNeverThere, Declared: declaredReconcile, Lease: startedLease,
								Starts: true, Accepts: accepts, Namespace: rand.Text(),
							}
							killStaged(w.T, j, f.Struck())
							w.proxy.CutAll() // the server notices that the process is gone
							e := *base
							e.T, e.Ctx = w.T, w.Ctx // of this subtest: base's began long before its turn
							startedGoesOn(&e, b, j, false)
						})
					})
				}
			}
		}
	})
}

// startedGoesOn asks again for an operation whose process is dead, completes it twice at once, delivers
// what the provider knows, and counts.
func startedGoesOn(e *conformance.Env[*sql.Tx], b *bank, j stagedJob, eventFirst bool) {
	e.Helper()
	store := e.Store(idempotency.Options{Wait: 30 * time.Second, Namespace: j.Namespace})
	s, err := stagedRefund(store, e.DB.Engine(), j, func(string) {})
	if err != nil {
		e.Fatal(err)
	}
	ref := staged.Ref{Name: "refund", Key: j.Key}
	key := s.ProviderKey(ref, "pay")
	// The provider's event, twice. If the provider has no payment, it says so; that is refused while a
	// worker may still be at it.
	deliver := func() {
		e.Helper()
		event := staged.ProviderEvent{ID: "paid", ProviderKey: key, Outcome: staged.StepDone, Result: "paid with " + key}
		if b.payments(key) == 0 {
			event = staged.ProviderEvent{ID: "none", ProviderKey: key, Outcome: staged.StepNotDone}
		}
		for range 2 {
			if _, err := staged.HandleEvent(e.Ctx, store, event, nil); err != nil && !errors.Is(err, staged.ErrNotFound) && !errors.Is(err, staged.ErrState) {
				e.Errorf("the event: %v", err)
			}
		}
	}
	if eventFirst && b.payments(key) == 1 {
		deliver()
	}
	st, err := stagedAsk(e.Ctx, e.DB, s, j, func(string) {})
	if err != nil {
		e.Fatal(err)
	}
	e.Eventually("it has ended", func() bool {
		// The dead process's lease ends, also one that a commit on its way has just written.
		e.Must(`UPDATE holdfast_staged SET due_at = 1 WHERE namespace = $1 AND attempt IS NOT NULL`, j.Namespace)
		var both sync.WaitGroup
		for range 2 {
			both.Go(func() {
				if _, err := s.Complete(e.Ctx, staged.RunOptions{Workers: 1}); err != nil {
					e.Errorf("the completer: %v", err)
				}
			})
		}
		both.Wait()
		found, err := s.LookupID(e.Ctx, st.ID, 0)
		if err != nil {
			e.Errorf("lookup: %v", err)
			return true
		}
		if found.State == idempotency.StateSettling || found.State == idempotency.StateUnknown {
			deliver()
		}
		return found.State.Final()
	})
	if r, err := st.Wait(e.Ctx); err != nil || r.Value != "paid with "+key {
		e.Errorf("in the end: %v, %v", r, err)
	}
	deliver() // late
	for _, effect := range []string{" asked for", "", " closed"} {
		e.WantOnce(j.Key + effect)
	}
	if n := b.payments(key); n != 1 {
		e.Errorf("%d payments", n)
	}
}
