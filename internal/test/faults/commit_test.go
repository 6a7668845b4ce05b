package faults_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jmoiron/sqlx"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/internal/test/faultproxy"
)

// Rule: a COMMIT with a lost answer is unknown, and nothing else, while the database cannot be
// reached. Another call with the same key replays the result.
func TestLostCommitReplyIsUnknownAndRetryReplays(t *testing.T) {
	t.Parallel()
	everyMode(t, lostReplyIsUnknown[*sql.Tx], lostReplyIsUnknown[pgx.Tx], lostReplyIsUnknown[*sqlx.Tx])
}

func lostReplyIsUnknown[Tx any](w *world[Tx]) {
	const wait = 300 * time.Millisecond
	for _, a := range w.asks(wait) {
		key := w.key(a.name)
		f := w.proxy.LoseReply(faultproxy.Commit, faultproxy.Close, w.proxy.Down)
		start := time.Now()
		_, err := a.do(w.Ctx, key)
		w.struck(f, err)
		w.unknown(a.name, err)
		w.within(start, wait)
		if n := w.ran.Swap(0); n != 1 {
			w.Errorf("%s: the function ran %d times without a server", a.name, n)
		}
		w.proxy.Refuse(false)
		w.want(a, key, idempotency.Replayed)
		if w.ran.Load() != 0 {
			w.Errorf("%s: the function ran again", a.name)
		}
	}

	// InTx has no key to ask with, so it must not run the function again.
	key := w.key("InTx")
	f := w.proxy.LoseReply(faultproxy.Commit, faultproxy.Close, w.proxy.Down)
	err := w.DB.InTx(w.Ctx, func(ctx context.Context, tx Tx) error { return w.effect(ctx, tx, key) })
	w.struck(f, err)
	w.unknown("InTx", err)
	if n := w.ran.Load(); n != 1 || w.DB.Retryable(err) {
		w.Errorf("InTx: the function ran %d times, retryable %v", n, w.DB.Retryable(err))
	}
	w.WantOnce(key)
	w.proxy.Refuse(false)

	naiveRerun(w)
}

// naiveRerun treats an error of COMMIT as "not done" and runs the transaction again, without a
// claim.
func naiveRerun[Tx any](w *world[Tx]) {
	key := w.key("naive rerun")
	f := w.proxy.LoseReply(faultproxy.Commit, faultproxy.Close)
	err := w.bareUnder(f, key)
	for n := 0; n < 10 && err != nil; n++ {
		err = w.bare(key)
	}
	if n := w.Effects(key); err != nil || n == 1 {
		w.Fatalf("the naive form should have failed: %d effects, %v", n, err)
	}
}

// Rule: if the database can be reached, Do itself resolves the unknown commit by claiming again:
// success, one effect.
func TestLostCommitReplyIsSettledByClaimingAgain(t *testing.T) {
	t.Parallel()
	everyMode(t, lostReplyIsSettled[*sql.Tx], lostReplyIsSettled[pgx.Tx], lostReplyIsSettled[*sqlx.Tx])
}

func lostReplyIsSettled[Tx any](w *world[Tx]) {
	for _, a := range w.asks(idempotency.DefaultWait) {
		key := w.key(a.name)
		for name, ending := range map[string]faultproxy.Ending{"close": faultproxy.Close, "reset": faultproxy.Reset} {
			key := key + name
			f := w.proxy.LoseReply(faultproxy.Commit, ending)
			w.want(a, key, idempotency.Replayed) // by the first call
			w.struck(f, nil)
			w.want(a, key, idempotency.Replayed)
		}
	}
	// Naive: the caller gets the driver's error although the money has moved.
	key := w.key("naive")
	f := w.proxy.LoseReply(faultproxy.Commit, faultproxy.Reset)
	err := w.bareUnder(f, key)
	if n := w.Effects(key); err == nil && n == 1 {
		w.Fatal("the naive form should have failed: it reported the effect that it had")
	}
}

// Rule: a COMMIT that never reached the server did nothing. Do runs the function again, and
// there is one effect.
func TestCommitNeverSentRunsAgain(t *testing.T) {
	t.Parallel()
	everyMode(t, commitNeverSent[*sql.Tx], commitNeverSent[pgx.Tx], commitNeverSent[*sqlx.Tx])
}

func commitNeverSent[Tx any](w *world[Tx]) {
	for _, a := range w.asks(idempotency.DefaultWait) {
		for name, ending := range map[string]faultproxy.Ending{"close": faultproxy.Close, "reset": faultproxy.Reset} {
			key := w.key(a.name + name)
			w.ran.Store(0)
			f := w.proxy.LoseRequest(faultproxy.Commit, ending)
			w.want(a, key, idempotency.Executed)
			w.struck(f, nil)
			if n := w.ran.Load(); n != 2 {
				w.Errorf("%s: the function ran %d times, want 2", a.name, n)
			}
			w.want(a, key, idempotency.Replayed)
		}
	}
	// Naive: COMMIT was called, so it counts as done.
	key := w.key("naive")
	f := w.proxy.LoseRequest(faultproxy.Commit, faultproxy.Close)
	_ = w.bareUnder(f, key)
	if n := w.Effects(key); n == 1 {
		w.Fatal("the naive form should have failed")
	}
}

// Rule: the loss of a connection is not blamed on the caller, not even if the function ignores the
// error of this statement. The operation has no effect, and runs again.
func TestIgnoredLossIsNotOpenRows(t *testing.T) {
	t.Parallel()
	everyMode(t, ignoredLoss[*sql.Tx], ignoredLoss[pgx.Tx], ignoredLoss[*sqlx.Tx])
}

func ignoredLoss[Tx any](w *world[Tx]) {
	for name, ending := range map[string]faultproxy.Ending{"close": faultproxy.Close, "reset": faultproxy.Reset} {
		var f *faultproxy.Fault
		a := w.record(idempotency.DefaultWait, func(ctx context.Context, tx Tx) error {
			f = w.proxy.LoseReply(faultproxy.Nth(1), ending)
			_ = w.Effect(ctx, tx, w.key("another "+name))
			return nil
		})
		key := w.key("ignored " + name)
		_, err := a.do(w.Ctx, key)
		w.struck(f, err)
		if err == nil || errors.Is(err, holdfast.ErrRowsOpen) || errors.Is(err, holdfast.ErrUnknown) {
			w.Errorf("%s: got %v", name, err)
		}
		if n := w.Effects(key); n != 0 {
			w.Errorf("%s: %d effects", name, n)
		}
		w.want(w.record(idempotency.DefaultWait, nil), key, idempotency.Executed)
	}
}
