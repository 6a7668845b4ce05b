package register_test

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

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/adapters/holdfastsql"
	"github.com/holdfast-go/holdfast/migrations"
	"github.com/holdfast-go/holdfast/optimistic"
	"github.com/holdfast-go/holdfast/optimistic/register"
)

// Two programs read one setting and change it. The second change fails, because the first one
// has moved the setting to another revision.
func Example() {
	ctx := context.Background()
	_, values, remove := open(ctx)
	defer remove()

	limit, err := values.Create(ctx, "refund-limit", []byte("5000"))
	fmt.Println("created, revision", limit.Revision, err)
	_, err = values.CompareAndSwap(ctx, "refund-limit", limit.Revision, []byte("7500"))
	fmt.Println("first:", err)
	_, err = values.CompareAndSwap(ctx, "refund-limit", limit.Revision, []byte("9000"))
	var conflict *register.ConflictError
	if errors.As(err, &conflict) {
		fmt.Println("second: revision", conflict.Found, "and not", conflict.Given)
	}
	limit, err = values.Get(ctx, "refund-limit")
	fmt.Printf("%s, revision %d %v\n", limit.Value, limit.Revision, err)
	// Output:
	// created, revision 1 <nil>
	// first: <nil>
	// second: revision 2 and not 1
	// 7500, revision 2 <nil>
}

// A deletion also increments the revision, so a name that gets a new value later does not
// start at revision 1 again.
func ExampleRegister_Delete() {
	ctx := context.Background()
	_, values, remove := open(ctx)
	defer remove()

	first, err := values.Create(ctx, "cursor", []byte("42"))
	fmt.Println("created, revision", first.Revision, err)
	gone, err := values.Delete(ctx, "cursor", first.Revision)
	fmt.Println("deleted, revision", gone.Revision, err)
	_, err = values.Get(ctx, "cursor")
	fmt.Println("no value:", errors.Is(err, register.ErrNotFound))
	second, err := values.Create(ctx, "cursor", []byte("1"))
	fmt.Println("created, revision", second.Revision, err)
	// Output:
	// created, revision 1 <nil>
	// deleted, revision 2 <nil>
	// no value: true
	// created, revision 3 <nil>
}

// A cursor moves in the same transaction as the work that it counts. After a conflict, Retry
// runs the whole transaction again.
func ExampleRegister_CompareAndSwapTx() {
	ctx := context.Background()
	db, values, remove := open(ctx)
	defer remove()

	_, err := values.Create(ctx, "cursor", []byte("1"))
	if err != nil {
		log.Print(err)
		return
	}
	err = optimistic.Retry(ctx, db, func(ctx context.Context, tx *sql.Tx) error {
		cursor, err := values.GetTx(ctx, tx, "cursor")
		if err != nil {
			return err
		}
		// ... the program's own statements on tx
		_, err = values.CompareAndSwapTx(ctx, tx, "cursor", cursor.Revision, []byte("2"))
		return err
	})
	cursor, _ := values.Get(ctx, "cursor")
	fmt.Printf("%s, revision %d %v\n", cursor.Value, cursor.Revision, err)
	// Output: 2, revision 2 <nil>
}

// A program follows a setting that other programs change.
func ExampleRegister_Watch() {
	ctx := context.Background()
	_, values, remove := open(ctx)
	defer remove()

	if _, err := values.Create(ctx, "mode", []byte("open")); err != nil {
		log.Print(err)
		return
	}
	for entry, err := range values.Watch(ctx, "mode", register.WatchOptions{Interval: 10 * time.Millisecond}) {
		if err != nil {
			log.Print(err) // the next read follows; or break
			continue
		}
		fmt.Printf("%s, revision %d\n", entry.Value, entry.Revision)
		if entry.Revision == 2 {
			break
		}
		// Another program:
		if _, err := values.CompareAndSwap(ctx, "mode", entry.Revision, []byte("closed")); err != nil {
			log.Print(err)
			return
		}
	}
	// Output:
	// open, revision 1
	// closed, revision 2
}

// A program keeps its limits in memory, and follows the changes of other programs.
func ExampleRegister_WatchPrefix() {
	ctx := context.Background()
	_, values, remove := open(ctx)
	defer remove()

	for _, name := range []string{"limits/refund", "limits/payout", "mode"} {
		if _, err := values.Create(ctx, name, []byte("5000")); err != nil {
			log.Print(err)
			return
		}
	}
	known := map[string]int64{}
	for entry, err := range values.List(ctx, "limits/") {
		if err != nil {
			log.Print(err)
			return
		}
		fmt.Printf("%s is %s\n", entry.Name, entry.Value)
		known[entry.Name] = entry.Revision
	}
	// Another program:
	_, err1 := values.CompareAndSwap(ctx, "limits/payout", 1, []byte("9000"))
	_, err2 := values.Delete(ctx, "limits/refund", 1)
	if err := errors.Join(err1, err2); err != nil {
		log.Print(err)
		return
	}
	for entry, err := range values.WatchPrefix(ctx, "limits/", register.WatchPrefixOptions{Known: known, Interval: 10 * time.Millisecond}) {
		if err != nil {
			log.Print(err) // the next read follows; or break
			continue
		}
		fmt.Printf("%s became %q, revision %d\n", entry.Name, entry.Value, entry.Revision)
		if entry.Value == nil {
			break
		}
	}
	// Output:
	// limits/payout is 5000
	// limits/refund is 5000
	// limits/payout became "9000", revision 2
	// limits/refund became "", revision 2
}

func open(ctx context.Context) (*holdfast.DB[*sql.Tx], *register.Register[*sql.Tx], func()) {
	dir, err := os.MkdirTemp("", "register")
	if err != nil {
		log.Fatal(err)
	}
	pool, err := sql.Open("sqlite", "file:"+filepath.Join(dir, "app.db"))
	if err != nil {
		log.Fatal(err)
	}
	if err := migrations.Up(ctx, pool); err != nil { // once, when you deploy
		log.Fatal(err)
	}
	db, err := holdfastsql.Open(ctx, pool, holdfast.Options{SingleOwner: true})
	if err != nil {
		log.Fatal(err)
	}
	values, err := register.New(ctx, db)
	if err != nil {
		log.Fatal(err)
	}
	return db, values, func() {
		_ = pool.Close()
		_ = os.RemoveAll(dir)
	}
}
