package faults_test

import (
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jmoiron/sqlx"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/internal/test/conformance"
	"github.com/holdfast-go/holdfast/internal/test/faultproxy"
)

// Rule: while the server keeps a session that its client has lost, no other call executes the
// key: a call returns unknown or in progress within its wait. Once the session is gone, the key
// is executed.
func TestPartitionedSessionBlocksUntilGone(t *testing.T) {
	t.Parallel()
	everyMode(t, partitioned[*sql.Tx], partitioned[pgx.Tx], partitioned[*sqlx.Tx])
}

func partitioned[Tx any](w *world[Tx]) {
	const wait = 500 * time.Millisecond
	const lockWait = time.Second // of one claim on the server
	for i, a := range w.asks(wait) {
		if a.name == "row" && !w.usual {
			continue // the same requests, except for their text
		}
		other := w.asks(wait)[i] // acts as another process
		key := w.key(a.name)
		w.ran.Store(0)
		f := w.proxy.Hold(faultproxy.Commit, faultproxy.Close)
		start := time.Now()
		_, err := a.do(w.Ctx, key)
		w.struck(f, err)
		w.unknown(a.name, err)
		w.within(start, wait+lockWait)

		for _, again := range []ask{a, other} {
			start := time.Now()
			_, err := again.do(w.Ctx, key)
			if !errors.Is(err, idempotency.ErrInProgress) && !errors.Is(err, idempotency.ErrUnknown) {
				w.Errorf("%s: while the session lives: %v", a.name, err)
			}
			w.within(start, wait+lockWait)
		}
		if n := w.ran.Load(); n != 1 {
			w.Errorf("%s: the function ran %d times while the session lives", a.name, n)
		}
		w.proxy.CutAll()
		w.insist(other, key)
	}
	if w.usual {
		w.inProgressAtOnce()
	}
	w.naiveCheckThenAct()
}

// inProgressAtOnce checks that with NoWait the answer comes at once.
func (w *world[Tx]) inProgressAtOnce() {
	key := w.key("no wait")
	f := w.proxy.Hold(faultproxy.Commit, faultproxy.Close)
	_, err := w.record(time.Millisecond, nil).do(w.Ctx, key)
	w.struck(f, err)
	w.unknown("no wait", err)
	op := conformance.Op(key)
	op.Wait = holdfast.NoWait
	start := time.Now()
	if r, err := w.Do(w.Store(idempotency.Options{}), op); !errors.Is(err, idempotency.ErrInProgress) {
		w.Errorf("no wait: %v, %v", r, err)
	}
	w.within(start, 0)
	w.proxy.CutAll()
}

// naiveCheckThenAct checks whether the effect exists and creates it if not. The session without
// a client commits afterwards.
func (w *world[Tx]) naiveCheckThenAct() {
	key := w.key("naive")
	f := w.proxy.Hold(faultproxy.Commit, faultproxy.Close)
	err := w.bareUnder(f, key)
	for range 10 { // connections of the pool may be stale
		if w.Effects(key) == 0 {
			err = w.bare(key)
		}
	}
	if err := errors.Join(err, f.Deliver()); err != nil {
		w.Fatal(err)
	}
	if n := w.Effects(key); n == 1 {
		w.Fatal("the naive form should have failed")
	}
}
