package optimistic_test

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
	"github.com/holdfast-go/holdfast/optimistic"
)

// Order is a row of a table with a version.
type Order struct {
	Number   string `db:"order_no"`
	Paid     int64  `db:"paid"`
	Refunded int64  `db:"refunded"`
	Version  int64  `db:"version"`
}

// Two clerks open the same order. The second one to save gets an error and does not overwrite
// what the first one has saved.
func Example() {
	ctx := context.Background()
	pool, remove := openShop()
	defer remove()

	db, err := holdfastsql.Open(ctx, pool, holdfast.Options{SingleOwner: true}) // your *sql.DB
	if err != nil {
		log.Print(err)
		return
	}
	orders, err := optimistic.New[Order](ctx, db, holdfast.TableSpec{
		Table: "orders", Key: []string{"order_no"},
	})
	if err != nil {
		log.Print(err)
		return
	}
	order, err := orders.Insert(ctx, Order{Number: "A-17", Paid: 5000})
	if err != nil {
		log.Print(err)
		return
	}
	first, second := order, order

	first.Refunded += 1250
	first, err = orders.Update(ctx, first)
	fmt.Println("first:", first.Refunded, "refunded, version", first.Version, err)

	second.Refunded += 700
	_, err = orders.Update(ctx, second)
	var conflict *optimistic.ConflictError
	if errors.As(err, &conflict) {
		fmt.Println("second: it has version", conflict.Found, "and I had read", conflict.Given)
	}

	err = refundMore(ctx, db, orders, "A-17", 700) // it reads and decides again, in a new transaction
	order, _ = orders.Get(ctx, order)
	fmt.Println("again:", order.Refunded, "refunded, version", order.Version, err)
	// Output:
	// first: 1250 refunded, version 2 <nil>
	// second: it has version 2 and I had read 1
	// again: 1950 refunded, version 3 <nil>
}

func refundMore(ctx context.Context, db *holdfast.DB[*sql.Tx], orders *optimistic.Table[Order, *sql.Tx], number string, cents int64) error {
	return optimistic.Retry(ctx, db, func(ctx context.Context, tx *sql.Tx) error {
		order, err := orders.GetTx(ctx, tx, Order{Number: number})
		if err != nil {
			return err
		}
		if order.Refunded += cents; order.Refunded > order.Paid {
			return errors.New("more than was paid")
		}
		_, err = orders.UpdateTx(ctx, tx, order, "refunded")
		return err
	})
}

func openShop() (pool *sql.DB, remove func()) {
	dir, err := os.MkdirTemp("", "holdfast")
	if err != nil {
		log.Fatal(err)
	}
	pool, err = sql.Open("sqlite", "file:"+filepath.Join(dir, "shop.db"))
	if err != nil {
		log.Fatal(err)
	}
	_, err = pool.ExecContext(context.Background(), `CREATE TABLE orders (order_no TEXT NOT NULL PRIMARY KEY,
		paid INTEGER NOT NULL, refunded INTEGER NOT NULL, version INTEGER NOT NULL)`)
	if err != nil {
		log.Fatal(err)
	}
	return pool, func() {
		_ = pool.Close()
		_ = os.RemoveAll(dir)
	}
}

// A script updates a row without its version, and the database refuses the update.
func ExampleTable_Enforce() {
	ctx := context.Background()
	pool, remove := openShop()
	defer remove()
	db, err := holdfastsql.Open(ctx, pool, holdfast.Options{SingleOwner: true})
	if err != nil {
		log.Print(err)
		return
	}
	orders, err := optimistic.New[Order](ctx, db, holdfast.TableSpec{
		Table: "orders", Key: []string{"order_no"},
	})
	if err != nil {
		log.Print(err)
		return
	}
	if err := orders.Enforce(ctx); err != nil {
		log.Print(err)
		return
	}
	order, err := orders.Insert(ctx, Order{Number: "A-17", Paid: 5000})
	if err != nil {
		log.Print(err)
		return
	}
	_, err = pool.ExecContext(ctx, `UPDATE orders SET refunded = 5000 WHERE order_no = 'A-17'`)
	fmt.Println("past the package, a conflict:", errors.Is(optimistic.AsConflict(db, err), optimistic.ErrConflict))

	order.Refunded = 1250
	order, err = orders.Update(ctx, order)
	fmt.Println(order.Refunded, "refunded, version", order.Version, err)
	fmt.Println("still there:", orders.CheckEnforced(ctx) == nil)
	// Output:
	// past the package, a conflict: true
	// 1250 refunded, version 2 <nil>
	// still there: true
}

// Retry runs the read-modify-write again after a conflict.
func ExampleRetry() {
	ctx := context.Background()
	pool, remove := openShop()
	defer remove()
	db, err := holdfastsql.Open(ctx, pool, holdfast.Options{SingleOwner: true})
	if err != nil {
		log.Print(err)
		return
	}
	orders, err := optimistic.New[Order](ctx, db, holdfast.TableSpec{Table: "orders", Key: []string{"order_no"}})
	if err != nil {
		log.Print(err)
		return
	}
	order, err := orders.Insert(ctx, Order{Number: "A-17", Paid: 5000})
	if err != nil {
		log.Print(err)
		return
	}
	runs := 0
	err = optimistic.Retry(ctx, db, func(ctx context.Context, tx *sql.Tx) error {
		runs++
		now := order // stale in the first run
		if runs > 1 {
			if now, err = orders.GetTx(ctx, tx, order); err != nil {
				return err
			}
		} else {
			now.Version = 7
		}
		now.Refunded += 1250
		_, err := orders.UpdateTx(ctx, tx, now)
		return err
	}, optimistic.RetryOptions{Attempts: 3})
	order, _ = orders.Get(ctx, order)
	fmt.Println(runs, "runs,", order.Refunded, "refunded, version", order.Version, err)
	// Output: 2 runs, 1250 refunded, version 2 <nil>
}
