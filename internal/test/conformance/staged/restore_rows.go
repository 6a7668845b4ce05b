package staged

import (
	"context"
	"errors"
	"maps"
	"strings"
	"sync/atomic"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/idempotency/operators"
	"github.com/holdfast-go/holdfast/internal/test/rowdiff"
	"github.com/holdfast-go/holdfast/sqllock"
)

// afterRestoreRows checks what after-restore leaves of each row: an operation that waits, one that a worker
// has, one that is unknown, one that has ended; a lock that is held and one that is free.
func afterRestoreRows[Tx any](e *env[Tx]) {
	boom := errors.New("boom")
	f, s := e.stagedRefunds(0)
	f.before = func(int) error { return boom }
	for _, key := range []string{"waits", "has a worker"} {
		if _, err := s.Do(e.Ctx, stagedOp(key), key); !errors.Is(err, boom) {
			e.Fatal(err)
		}
	}
	f.before = nil
	if _, err := s.Do(e.Ctx, stagedOp("ended"), "ended"); err != nil {
		e.Fatal(err)
	}
	unfinished(e, "unknown")
	locks, err := sqllock.New(e.Ctx, e.DB)
	e.Check(err)
	defer locks.Close(e.Ctx) // it has lost its lease
	for _, key := range []string{"held", "free"} {
		l, err := locks.TryAcquire(e.Ctx, key)
		e.Check(err)
		if key == "free" {
			e.Check(l.Release(e.Ctx))
		}
	}
	e.Must(`UPDATE holdfast_staged SET attempt = $1, version = 5 WHERE op_key = $2`, []byte("a worker's token"), []byte("has a worker"))
	e.Must(`UPDATE holdfast_staged SET moved_at = 1`)
	table := []rowdiff.Table{{Name: "holdfast_staged", Key: []string{"op_key"}}}
	before := e.rows(table...)
	done, err := operators.AfterRestore(e.Ctx, e.DB, who())
	e.Check(err)
	after := e.rows(table...)
	later := func(_, is string, _ rowdiff.Clock) bool { return is != "1" }
	raised := rowdiff.Change{"token": rowdiff.Is(done.Floor), "version": rowdiff.Plus(1), "moved_at": later, "attempt": rowdiff.Is(rowdiff.Null)}
	with := func(more rowdiff.Change) rowdiff.Change {
		c := rowdiff.Change{}
		for _, m := range []rowdiff.Change{raised, more} {
			maps.Copy(c, m)
		}
		return c
	}
	why := func(_, is string, _ rowdiff.Clock) bool { return strings.Contains(is, "restored") }
	pending := with(rowdiff.Change{"state": rowdiff.Is(6), "reason": why, "restored": rowdiff.Is(1)})
	rowdiff.Check(e, "after-restore", before, after, rowdiff.Changes{
		"holdfast_staged waits": pending, "holdfast_staged has a worker": pending,
		"holdfast_staged unknown": with(rowdiff.Change{"restored": rowdiff.Is(1)}), "holdfast_staged ended": raised,
	}, rowdiff.Clock{})
	const forced = `SELECT COUNT(*) FROM holdfast_locks WHERE forced_by = $1 AND forced_reason = $2 AND forced_at IS NOT NULL`
	if n := e.Int(forced, who().By, who().Reason); n != 1 || done.Locks != 2 {
		e.Errorf("%d locks are said to be taken from their holders, %d were raised, want 1 and 2", n, done.Locks)
	}
}

// afterRestoreRaised raises the floor of the tokens while after-restore runs, as a reaper does. The floor
// never falls: a token would be granted twice.
func afterRestoreRaised[Tx any](e *env[Tx]) {
	const high = 1 << 60
	var once atomic.Bool
	other := e.Handle.Open(e.T, e.DSN, holdfast.Options{Observers: []holdfast.Observer{func(_ context.Context, st holdfast.Statement) {
		if st.Name == "restore.most" && once.CompareAndSwap(false, true) {
			e.Must(`UPDATE holdfast_floor SET token = $1`, int64(high))
		}
	}}})
	_, err := operators.AfterRestore(e.Ctx, other.DB, who())
	if floor := e.Int(`SELECT token FROM holdfast_floor`); floor < high || !once.Load() {
		e.Errorf("the floor fell to %d, %v", floor, err)
	}
}
