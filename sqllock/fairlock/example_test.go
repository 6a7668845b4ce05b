package fairlock_test

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
	"github.com/holdfast-go/holdfast/sqllock/fairlock"
)

// open returns a Locker on a new SQLite database, and a function that closes both.
func open(ctx context.Context) (locks *sqllock.Locker[*sql.Tx], end func()) {
	dir, err := os.MkdirTemp("", "fairlock")
	if err != nil {
		log.Fatal(err)
	}
	pool, err := sql.Open("sqlite", filepath.Join(dir, "db")+"?_pragma=busy_timeout(5000)&_pragma=journal_mode(WAL)")
	if err != nil {
		log.Fatal(err)
	}
	if err := migrations.Up(ctx, pool); err != nil {
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
	return locks, func() {
		_ = locks.Close(ctx)
		_ = pool.Close()
		_ = os.RemoveAll(dir)
	}
}

// Locks are granted in the order of the requests.
func ExampleLocker_Do() {
	ctx := context.Background()
	locks, end := open(ctx)
	defer end()

	fair := fairlock.New(locks)
	err := fair.Do(ctx, "settlement", func(context.Context, *sqllock.Lease) error {
		queue, err := fair.Queue(ctx, "settlement")
		if err == nil {
			fmt.Println("held by", queue.Tickets[0].Holder)
		}
		return err
	})
	fmt.Println("done:", err)
	// Output:
	// held by worker 1
	// done: <nil>
}

// Readers share the lock, and a writer waits for them.
func ExampleLocker_AcquireShared() {
	ctx := context.Background()
	locks, end := open(ctx)
	defer end()

	fair := fairlock.New(locks)
	one, err := fair.AcquireShared(ctx, "prices")
	if err != nil {
		log.Print(err)
		return
	}
	defer func() { _ = one.Release(ctx) }()
	two, err := fair.AcquireShared(ctx, "prices")
	if err != nil {
		log.Print(err)
		return
	}
	defer func() { _ = two.Release(ctx) }()
	_, err = fair.TryAcquire(ctx, "prices")
	fmt.Println("a writer:", errors.Is(err, sqllock.ErrHeld))
	// Output:
	// a writer: true
}

// At most three calls of a provider run at once, over all processes.
func ExampleLocker_Semaphore() {
	ctx := context.Background()
	locks, end := open(ctx)
	defer end()

	calls, err := fairlock.New(locks).Semaphore("provider", 3)
	if err != nil {
		log.Print(err)
		return
	}
	two, err := calls.Acquire(ctx, 2)
	if err != nil {
		log.Print(err)
		return
	}
	_, err = calls.TryAcquire(ctx, 2)
	fmt.Println("two more:", errors.Is(err, sqllock.ErrHeld))
	fmt.Println("released:", two.Release(ctx))
	fmt.Println("all three:", calls.Do(ctx, 3, func(context.Context, *sqllock.Lease) error { return nil }))
	// Output:
	// two more: true
	// released: <nil>
	// all three: <nil>
}
