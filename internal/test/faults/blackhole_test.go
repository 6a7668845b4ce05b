package faults_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jmoiron/sqlx"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/test/faultproxy"
)

// deadline is the deadline of a call, counted from the start of the black hole.
const deadline = 300 * time.Millisecond

// holed makes a call whose deadline comes soon after begun is closed, and fails unless the call
// ends in time.
func (w *world[Tx]) holed(a ask, key string, begun <-chan struct{}) error {
	w.Helper()
	ctx, cancel := context.WithCancelCause(w.Ctx)
	defer cancel(nil)
	var start time.Time
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		select {
		case <-begun:
			start = time.Now()
			time.Sleep(deadline)
			cancel(context.DeadlineExceeded)
		case <-ctx.Done():
		}
	}()
	_, err := a.do(ctx, key)
	cancel(nil)
	if <-stopped; !start.IsZero() {
		w.within(start, deadline+core.CleanupTimeout)
	}
	return err
}

// Rule: a call on a black-holed connection ends within its deadline plus CleanupTimeout. It
// returns the context's error if COMMIT was not sent, and ErrUnknown if it was. After the
// network recovers the key has one effect.
func TestBlackHole(t *testing.T) {
	t.Parallel()
	t.Run("function", func(t *testing.T) {
		t.Parallel()
		everyMode(t, holeInFunction[*sql.Tx], holeInFunction[pgx.Tx], holeInFunction[*sqlx.Tx])
	})
	t.Run("commit", func(t *testing.T) {
		t.Parallel()
		everyMode(t, holeAtCommit[*sql.Tx](false), holeAtCommit[pgx.Tx](false), holeAtCommit[*sqlx.Tx](false))
	})
	t.Run("reply of commit", func(t *testing.T) {
		t.Parallel()
		everyMode(t, holeAtCommit[*sql.Tx](true), holeAtCommit[pgx.Tx](true), holeAtCommit[*sqlx.Tx](true))
	})
}

// Rule: the same for a transaction of InTx, whose COMMIT no statement of Holdfast's goes with.
func TestBlackHoleAtCommitOfInTx(t *testing.T) {
	t.Parallel()
	everyMode(t, holeInTx[*sql.Tx], holeInTx[pgx.Tx], holeInTx[*sqlx.Tx])
}

func holeInTx[Tx any](w *world[Tx]) {
	for sent, lose := range map[bool]func(faultproxy.Match, faultproxy.Ending, ...func()) *faultproxy.Fault{true: w.proxy.LoseReply, false: w.proxy.LoseRequest} {
		key := w.key(fmt.Sprint("sent ", sent))
		a := ask{"InTx", func(ctx context.Context, key string) (idempotency.Outcome, error) {
			return idempotency.Executed, w.DB.InTx(ctx, func(ctx context.Context, tx Tx) error { return w.effect(ctx, tx, key) })
		}}
		f := lose(faultproxy.Commit, faultproxy.Silence)
		err := w.holed(a, key, f.Struck())
		w.struck(f, err)
		w.unknown("black hole at COMMIT", err)
		w.proxy.CutAll() // the server ends the session without a client
		w.Eventually("every connection is back in the pool", func() bool { return w.InUse() == 0 })
	}
}

// Rule: the same for each single request of an operation and for each reply. The call ends in
// time, an error other than "unknown" left no effect, and the key has one effect afterwards.
func TestBlackHoleAtEveryRequest(t *testing.T) {
	t.Parallel()
	everyMode(t, holeAtEach[*sql.Tx], holeAtEach[pgx.Tx], func(*world[*sqlx.Tx]) {})
}

func holeAtEach[Tx any](w *world[Tx]) {
	if !w.usual || testing.Short() {
		return // the requests of other modes differ only in form
	}
	for n := range 12 { // no operation has more
		for name, lose := range map[string]func(*faultproxy.Proxy) *faultproxy.Fault{
			"request": func(p *faultproxy.Proxy) *faultproxy.Fault {
				return p.LoseRequest(faultproxy.Nth(n+1), faultproxy.Silence)
			},
			"reply": func(p *faultproxy.Proxy) *faultproxy.Fault {
				return p.LoseReply(faultproxy.Nth(n+1), faultproxy.Silence)
			},
		} {
			w.Run(fmt.Sprint(name, n+1), func(t *testing.T) {
				t.Parallel()
				w := again(t, w)
				key := w.key("record")
				a := w.record(idempotency.DefaultWait, nil)
				f := lose(w.proxy)
				err := w.holed(a, key, f.Struck())
				f.Disarm()
				w.proxy.CutAll()
				switch n := w.Effects(key); {
				case err == nil && n != 1:
					w.Errorf("%d effects after success", n)
				case err != nil && n != 0 && !errors.Is(err, holdfast.ErrUnknown):
					w.Errorf("%d effects after an error that is definite: %v", n, err)
				case err != nil && !errors.Is(err, holdfast.ErrUnknown) && !ended(err):
					w.Errorf("got %v", err)
				}
				w.insist(a, key)
				w.Eventually("every connection is back in the pool", func() bool { return w.InUse() == 0 })
			})
		}
	}
}

// ended reports whether err comes from the context: its cause, or the error of the function's
// own statement.
func ended(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}

func holeInFunction[Tx any](w *world[Tx]) {
	key := w.key("record")
	hole, begun := true, make(chan struct{})
	a := w.record(idempotency.DefaultWait, func(ctx context.Context, tx Tx) error {
		w.proxy.BlackHole(hole)
		if hole {
			close(begun)
		}
		_, err := w.Exec(ctx, tx, `INSERT INTO effects (k, who) VALUES ($1, $2)`, []byte("other "+key), "holder")
		return err
	})
	err := w.holed(a, key, begun)
	if !ended(err) || errors.Is(err, holdfast.ErrUnknown) {
		w.Errorf("got %v, want the context's error", err)
	}
	if n := w.Effects(key); n != 0 {
		w.Errorf("%d effects of a transaction without COMMIT", n)
	}

	// Naive: no deadline. The statement does not return while the hole is open.
	back := make(chan error, 1)
	go func() {
		_, err := access.Of(w.DB).Pool.Exec(context.WithoutCancel(w.Ctx), w.Rebind(`UPDATE effects SET who = $1 WHERE k = $2`), "", []byte(key))
		back <- err
	}()
	select {
	case err := <-back:
		w.Fatalf("the naive form should have failed: it is back with %v", err)
	case <-time.After(2 * deadline):
	}

	hole = false
	w.proxy.BlackHole(false)
	<-back
	w.want(a, key, idempotency.Executed)
	w.Eventually("every connection is back in the pool", func() bool { return w.InUse() == 0 })
}

func holeAtCommit[Tx any](sent bool) func(w *world[Tx]) {
	return func(w *world[Tx]) {
		key := w.key("record")
		a := w.record(idempotency.DefaultWait, nil)
		lose, then := w.proxy.LoseReply, idempotency.Replayed
		if !sent {
			lose, then = w.proxy.LoseRequest, idempotency.Executed
		}
		f := lose(faultproxy.Commit, faultproxy.Silence)
		err := w.holed(a, key, f.Struck())
		w.struck(f, err)
		w.unknown("black hole at COMMIT", err)
		w.proxy.CutAll() // the server ends the session without a client
		w.want(a, key, then)
		w.Eventually("every connection is back in the pool", func() bool { return w.InUse() == 0 })
	}
}
