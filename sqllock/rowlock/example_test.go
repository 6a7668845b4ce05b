package rowlock_test

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
	"github.com/holdfast-go/holdfast/sqllock/rowlock"
)

// Only one process settles a day at a time. The day has no row in a table of the program.
func ExampleLocker_LockTx() {
	ctx := context.Background()
	db, remove := openLedger(ctx)
	defer remove()

	locks, err := rowlock.New(ctx, db)
	if err != nil {
		log.Print(err)
		return
	}
	settle := func(wait time.Duration, meanwhile func()) error {
		return db.InTx(ctx, func(ctx context.Context, tx *sql.Tx) error {
			if err := locks.LockTx(ctx, tx, "settlement/2026-11-21", wait); err != nil { // first in the transaction
				return err
			}
			meanwhile()
			_, err := tx.ExecContext(ctx, `UPDATE accounts SET cents = cents - 1 WHERE no = 'a'`)
			return err
		})
	}
	err = settle(holdfast.Forever, func() {
		err := settle(holdfast.NoWait, func() {})
		fmt.Println("a second one, meanwhile:", errors.Is(err, rowlock.ErrLockNotAvailable))
	})
	fmt.Println("the first one:", err)
	fmt.Println("later:", settle(time.Second, func() {}))
	// Output:
	// a second one, meanwhile: true
	// the first one: <nil>
	// later: <nil>
}

// LockTx locks two accounts in the order of their keys, regardless of the order of the
// arguments.
func ExampleTable_LockTx() {
	type Account struct {
		No    string `db:"no"`
		Cents int64  `db:"cents"`
	}
	ctx := context.Background()
	db, remove := openLedger(ctx)
	defer remove()

	accounts, err := rowlock.NewTable[Account](ctx, db, holdfast.TableSpec{Table: "accounts", Key: []string{"no"}})
	if err != nil {
		log.Print(err)
		return
	}
	err = db.InTx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		rows, err := accounts.LockTx(ctx, tx, holdfast.Forever, Account{No: "b"}, Account{No: "a"})
		if err != nil {
			return err
		}
		fmt.Println(rows)
		_, err = tx.ExecContext(ctx, `UPDATE accounts SET cents = cents + CASE no WHEN 'a' THEN 10 ELSE -10 END`)
		return err
	})
	fmt.Println(err)
	// Output:
	// [{b 50} {a 100}]
	// <nil>
}

// Workers share the lines of a settlement file. Each worker runs this until no line is left.
// When a worker dies, its lines are free again.
func ExampleTable_NextTx() {
	type Line struct {
		File  string `db:"file"`
		No    int64  `db:"line"`
		State string `db:"state"`
		Cents int64  `db:"cents"`
	}
	ctx := context.Background()
	db, remove := openLedger(ctx)
	defer remove()

	lines, err := rowlock.NewTable[Line](ctx, db, holdfast.TableSpec{Table: "lines", Key: []string{"file", "line"}})
	if err != nil {
		log.Print(err)
		return
	}
	batch := func() (n int, err error) {
		err = db.InTx(ctx, func(ctx context.Context, tx *sql.Tx) error {
			work, err := lines.NextTx(ctx, tx, 2, holdfast.Where("file", "=", "2026-11-21"), holdfast.Where("state", "=", "new"))
			if err != nil {
				return err
			}
			n = len(work)
			for _, l := range work {
				fmt.Println("settled:", l.No, l.Cents)
				if _, err := tx.ExecContext(ctx, `UPDATE lines SET state = 'settled' WHERE file = ? AND line = ?`, l.File, l.No); err != nil {
					return err
				}
			}
			return nil
		})
		return n, err
	}
	for n := 1; n > 0; {
		if n, err = batch(); err != nil {
			log.Print(err)
			return
		}
	}
	// Output:
	// settled: 1 100
	// settled: 3 300
	// settled: 4 400
}

func openLedger(ctx context.Context) (*holdfast.DB[*sql.Tx], func()) {
	dir, err := os.MkdirTemp("", "ledger")
	if err != nil {
		log.Fatal(err)
	}
	pool, err := sql.Open("sqlite", filepath.Join(dir, "ledger.db")+"?_pragma=journal_mode(WAL)&_pragma=busy_timeout(5000)")
	if err != nil {
		log.Fatal(err)
	}
	if err := migrations.Up(ctx, pool); err != nil {
		log.Fatal(err)
	}
	for _, q := range []string{
		`CREATE TABLE accounts (no TEXT NOT NULL PRIMARY KEY, cents BIGINT NOT NULL)`,
		`INSERT INTO accounts VALUES ('a', 100), ('b', 50)`,
		`CREATE TABLE lines (file TEXT NOT NULL, line BIGINT NOT NULL, state TEXT NOT NULL, cents BIGINT NOT NULL, PRIMARY KEY (file, line))`,
		`CREATE INDEX lines_work ON lines (file, state, line)`,
		`INSERT INTO lines VALUES ('2026-11-21', 1, 'new', 100), ('2026-11-21', 2, 'settled', 200), ('2026-11-21', 3, 'new', 300), ('2026-11-21', 4, 'new', 400)`,
	} {
		if _, err := pool.ExecContext(ctx, q); err != nil {
			log.Fatal(err)
		}
	}
	db, err := holdfastsql.Open(ctx, pool, holdfast.Options{SingleOwner: true})
	if err != nil {
		log.Fatal(err)
	}
	return db, func() {
		_ = pool.Close()
		_ = os.RemoveAll(dir)
	}
}

// Hold locks a key for as long as a connection lives. SQLite refuses it, because Hold would
// keep the only write lock.
func ExampleLocker_Hold() {
	ctx := context.Background()
	db, remove := openLedger(ctx)
	defer remove()

	locks, err := rowlock.New(ctx, db)
	if err != nil {
		log.Print(err)
		return
	}
	lock, err := locks.Hold(ctx, "nightly-report", holdfast.NoWait)
	switch {
	case errors.Is(err, rowlock.ErrLockNotAvailable):
		fmt.Println("another process writes the report")
	case errors.Is(err, holdfast.ErrUnsupported):
		fmt.Println("not on this engine: use a lease")
	case err != nil:
		log.Print(err)
	default:
		// ... write the report under lock.Context()
		fmt.Println("released:", lock.Release(ctx))
	}
	// Output: not on this engine: use a lease
}
