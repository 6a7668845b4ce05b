package holdfast_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/adapters/holdfastsql"
	"github.com/holdfast-go/holdfast/migrations"
)

// tempPool returns a pool on a new SQLite database.
func tempPool() (pool *sql.DB, remove func()) {
	dir, err := os.MkdirTemp("", "holdfast")
	if err != nil {
		log.Panic(err)
	}
	pool, err = sql.Open("sqlite", "file:"+filepath.Join(dir, "shop.db"))
	if err != nil {
		log.Panic(err)
	}
	return pool, func() {
		_ = pool.Close()
		_ = os.RemoveAll(dir)
	}
}

// A program opens Holdfast on its own pool, with the same options as its migrations.
func ExampleOptions() {
	ctx := context.Background()
	pool, remove := tempPool()
	defer remove()

	options := holdfast.Options{Prefix: "pay_"}
	if err := migrations.Up(ctx, pool, options); err != nil {
		log.Panic(err)
	}
	db, err := holdfastsql.Open(ctx, pool, options)
	if err != nil {
		log.Panic(err)
	}
	fmt.Println(db.Engine(), db.CheckSchema(ctx))
	// Output: sqlite <nil>
}

// InTx commits when the function returns nil. When the function returns an error, InTx rolls
// back and returns that error.
func ExampleDB_InTx() {
	ctx := context.Background()
	pool, remove := tempPool()
	defer remove()
	db, err := holdfastsql.Open(ctx, pool, holdfast.Options{SingleOwner: true})
	if err != nil {
		log.Panic(err)
	}
	if _, err := pool.ExecContext(ctx, `CREATE TABLE orders (no TEXT PRIMARY KEY, cents INTEGER)`); err != nil {
		log.Panic(err)
	}

	errTooMuch := errors.New("more than the limit")
	order := func(no string, cents int) error {
		return db.InTx(ctx, func(ctx context.Context, tx *sql.Tx) error {
			if _, err := tx.ExecContext(ctx, `INSERT INTO orders VALUES (?, ?)`, no, cents); err != nil {
				return err
			}
			if cents > 10_000 {
				return errTooMuch
			}
			return nil
		})
	}
	fmt.Println(order("1", 5_000))
	fmt.Println(order("2", 50_000))
	var n int
	err = pool.QueryRowContext(ctx, `SELECT COUNT(*) FROM orders`).Scan(&n)
	fmt.Println(n, err)
	// Output:
	// <nil>
	// more than the limit
	// 1 <nil>
}
