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

// Two clerks open the same order. The second to save is told, instead of
// overwriting what the first has saved.
func Example() {
	ctx := context.Background()
	pool, remove := openShop()
	defer remove()

	db, err := holdfastsql.Open(ctx, pool) // your *sql.DB
	if err != nil {
		log.Print(err)
		return
	}
	orders, err := optimistic.NewTable[Order](ctx, db, optimistic.TableSpec{
		Table: "orders", Key: []string{"order_no"}, Version: "version",
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

	// A program reads again and decides again, in a new transaction.
	err = optimistic.Retry(ctx, db, optimistic.RetryOptions{}, func(ctx context.Context, tx *sql.Tx) error {
		order, err := orders.GetTx(ctx, tx, Order{Number: "A-17"})
		if err != nil {
			return err
		}
		if order.Refunded += 700; order.Refunded > order.Paid {
			return errors.New("more than was paid")
		}
		_, err = orders.UpdateTx(ctx, tx, order, "refunded")
		return err
	})
	order, _ = orders.Get(ctx, order)
	fmt.Println("again:", order.Refunded, "refunded, version", order.Version, err)
	// Output:
	// first: 1250 refunded, version 2 <nil>
	// second: it has version 2 and I had read 1
	// again: 1950 refunded, version 3 <nil>
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
