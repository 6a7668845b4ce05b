package faults_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jmoiron/sqlx"

	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/test/conformance"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
	"github.com/holdfast-go/holdfast/internal/test/faultproxy"
	"github.com/holdfast-go/holdfast/sqllock"
)

// Rule: CleanupTimeout bounds cleanup, regardless of the context. The function's own error, or the
// success of a commit, is not delayed forever.
func TestCleanupInBlackHole(t *testing.T) {
	t.Parallel()
	everyMode(t, cleanupInHole[*sql.Tx], cleanupInHole[pgx.Tx], func(*world[*sqlx.Tx]) {})
}

func cleanupInHole[Tx any](w *world[Tx]) {
	if !w.usual {
		return // the requests of other modes differ only in form
	}
	own := errors.New("the function's own")
	for what, c := range map[string]struct {
		match   faultproxy.Match
		err     error
		effects int
	}{
		"rollback": {faultproxy.Contains("rollback"), own, 0},
		"restore":  {faultproxy.Contains("autocommit = 1"), nil, 1},
	} {
		if what == "restore" && !w.InnoDB() {
			continue // it changes no session setting
		}
		var f *faultproxy.Fault
		a := w.record(idempotency.DefaultWait, func(context.Context, Tx) error {
			f = w.proxy.LoseRequest(c.match, faultproxy.Silence)
			return c.err
		})
		key := w.key(what)
		answer := make(chan error, 1)
		start := time.Now()
		go func() {
			_, err := a.do(context.WithoutCancel(w.Ctx), key)
			answer <- err
		}()
		select {
		case err := <-answer:
			w.struck(f, err)
			if !errors.Is(err, c.err) {
				w.Errorf("%s: got %v, want %v", what, err, c.err)
			}
			w.within(start, core.CleanupTimeout)
		case <-time.After(core.CleanupTimeout + dbtest.Slack):
			w.Errorf("%s: no answer", what)
			w.proxy.CutAll()
			<-answer
		}
		if n := w.Effects(key); n != c.effects {
			w.Errorf("%s: %d effects, want %d", what, n, c.effects)
		}
		w.proxy.CutAll()
		w.insist(w.record(idempotency.DefaultWait, nil), key)
		w.Eventually("every connection is back in the pool", func() bool { return w.InUse() == 0 })
	}
}

// Rule: the same when a call rolls back a transaction that is not its own: the caller's, or the one
// that InTx began. InTx ends it without an answer from the connection too.
func TestJoinedCleanupInBlackHole(t *testing.T) {
	t.Parallel()
	everyMode(t, joinedInHole[*sql.Tx], joinedInHole[pgx.Tx], func(*world[*sqlx.Tx]) {})
}

func joinedInHole[Tx any](w *world[Tx]) {
	if !w.usual {
		return // the requests of other modes differ only in form
	}
	for _, in := range []string{"InTx", "InTx and ignored", "the caller's"} {
		for _, call := range []string{"Guard", "DoTx"} {
			w.Run(call+" in "+in, func(t *testing.T) {
				t.Parallel()
				again(t, w).joined(call, in)
			})
		}
	}
}

// joined loses the answer of a call's rollback in a transaction of one kind.
func (w *world[Tx]) joined(call, in string) {
	w.Helper()
	own := errors.New("the function's own")
	want := own
	var do func(ctx context.Context, tx Tx) error
	switch call {
	case "Guard":
		locks := w.LockerWith(sqllock.Options{TTL: time.Minute})
		lease := w.MustAcquire(locks, w.key("lease"))
		w.MustRelease(lease)
		want = sqllock.ErrLost
		do = func(ctx context.Context, tx Tx) error { return locks.Guard(ctx, tx, lease.Term()) }
	case "DoTx":
		store := w.Store(idempotency.Options{})
		do = func(ctx context.Context, tx Tx) error {
			_, err := idempotency.DoTx(ctx, store, tx, conformance.Op(w.key("record")), func(context.Context, Tx) (string, error) { return "", own })
			return err
		}
	}
	ctx, cancel := context.WithCancel(w.Ctx)
	defer cancel()
	strike := func(ctx context.Context, tx Tx) error {
		f := w.proxy.LoseReply(faultproxy.Contains("rollback"), faultproxy.Silence)
		go func() {
			select {
			case <-f.Struck():
				time.AfterFunc(core.CleanupTimeout, cancel)
			case <-w.Ctx.Done():
			}
		}()
		err := do(ctx, tx)
		if !f.Fired() || !errors.Is(err, want) {
			w.Errorf("got %v, want %v; the fault struck: %v", err, want, f.Fired())
		}
		return err
	}
	answer := make(chan error, 1)
	go func() {
		switch in {
		case "InTx":
			answer <- w.DB.InTx(ctx, strike)
		case "InTx and ignored":
			answer <- w.DB.InTx(ctx, func(ctx context.Context, tx Tx) error { _ = strike(ctx, tx); return nil })
		case "the caller's":
			tx, err := w.Begin(ctx, sql.LevelDefault)
			if err == nil {
				err = strike(ctx, tx)
				_ = w.End(ctx, tx, false) // it has ended
			}
			answer <- err
		}
	}()
	select {
	case err := <-answer:
		if err == nil {
			w.Error("success after a rollback")
		}
	case <-time.After(2*core.CleanupTimeout + dbtest.Slack):
		w.Error("no answer")
		w.proxy.CutAll()
		<-answer
	}
	w.proxy.CutAll()
	w.Eventually("every connection is back in the pool", func() bool { return w.InUse() == 0 })
}

// Rule: a poll without an answer ends after CleanupTimeout, and the process goes on polling.
func TestPollInBlackHole(t *testing.T) {
	t.Parallel()
	everyMode(t, pollInHole[*sql.Tx], pollInHole[pgx.Tx], func(*world[*sqlx.Tx]) {})
}

func pollInHole[Tx any](w *world[Tx]) {
	if !w.usual {
		return // the requests of other modes differ only in form
	}
	two := w.Lockers(2, sqllock.Options{TTL: time.Minute})
	holder, waiter := two[0], two[1]
	keys := [2]string{w.key("first"), w.key("second")}
	first, second := w.MustAcquire(holder, keys[0]), w.MustAcquire(holder, keys[1])
	f := w.proxy.LoseReply(faultproxy.Contains("SELECT name, attempt, token, CASE WHEN attempt IS NULL"), faultproxy.Silence)
	granted := make(chan *sqllock.Lease, 1)
	wait := func(key string) {
		ctx, cancel := context.WithTimeout(w.Ctx, 2*core.CleanupTimeout+dbtest.Slack)
		defer cancel()
		lease, err := waiter.Acquire(ctx, key)
		if err != nil {
			w.Errorf("%s: %v", key, err)
		}
		granted <- lease
	}
	go wait(keys[0])
	select {
	case <-f.Struck():
	case <-w.Ctx.Done():
		w.Fatal("no poll was sent")
	}
	go wait(keys[1])
	w.MustRelease(first)
	w.MustRelease(second)
	for range 2 {
		if lease := <-granted; lease != nil {
			w.MustRelease(lease)
		}
	}
	w.proxy.CutAll()
}
