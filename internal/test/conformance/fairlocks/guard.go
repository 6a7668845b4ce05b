package fairlocks

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/test/conformance"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
	"github.com/holdfast-go/holdfast/sqllock"
	"github.com/holdfast-go/holdfast/sqllock/fairlock"
)

// underTerms commits an effect guarded by terms.
func (e *env[Tx]) underTerms(l *sqllock.Locker[Tx], key string, terms ...sqllock.Term) error {
	return e.DB.InTx(e.Ctx, func(ctx context.Context, tx Tx) error {
		if err := l.Guard(ctx, tx, terms...); err != nil {
			return err
		}
		return e.Effect(ctx, tx, key)
	}, holdfast.TxOptions{LockTimeout: 5 * time.Second})
}

// ticketsGuard checks that a holder's transaction commits, also beside others that share the
// lock, and that a stale holder's transaction does not.
func ticketsGuard[Tx any](e *env[Tx]) {
	lockers := e.Lockers(2, sqllock.Options{})
	l, other := lockers[0], lockers[1]
	s, err := fairlock.New(l).Semaphore("key", 2)
	e.Check(err)
	one, err := fairlock.New(l).AcquireShared(e.Ctx, "key")
	e.Check(err)
	two, err := fairlock.New(other).AcquireShared(e.Ctx, "key")
	e.Check(err)
	permit, err := s.Acquire(e.Ctx, 2)
	e.Check(err)
	plain := e.TryAcquire(l, "key")
	e.Check(e.underTerms(other, "all", permit.Term(), two.Term(), plain.Term(), one.Term()))
	if e.Effects("all") != 1 {
		e.Error("the effect is missing")
	}
	if e.DB.Capabilities().SharedGuards {
		tx := e.BeginTx(sql.LevelDefault)
		e.Check(l.Guard(e.Ctx, tx, one.Term()))
		e.Check(e.underTerms(l, "beside", one.Term(), two.Term()))
		e.EndTx(tx, true)
	}
	e.Check(two.Release(e.Ctx))
	lost := func(what string, term sqllock.Term) {
		e.Helper()
		err := e.underTerms(l, what, term)
		if le := (*sqllock.LostError)(nil); !errors.As(err, &le) || le.Key != term.Key() || le.Token != term.Token() || e.Effects(what) != 0 {
			e.Errorf("%s: %v, %d effects", what, err, e.Effects(what))
		}
	}
	lost("released", two.Term())
	lost("of another kind", l.Term("key", one.Token()))
	lost("of another kind, too", s.Term(one.Token()))
	// A waiting call has a token but no lock.
	ctx, cancel := context.WithCancel(e.Ctx)
	waits := make(chan error)
	go func() {
		_, err := fairlock.New(other).Acquire(ctx, "key")
		waits <- err
	}()
	e.Eventually("it stands in line", func() bool { return e.Int(`SELECT COUNT(*) FROM holdfast_tickets WHERE granted_at IS NULL`) == 1 })
	lost("waiting", fairlock.New(l).Term("key", int64(e.Int(`SELECT token FROM holdfast_tickets WHERE granted_at IS NULL`))))
	cancel()
	<-waits
	e.Check(one.Release(e.Ctx))

	stale, err := fairlock.New(l).Acquire(e.Ctx, "key", sqllock.AcquireOptions{TTL: conformance.ShortTTL, NoRenewal: true})
	e.Check(err)
	time.Sleep(150 * time.Millisecond)
	e.Check(e.underTerms(l, "nobody came", stale.Term())) // regardless of its context
	next, err := fairlock.New(other).Acquire(e.Ctx, "key")
	e.Check(err)
	lost("taken over", stale.Term())
	e.Check(e.underTerms(other, "next", next.Term()))
	for _, lease := range []*sqllock.Lease{next, permit, plain} {
		e.Check(lease.Release(e.Ctx))
	}
}

// ticketsGuardedStays checks that no other call acquires the lock during a guarded transaction,
// though the ticket has expired; the release waits for the transaction.
func ticketsGuardedStays[Tx any](e *env[Tx]) {
	lockers := e.Lockers(2, sqllock.Options{})
	l, other := lockers[0], fairlock.New(lockers[1])
	lease, err := fairlock.New(l).AcquireShared(e.Ctx, "key", sqllock.AcquireOptions{TTL: conformance.ShortTTL, NoRenewal: true})
	e.Check(err)
	if !e.DB.Capabilities().RowLocks { // where no other session can write during the transaction
		tx := e.BeginTx(sql.LevelDefault)
		e.Check(l.Guard(e.Ctx, tx, lease.Term()))
		time.Sleep(300 * time.Millisecond)
		ctx, cancel := context.WithTimeout(e.Ctx, 300*time.Millisecond)
		defer cancel()
		if next, err := other.Acquire(ctx, "key"); err == nil {
			e.Errorf("granted beside a guarded transaction: %v", next)
		}
		e.Check(e.Effect(e.Ctx, tx, "key"))
		e.EndTx(tx, true)
		return
	}
	tx := e.BeginTx(sql.LevelDefault)
	e.Check(l.Guard(e.Ctx, tx, lease.Term()))
	e.Eventually("the claim has expired", func() bool {
		return e.Int(`SELECT COUNT(*) FROM holdfast_tickets WHERE expires_at <= $1`, e.Now()) == 1
	})
	start := time.Now()
	_, err = other.TryAcquire(e.Ctx, "key")
	if h := (*sqllock.HeldError)(nil); !errors.As(err, &h) || h.Token != lease.Token() || h.Remaining != 0 {
		e.Errorf("tried, after %v: %v", time.Since(start), err)
	}
	got := make(chan *sqllock.Lease)
	go func() {
		next, err := other.Acquire(e.Ctx, "key")
		if err != nil {
			e.Error(err)
		}
		got <- next
	}()
	select {
	case next := <-got:
		e.Fatalf("granted beside a guarded transaction: %v", next)
	case <-time.After(300 * time.Millisecond):
	}
	e.Check(e.Effect(e.Ctx, tx, "key"))
	e.EndTx(tx, true)
	next := <-got
	if next == nil {
		return
	}
	if e.Effects("key") != 1 {
		e.Error("the guarded effect is missing")
	}
	e.Check(next.Release(e.Ctx))
}

// ticketsGuardSnapshot checks that a snapshot older than the grant is refused, because it may
// not show the previous holder's writes.
func ticketsGuardSnapshot[Tx any](e *env[Tx]) {
	lockers := e.Lockers(2, sqllock.Options{})
	l, other := lockers[0], lockers[1]
	before, err := fairlock.New(other).Acquire(e.Ctx, "key")
	e.Check(err)
	level := sql.LevelRepeatableRead
	if e.Engine == dbtest.SQLite {
		level = sql.LevelDefault
	}
	tx := e.BeginTx(level)
	q, err := access.Of(e.DB).Join(tx)
	e.Check(err)
	rows, err := q.Query(e.Ctx, e.Rebind(`SELECT COUNT(*) FROM effects WHERE k = $1`), []byte("key"))
	e.Check(err)
	for rows.Next() { // reads all rows, so that the snapshot is taken
	}
	e.Check(rows.Close())
	e.Check(e.underTerms(other, "key", before.Term()))
	e.Check(before.Release(e.Ctx))
	mine, err := fairlock.New(l).Acquire(e.Ctx, "key")
	e.Check(err)
	if err := l.Guard(e.Ctx, tx, mine.Term()); !errors.Is(err, holdfast.ErrRetry) {
		e.Errorf("an old snapshot: %v", err)
	}
	e.Check(e.underTerms(l, "fresh", mine.Term()))
	e.Check(mine.Release(e.Ctx))
}
