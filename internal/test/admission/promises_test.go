package admission_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/idempotency/businessrow"
	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/test/conformance/hostile"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
	"github.com/holdfast-go/holdfast/optimistic"
	"github.com/holdfast-go/holdfast/reaper"
	"github.com/holdfast-go/holdfast/sqllock"
	"github.com/holdfast-go/holdfast/sqllock/fairlock"
)

// tables returns the SQL of the program's own tables.
func tables(e dbtest.Engine) []string {
	text := "VARBINARY(64)"
	if !innodbEngine(e) {
		text = "TEXT"
	}
	return []string{
		`CREATE TABLE effects (k ` + text + ` NOT NULL, n BIGINT NOT NULL)`,
		`CREATE TABLE refunds (refund_no ` + text + ` NOT NULL PRIMARY KEY, amount BIGINT NOT NULL)`,
		`CREATE TABLE accounts (id ` + text + ` NOT NULL PRIMARY KEY, cents BIGINT NOT NULL, version BIGINT NOT NULL)`,
		`INSERT INTO accounts VALUES ('a', 0, 1)`,
	}
}

func innodbEngine(e dbtest.Engine) bool { return e == dbtest.MySQL || e == dbtest.MariaDB }

type refund struct {
	No     string `db:"refund_no"`
	Amount int64  `db:"amount"`
}

type account struct {
	ID      string `db:"id"`
	Cents   int64  `db:"cents"`
	Version int64  `db:"version"`
}

// world is a database and two processes that use it.
type world struct {
	*testing.T
	ctx  context.Context
	db   *holdfast.DB[*sql.Tx]
	pool *sql.DB
	key  string
}

func (w *world) must(what string, err error) {
	w.Helper()
	if err != nil {
		w.Fatalf("%s: %v", what, err)
	}
}

func (w *world) exec(ctx context.Context, tx *sql.Tx, query string, args ...any) error {
	_, err := tx.ExecContext(ctx, core.Compile("", query, w.db.Engine() != holdfast.PostgreSQL).Text, args...)
	return err
}

func (w *world) count(query string) int {
	w.Helper()
	return count(w.T, w.pool, query)
}

// promises checks G1 to G5, G7 and G8, each in a short form.
func promises(t *testing.T, pool *sql.DB, db *holdfast.DB[*sql.Tx]) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	w := &world{t, ctx, db, pool, hostile.Key}
	w.leases()
	w.records()
	w.businessRows()
	w.versions()
	_, err := reaper.New(ctx, db)
	w.must("reaper", err)
}

// leases checks for one holder, increasing tokens, and a guard that detects a stale term.
func (w *world) leases() {
	one, err := sqllock.New(w.ctx, w.db, sqllock.Options{TTL: time.Minute})
	w.must("open", err)
	defer func() { _ = one.Close(w.ctx) }()
	two, err := sqllock.New(w.ctx, w.db, sqllock.Options{TTL: time.Minute})
	w.must("open", err)
	defer func() { _ = two.Close(w.ctx) }()
	var last int64
	var old sqllock.Term
	for range 2 {
		lease, err := one.Acquire(w.ctx, w.key)
		w.must("acquire", err)
		if lease.Token() <= last {
			w.Errorf("token %d after %d", lease.Token(), last)
		}
		if _, err := two.TryAcquire(w.ctx, w.key); !errors.Is(err, sqllock.ErrHeld) {
			w.Errorf("a second holder: %v", err)
		}
		err = w.db.InTx(w.ctx, func(ctx context.Context, tx *sql.Tx) error { return one.Guard(ctx, tx, lease.Term()) })
		w.must("guard", err)
		last, old = lease.Token(), lease.Term()
		w.must("release", lease.Release(w.ctx))
	}
	err = w.db.InTx(w.ctx, func(ctx context.Context, tx *sql.Tx) error { return one.Guard(ctx, tx, old) })
	if !errors.Is(err, sqllock.ErrLost) {
		w.Errorf("a stale term passed: %v", err)
	}
	shared, err := fairlock.New(one).AcquireShared(w.ctx, w.key)
	w.must("share", err)
	if _, err := fairlock.New(two).TryAcquire(w.ctx, w.key); err == nil {
		w.Error("alone beside another one")
	}
	w.must("release", shared.Release(w.ctx))
	lease, err := one.Acquire(w.ctx, w.key)
	w.must("acquire", err)
	_, err = two.ForceRelease(w.ctx, w.key, 0, holdfast.Actor{By: "test", Reason: `a "reason" \`})
	w.must("force", err)
	_ = lease.Release(w.ctx)
}

// records checks that duplicates from two processes have one effect, and that similar keys have
// separate effects.
func (w *world) records() {
	var stores []*idempotency.Store[*sql.Tx]
	for range 2 {
		s, err := idempotency.New(w.ctx, w.db)
		w.must("store", err)
		stores = append(stores, s)
	}
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			key := fmt.Sprint(w.key, i/4)
			_, err := idempotency.Do(w.ctx, stores[i%2], idempotency.Op{Name: "refund", Key: key, NoFingerprint: true}, func(ctx context.Context, tx *sql.Tx) (string, error) {
				return "done", w.exec(ctx, tx, `INSERT INTO effects (k, n) VALUES ('record', $1)`, i/4)
			})
			if err != nil {
				w.Errorf("do: %v", err)
			}
		})
	}
	wg.Wait()
	if n := w.count(`SELECT COUNT(*) FROM effects WHERE k = 'record'`); n != 2 {
		w.Errorf("two keys had %d effects", n)
	}
	_, err := idempotency.Do(w.ctx, stores[0], idempotency.Op{Name: "refund", Key: w.key + "no", NoFingerprint: true}, func(ctx context.Context, tx *sql.Tx) (string, error) {
		w.must("effect", w.exec(ctx, tx, `INSERT INTO effects (k, n) VALUES ('rejected', $1)`, 1))
		return "", idempotency.Reject("no", "not today")
	})
	var no *idempotency.Rejection
	if !errors.As(err, &no) || w.count(`SELECT COUNT(*) FROM effects WHERE k = 'rejected'`) != 0 {
		w.Errorf("a rejection has an effect: %v", err)
	}
}

func (w *world) businessRows() {
	table, err := businessrow.New[refund](w.ctx, w.db, holdfast.TableSpec{Table: "refunds", Key: []string{"refund_no"}}, businessrow.Options{Compare: []string{"amount"}})
	w.must("table", err)
	for _, want := range []idempotency.Outcome{idempotency.Executed, idempotency.Replayed} {
		r, err := table.Do(w.ctx, refund{"R-1", 5}, func(ctx context.Context, tx *sql.Tx) error {
			return w.exec(ctx, tx, `INSERT INTO effects (k, n) VALUES ('row', $1)`, 1)
		})
		if err != nil || r.Outcome != want {
			w.Errorf("business row: %v, %v", r.Outcome, err)
		}
	}
	if n := w.count(`SELECT COUNT(*) FROM effects WHERE k = 'row'`); n != 1 {
		w.Errorf("a row had %d effects", n)
	}
}

// versions checks that the increments of several writers are all present.
func (w *world) versions() {
	table, err := optimistic.New[account](w.ctx, w.db, holdfast.TableSpec{Table: "accounts", Key: []string{"id"}})
	w.must("table", err)
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			err := optimistic.Retry(w.ctx, w.db, func(ctx context.Context, tx *sql.Tx) error {
				row, err := table.GetTx(ctx, tx, account{ID: "a"})
				if err != nil {
					return err
				}
				row.Cents++
				_, err = table.UpdateTx(ctx, tx, row)
				return err
			}, optimistic.RetryOptions{Attempts: 100})
			if err != nil {
				w.Errorf("update: %v", err)
			}
		})
	}
	wg.Wait()
	if n := w.count(`SELECT cents FROM accounts`); n != 3 {
		w.Errorf("three increments made %d", n)
	}
}
