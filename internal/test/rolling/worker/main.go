// Command worker does a bit of everything on a database that other workers share, which may be of another version of
// Holdfast, until it is killed. So it uses the public API alone, and what it writes is judged with SQL: see package
// rolling. It prints a line for each call, and for each error that no healthy version has.
package main

import (
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"log"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	_ "github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib"
	_ "modernc.org/sqlite"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/adapters/holdfastsql"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/idempotency/staged"
	"github.com/holdfast-go/holdfast/limits"
	"github.com/holdfast-go/holdfast/optimistic"
	"github.com/holdfast-go/holdfast/reaper"
	"github.com/holdfast-go/holdfast/sqllock"
	"github.com/holdfast-go/holdfast/sqllock/fairlock"
)

// owner has everything that the workers do.
const owner = "shop"

// worker is one process.
type worker struct {
	name   string
	pool   *sql.DB
	bind   func(query string) string
	db     *holdfast.DB[*sql.Tx]
	store  *idempotency.Store[*sql.Tx]
	locks  *sqllock.Locker[*sql.Tx]
	fair   *fairlock.Locker[*sql.Tx]
	limits *limits.Limits[*sql.Tx]
	rows   *optimistic.Table[account, *sql.Tx]
	pay    *staged.Runner[string, string, *sql.Tx]
	reaper *reaper.Reaper
}

// account is a row with a version.
type account struct {
	ID      int64 `db:"id"`
	Count   int64 `db:"n"`
	Version int64 `db:"version"`
}

func main() {
	log.SetFlags(0)
	driver, dsn, name := flag.String("driver", "", "of database/sql"), flag.String("dsn", "", "in the driver's form"), flag.String("name", "", "of this process")
	once := flag.Bool("finish", false, "complete what others began, and end")
	flag.Parse()
	ctx := context.Background()
	w, err := open(ctx, *driver, *dsn, *name)
	if err != nil {
		log.Fatalf("error open: %v", err)
	}
	if *once {
		if err := w.finish(ctx); err != nil {
			log.Fatalf("error finish: %v", err)
		}
		return
	}
	fmt.Println("ready")
	var all sync.WaitGroup
	for what, call := range map[string]func(ctx context.Context, n int64) error{
		"do": w.refund, "dotx": w.book, "guard": w.guarded, "fair": w.fairly, "limit": w.limit, "version": w.version, "staged": w.staged, "reap": w.reap,
	} {
		all.Go(func() {
			for {
				n := time.Now().UnixMilli()/200 + rand.Int64N(4) // others choose the same
				bounded, cancel := context.WithTimeout(ctx, 10*time.Second)
				err := call(bounded, n)
				cancel()
				if err != nil && !expected(err) {
					fmt.Printf("error %s: %s\n", what, strings.ReplaceAll(err.Error(), "\n", " "))
				} else if err == nil {
					fmt.Println("did", what)
				}
			}
		})
	}
	all.Wait()
}

// expected are the errors of a call that met another one.
func expected(err error) bool {
	for _, e := range []error{
		context.DeadlineExceeded, idempotency.ErrInProgress, idempotency.ErrUnknown, holdfast.ErrRetry, sqllock.ErrHeld, sqllock.ErrLost,
		limits.ErrExceeded, optimistic.ErrConflict, staged.ErrStale,
	} {
		if errors.Is(err, e) {
			return true
		}
	}
	var rejected *idempotency.Rejection
	return errors.As(err, &rejected)
}

func open(ctx context.Context, driver, dsn, name string) (w *worker, err error) {
	w = &worker{name: name, bind: func(query string) string { return query }}
	if driver == "pgx" {
		w.bind = numbered
	}
	if w.pool, err = sql.Open(driver, dsn); err != nil {
		return nil, err
	}
	w.pool.SetMaxOpenConns(12)
	if w.db, err = holdfastsql.Open(ctx, w.pool, holdfast.Options{}); err != nil {
		return nil, err
	}
	if w.store, err = idempotency.New(ctx, w.db); err != nil {
		return nil, err
	}
	all, err := sqllock.New(ctx, w.db, sqllock.Options{TTL: time.Second})
	if err != nil {
		return nil, err
	}
	w.locks = all.For(owner)
	w.fair = fairlock.New(w.locks)
	kinds, err := limits.New(ctx, w.db, "refunds")
	if err != nil {
		return nil, err
	}
	w.limits = kinds.For(owner)
	if w.rows, err = optimistic.New[account](ctx, w.db, holdfast.TableSpec{Table: "roll_accounts", Key: []string{"id"}}); err != nil {
		return nil, err
	}
	w.pay, err = staged.New(w.store, staged.Workflow[string, string, *sql.Tx]{
		Name: "pay", Lease: 2 * time.Second, Backoff: 10 * time.Millisecond, MaxBackoff: 100 * time.Millisecond, MaxAttempts: 1000, Run: w.steps,
	})
	if err != nil {
		return nil, err
	}
	w.reaper, err = reaper.New(ctx, w.db)
	return w, err
}

// numbered gives a query the parameters that PostgreSQL has.
func numbered(query string) string {
	for n := 1; strings.Contains(query, "?"); n++ {
		query = strings.Replace(query, "?", fmt.Sprint("$", n), 1)
	}
	return query
}

func (w *worker) exec(ctx context.Context, tx *sql.Tx, query string, args ...any) error {
	_, err := tx.ExecContext(ctx, w.bind(query), args...)
	return err
}

// effect books an operation once, and returns who did.
func (w *worker) effect(kind, key string) func(ctx context.Context, tx *sql.Tx) (string, error) {
	return func(ctx context.Context, tx *sql.Tx) (string, error) {
		return w.name, w.exec(ctx, tx, `INSERT INTO roll_effects (kind, op_key, who) VALUES (?, ?, ?)`, kind, key, w.name)
	}
}

// answered writes down what a call said.
func (w *worker) answered(ctx context.Context, kind, key, value string) error {
	_, err := w.pool.ExecContext(ctx, w.bind(`INSERT INTO roll_answers (kind, op_key, who) VALUES (?, ?, ?)`), kind, key, value)
	return err
}

func (w *worker) refund(ctx context.Context, n int64) error {
	key := fmt.Sprint("refund-", n)
	op := idempotency.Op{Owner: owner, Name: "refund", Key: key, Request: n}
	if n%5 == 0 {
		_, err := idempotency.Do(ctx, w.store, op, func(context.Context, *sql.Tx) (string, error) { return "", idempotency.Reject("no", "refused") })
		return err
	}
	res, err := idempotency.Do(ctx, w.store, op, w.effect("do", key))
	if err != nil {
		return err
	}
	return w.answered(ctx, "do", key, res.Value)
}

func (w *worker) book(ctx context.Context, n int64) error {
	key := fmt.Sprint("book-", n)
	var res idempotency.Result[string]
	err := w.db.InTx(ctx, func(ctx context.Context, tx *sql.Tx) (err error) {
		res, err = idempotency.DoTx(ctx, w.store, tx, idempotency.Op{Owner: owner, Name: "book", Key: key, Request: n}, w.effect("dotx", key))
		return err
	})
	if err != nil {
		return err
	}
	return w.answered(ctx, "dotx", key, res.Value)
}

// count is what only the holder of a lock may do: the tokens in the table rise with their ids.
func (w *worker) count(key string, lease *sqllock.Lease) func(ctx context.Context, tx *sql.Tx) error {
	return func(ctx context.Context, tx *sql.Tx) error {
		if err := w.exec(ctx, tx, `UPDATE roll_counts SET n = n + 1 WHERE lock_key = ?`, key); err != nil {
			return err
		}
		return w.exec(ctx, tx, `INSERT INTO roll_tokens (lock_key, token, who) VALUES (?, ?, ?)`, key, lease.Token(), w.name)
	}
}

func (w *worker) guarded(ctx context.Context, n int64) error {
	key := fmt.Sprint("lease-", n%2)
	return w.locks.Do(ctx, key, func(ctx context.Context, lease *sqllock.Lease) error {
		time.Sleep(time.Duration(rand.IntN(5)) * time.Millisecond)
		return w.locks.InTx(ctx, lease, w.count(key, lease))
	})
}

func (w *worker) fairly(ctx context.Context, n int64) error {
	key := fmt.Sprint("fair-", n%2)
	return w.fair.Do(ctx, key, func(ctx context.Context, lease *sqllock.Lease) error {
		return w.locks.InTx(ctx, lease, w.count(key, lease))
	})
}

func (w *worker) limit(ctx context.Context, n int64) error {
	key := fmt.Sprint("order-", n/50)
	if _, err := w.limits.Set(ctx, key, 1000); err != nil {
		return err
	}
	id := fmt.Sprint(key, "/", rand.IntN(12))
	return w.db.InTx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		taken, err := w.limits.TakeTx(ctx, tx, limits.Request{Key: key, ID: id, Amount: 150})
		if err != nil || taken.Replayed {
			return err
		}
		return w.exec(ctx, tx, `INSERT INTO roll_taken (lock_key, id, amount) VALUES (?, ?, ?)`, key, id, 150)
	})
}

func (w *worker) version(ctx context.Context, n int64) error {
	return optimistic.Retry(ctx, w.db, func(ctx context.Context, tx *sql.Tx) error {
		row, err := w.rows.GetTx(ctx, tx, account{ID: n % 2})
		if err != nil {
			return err
		}
		row.Count++
		if _, err := w.rows.UpdateTx(ctx, tx, row); err != nil {
			return err
		}
		return w.exec(ctx, tx, `INSERT INTO roll_effects (kind, op_key, who) VALUES (?, ?, ?)`, "version", fmt.Sprint("version-", n%2, "/", row.Count), w.name)
	})
}

func (w *worker) staged(ctx context.Context, n int64) error {
	key := fmt.Sprint("pay-", n/2)
	res, err := w.pay.Do(ctx, idempotency.Op{Owner: owner, Name: "pay", Key: key, Request: key}, key)
	if err != nil {
		return err
	}
	return w.answered(ctx, "staged", key, res.Value)
}

// steps pays at a provider that honours keys, and then books it.
func (w *worker) steps(ctx context.Context, r *staged.Run[*sql.Tx], key string) (string, error) {
	pay := staged.ExternalCall[string]{Step: "pay", OnLeaseEnd: staged.TakeOver}
	payment, err := staged.Call(ctx, r, pay, func(ctx context.Context, providerKey string) (string, error) {
		_, err := w.pool.ExecContext(ctx, w.bind(`INSERT INTO roll_payments (id, op_key) VALUES (?, ?)`), providerKey, key)
		if err != nil {
			var had string
			if w.pool.QueryRowContext(ctx, w.bind(`SELECT op_key FROM roll_payments WHERE id = ?`), providerKey).Scan(&had) == nil && had == key {
				return providerKey, nil // it had been paid
			}
		}
		return providerKey, err
	})
	if err != nil {
		return "", err
	}
	return staged.Local(ctx, r, "book", func(ctx context.Context, tx *sql.Tx) (string, error) {
		return payment, w.exec(ctx, tx, `INSERT INTO roll_effects (kind, op_key, who) VALUES (?, ?, ?)`, "staged", key, payment)
	})
}

func (w *worker) reap(ctx context.Context, _ int64) error {
	time.Sleep(300 * time.Millisecond)
	_, err := w.reaper.Sweep(ctx)
	return err
}

// finish completes the staged operations that others began.
func (w *worker) finish(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for quiet := 0; quiet < 5; {
		done, err := w.pay.Complete(ctx)
		if err != nil {
			return err
		}
		if quiet++; done.Found > 0 {
			quiet = 0
		}
		time.Sleep(500 * time.Millisecond) // longer than the leases of those that were killed, in all
	}
	return nil
}
