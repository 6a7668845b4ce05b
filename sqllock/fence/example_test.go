package fence_test

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
	"github.com/holdfast-go/holdfast/sqllock/fence"
)

// A worker holds the lease of an order, and is stopped. Another one gets the lease. When the first
// one goes on, the database refuses its write, whichever language it is written in.
func Example() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "fence")
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	pool, err := sql.Open("sqlite", filepath.Join(dir, "db")+"?_pragma=busy_timeout(5000)&_pragma=journal_mode(WAL)")
	if err != nil {
		log.Print(err)
		return
	}
	defer func() { _ = pool.Close() }()
	if err := migrations.Up(ctx, pool); err != nil { // once, when you deploy
		log.Print(err)
		return
	}
	db, err := holdfastsql.Open(ctx, pool, holdfast.Options{SingleOwner: true})
	if err != nil {
		log.Print(err)
		return
	}
	locks, err := sqllock.New(ctx, db)
	if err != nil {
		log.Print(err)
		return
	}
	defer func() { _ = locks.Close(ctx) }()
	_, err = pool.ExecContext(ctx, `CREATE TABLE orders (id INTEGER NOT NULL PRIMARY KEY, state TEXT NOT NULL, fence BIGINT NOT NULL DEFAULT 0);
INSERT INTO orders (id, state) VALUES (42, 'new')`)
	if err != nil {
		log.Print(err)
		return
	}

	orders, err := fence.New(ctx, db, fence.Spec{Table: "orders", Key: "order/{id}"})
	if err != nil {
		log.Print(err)
		return
	}
	if err := orders.Enforce(ctx); err != nil {
		log.Print(err)
		return
	}
	write := func(lease *sqllock.Lease, state string) error {
		_, err := pool.ExecContext(ctx, `UPDATE orders SET state = ?, fence = ? WHERE id = 42`, state, lease.Token())
		return fence.AsLost(db, err)
	}
	first, err := locks.Acquire(ctx, "order/42")
	if err != nil {
		log.Print(err)
		return
	}
	fmt.Println("first:", write(first, "paid"))
	_ = first.Release(ctx) // or it is stopped past its lease
	second, err := locks.Acquire(ctx, "order/42")
	if err != nil {
		log.Print(err)
		return
	}
	fmt.Println("second:", write(second, "refunded"))
	fmt.Println("first is refused:", errors.Is(write(first, "shipped"), sqllock.ErrLost))
	// Output:
	// first: <nil>
	// second: <nil>
	// first is refused: true
}
