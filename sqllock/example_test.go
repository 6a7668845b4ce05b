package sqllock_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"

	_ "modernc.org/sqlite"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/adapters/holdfastsql"
	"github.com/holdfast-go/holdfast/migrations"
	"github.com/holdfast-go/holdfast/sqllock"
)

// open returns a Locker on a new SQLite database, the pool, and a function that closes all.
func open(ctx context.Context) (locks *sqllock.Locker[*sql.Tx], pool *sql.DB, end func()) {
	dir, err := os.MkdirTemp("", "sqllock")
	if err != nil {
		log.Fatal(err)
	}
	pool, err = sql.Open("sqlite", filepath.Join(dir, "db")+"?_pragma=busy_timeout(5000)&_pragma=journal_mode(WAL)")
	if err != nil {
		log.Fatal(err)
	}
	if err := migrations.Up(ctx, pool); err != nil {
		log.Fatal(err)
	}
	if _, err := pool.ExecContext(ctx, `CREATE TABLE entries (day TEXT NOT NULL, cents INTEGER NOT NULL)`); err != nil {
		log.Fatal(err)
	}
	db, err := holdfastsql.Open(ctx, pool, holdfast.Options{SingleOwner: true})
	if err != nil {
		log.Fatal(err)
	}
	locks, err = sqllock.New(ctx, db, sqllock.Options{Holder: "worker 1"})
	if err != nil {
		log.Fatal(err)
	}
	return locks, pool, func() {
		_ = locks.Close(ctx)
		_ = pool.Close()
		_ = os.RemoveAll(dir)
	}
}

func book(ctx context.Context, tx *sql.Tx, day string, cents int64) error {
	_, err := tx.ExecContext(ctx, `INSERT INTO entries (day, cents) VALUES (?, ?)`, day, cents)
	return err
}

// One process at a time runs a settlement. Its writes are guarded by the lease.
func ExampleLocker_Do() {
	ctx := context.Background()
	locks, _, end := open(ctx)
	defer end()

	err := locks.Do(ctx, "settlement/2026-11-21", func(ctx context.Context, lease *sqllock.Lease) error {
		return locks.InTx(ctx, lease, func(ctx context.Context, tx *sql.Tx) error {
			return book(ctx, tx, "2026-11-21", 1250)
		})
	})
	fmt.Println("settled:", err == nil)
	// Output:
	// settled: true
}

// A transaction guarded by a lease commits nothing after the lock was taken away.
func ExampleLocker_InTx() {
	ctx := context.Background()
	locks, _, end := open(ctx)
	defer end()

	lease, err := locks.Acquire(ctx, "settlement")
	if err != nil {
		log.Print(err)
		return
	}
	write := func(ctx context.Context, tx *sql.Tx) error { return book(ctx, tx, "2026-11-21", 1250) }
	fmt.Println("held:", locks.InTx(ctx, lease, write))
	if _, err := locks.ForceRelease(ctx, "settlement", lease.Token(), holdfast.Actor{By: "ana", Reason: "the worker hangs"}); err != nil {
		log.Print(err)
		return
	}
	fmt.Println("taken away:", errors.Is(locks.InTx(ctx, lease, write), sqllock.ErrLost))
	// Output:
	// held: <nil>
	// taken away: true
}

// A lease is held until it is released. The tokens of a key increase.
func ExampleLocker_Acquire() {
	ctx := context.Background()
	locks, _, end := open(ctx)
	defer end()

	first, err := locks.Acquire(ctx, "order/42")
	if err != nil {
		log.Print(err)
		return
	}
	fmt.Println("released:", first.Release(ctx))
	second, err := locks.Acquire(ctx, "order/42")
	if err != nil {
		log.Print(err)
		return
	}
	defer func() { _ = second.Release(ctx) }()
	fmt.Println("the token has risen:", second.Token() > first.Token())
	// Output:
	// released: <nil>
	// the token has risen: true
}

// TryAcquire does not wait, and its error names the holder.
func ExampleLocker_TryAcquire() {
	ctx := context.Background()
	locks, _, end := open(ctx)
	defer end()

	lease, err := locks.TryAcquire(ctx, "order/42")
	if err != nil {
		log.Print(err)
		return
	}
	defer func() { _ = lease.Release(ctx) }()
	_, err = locks.TryAcquire(ctx, "order/42")
	if held := (*sqllock.HeldError)(nil); errors.As(err, &held) {
		fmt.Println("held by", held.Holder)
	}
	// Output:
	// held by worker 1
}

// Guard is the first statement of a transaction that the program begins itself.
func ExampleLocker_Guard() {
	ctx := context.Background()
	locks, pool, end := open(ctx)
	defer end()

	lease, err := locks.Acquire(ctx, "settlement")
	if err != nil {
		log.Print(err)
		return
	}
	guarded := func() error {
		tx, err := pool.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		if err := locks.Guard(ctx, tx, lease.Term()); err != nil {
			return err // Guard has rolled the transaction back
		}
		if err := book(ctx, tx, "2026-11-21", 1250); err != nil {
			return errors.Join(err, tx.Rollback())
		}
		return tx.Commit()
	}
	fmt.Println("held:", guarded())
	fmt.Println("released:", lease.Release(ctx))
	fmt.Println("afterwards:", errors.Is(guarded(), sqllock.ErrLost))
	// Output:
	// held: <nil>
	// released: <nil>
	// afterwards: true
}

// List returns the held leases with their holders.
func ExampleLocker_List() {
	ctx := context.Background()
	locks, _, end := open(ctx)
	defer end()

	all, err := locks.AcquireAll(ctx, []string{"order/2", "order/1"})
	if err != nil {
		log.Print(err)
		return
	}
	defer func() { _ = all.Release(ctx) }()
	for info, err := range locks.List(ctx, sqllock.ListOptions{Prefix: "order/"}) {
		if err != nil {
			log.Print(err)
			return
		}
		fmt.Println(info.Key, "is held by", info.Holder)
	}
	// Output:
	// order/1 is held by worker 1
	// order/2 is held by worker 1
}

// A dashboard follows a lock. A watch reads again when the loop's body returns.
func ExampleLocker_Watch() {
	ctx := context.Background()
	locks, _, end := open(ctx)
	defer end()

	var lease *sqllock.Lease
	for event, err := range locks.Watch(ctx, "settlement") {
		if err != nil {
			log.Print(err)
			return
		}
		fmt.Println(event.Kind, event.Held)
		switch event.Kind {
		case sqllock.EventPresent:
			if lease, err = locks.Acquire(ctx, event.Key); err != nil {
				log.Print(err)
				return
			}
		case sqllock.EventGranted:
			_ = lease.Release(ctx)
		case sqllock.EventReleased:
			return
		}
	}
	// Output:
	// present false
	// granted true
	// released false
}

// An operator takes a lock away. The reason is recorded.
func ExampleLocker_ForceRelease() {
	ctx := context.Background()
	locks, _, end := open(ctx)
	defer end()

	lease, err := locks.Acquire(ctx, "settlement")
	if err != nil {
		log.Print(err)
		return
	}
	had, err := locks.ForceRelease(ctx, "settlement", lease.Token(), holdfast.Actor{By: "ana", Reason: "its host is gone"})
	fmt.Println("taken away:", had, err)
	info, _, err := locks.Inspect(ctx, "settlement")
	fmt.Println("held:", info.Held, "reason:", info.Forced.Reason, err)
	fmt.Println("the holder's release:", errors.Is(lease.Release(ctx), sqllock.ErrLost))
	// Output:
	// taken away: true <nil>
	// held: false reason: its host is gone <nil>
	// the holder's release: true
}
