package optimistic_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"time"

	_ "modernc.org/sqlite"

	"github.com/holdfast-go/holdfast/adapters/holdfastsql"
	"github.com/holdfast-go/holdfast/migrations"
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

// Two programs change one setting. The one that read it first writes last, and
// is told that it is another by now.
func ExampleRegister() {
	ctx := context.Background()
	pool, remove := openShop()
	defer remove()
	db, err := holdfastsql.Open(ctx, pool)
	if err != nil {
		log.Print(err)
		return
	}
	if err := migrations.Up(ctx, pool); err != nil { // once, when you deploy
		log.Print(err)
		return
	}
	register, err := optimistic.NewRegister(ctx, db)
	if err != nil {
		log.Print(err)
		return
	}

	limit, err := register.Create(ctx, "refund-limit", []byte("5000"))
	fmt.Println("created, revision", limit.Revision, err)
	_, err = register.CompareAndSwap(ctx, "refund-limit", limit.Revision, []byte("7500"))
	fmt.Println("first:", err)
	_, err = register.CompareAndSwap(ctx, "refund-limit", limit.Revision, []byte("9000"))
	fmt.Println("second, a conflict:", errors.Is(err, optimistic.ErrConflict))

	now, err := register.Get(ctx, "refund-limit")
	fmt.Printf("%s in revision %d %v\n", now.Value, now.Revision, err)
	gone, err := register.Delete(ctx, "refund-limit", now.Revision)
	fmt.Println("deleted, revision", gone.Revision, err)
	again, err := register.Create(ctx, "refund-limit", []byte("100"))
	fmt.Println("created, revision", again.Revision, err)
	// Output:
	// created, revision 1 <nil>
	// first: <nil>
	// second, a conflict: true
	// 7500 in revision 2 <nil>
	// deleted, revision 3 <nil>
	// created, revision 4 <nil>
}

// A program follows a setting that others change.
func ExampleRegister_Watch() {
	ctx := context.Background()
	pool, remove := openShop()
	defer remove()
	db, err := holdfastsql.Open(ctx, pool)
	if err != nil {
		log.Print(err)
		return
	}
	if err := migrations.Up(ctx, pool); err != nil {
		log.Print(err)
		return
	}
	register, err := optimistic.NewRegister(ctx, db)
	if err != nil {
		log.Print(err)
		return
	}
	if _, err := register.Create(ctx, "mode", []byte("open")); err != nil {
		log.Print(err)
		return
	}
	for entry, err := range register.Watch(ctx, "mode", optimistic.WatchOptions{Interval: 10 * time.Millisecond}) {
		if err != nil {
			log.Print(err) // the next read comes later; or break
			continue
		}
		fmt.Printf("%s, revision %d\n", entry.Value, entry.Revision)
		if entry.Revision == 2 {
			break
		}
		// Somebody, somewhere:
		if _, err := register.CompareAndSwap(ctx, "mode", entry.Revision, []byte("closed")); err != nil {
			log.Print(err)
			return
		}
	}
	// Output:
	// open, revision 1
	// closed, revision 2
}

// Someone's script does not know of the version. The database does.
func ExampleTable_Enforce() {
	ctx := context.Background()
	pool, remove := openShop()
	defer remove()
	db, err := holdfastsql.Open(ctx, pool)
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
