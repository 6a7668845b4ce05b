//go:build linux

package cluster_test

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/adapters/holdfastsql"
	"github.com/holdfast-go/holdfast/internal/test/conformance"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
	"github.com/holdfast-go/holdfast/sqllock"
	"github.com/holdfast-go/holdfast/sqllock/rowlock"
)

// opened is a Holdfast handle on one node.
type opened struct {
	t     *testing.T
	pool  *sql.DB
	db    *holdfast.DB[*sql.Tx]
	locks *sqllock.Locker[*sql.Tx]
}

func openOn(t *testing.T, url string, o sqllock.Options, opts ...holdfast.Options) *opened {
	t.Helper()
	pool := dbtest.OpenSQL(t, url)
	return openPool(t, pool, o, opts...)
}

func openPool(t *testing.T, pool *sql.DB, o sqllock.Options, opts ...holdfast.Options) *opened {
	t.Helper()
	db, err := holdfastsql.Open(t.Context(), pool, conformance.Single(opts))
	if err != nil {
		t.Fatal(err)
	}
	locks, err := sqllock.New(t.Context(), db, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = locks.Close(context.WithoutCancel(t.Context())) })
	return &opened{t, pool, db, locks}
}

func (o *opened) begin() *sql.Tx {
	o.t.Helper()
	tx, err := o.pool.BeginTx(o.t.Context(), nil)
	if err != nil {
		o.t.Fatal(err)
	}
	return tx
}

func (o *opened) must(q interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}, query string, args ...any,
) {
	o.t.Helper()
	if _, err := q.ExecContext(o.t.Context(), query, args...); err != nil {
		o.t.Fatalf("%s: %v", query, err)
	}
}

func (o *opened) number(query string, args ...any) (n int) {
	o.t.Helper()
	if err := o.pool.QueryRowContext(o.t.Context(), query, args...).Scan(&n); err != nil {
		o.t.Fatalf("%s: %v", query, err)
	}
	return n
}

// rowLocksOnTwo lets two nodes lock the same row; both refunds commit. Holdfast refuses such
// locks unless there is a single writer.
func rowLocksOnTwo(t *testing.T, urls []string) {
	a, b := openOn(t, urls[0], sqllock.Options{}), openOn(t, urls[1], sqllock.Options{})
	var txs []*sql.Tx
	for _, o := range []*opened{a, b} {
		tx := o.begin()
		var no int
		if err := tx.QueryRowContext(t.Context(), `SELECT order_no FROM orders WHERE order_no = 1 FOR UPDATE NOWAIT`).Scan(&no); err != nil {
			t.Fatalf("the naive lock waits for another node: %v", err)
		}
		txs = append(txs, tx)
	}
	for i, tx := range txs {
		a.must(tx, `INSERT INTO effects (id, refund_no, order_no, cents) VALUES (?, 900001, 1, 0)`, "row lock "+string(rune('a'+i)))
		if err := tx.Commit(); err != nil {
			t.Fatalf("the naive lock is noticed: %v", err)
		}
	}
	if n := a.number(`SELECT COUNT(*) FROM effects WHERE refund_no = 900001`); n != 2 {
		t.Errorf("the naive form has %d effects, want 2: is this a cluster?", n)
	}

	if !a.db.Capabilities().MultiPrimary {
		t.Error("the capability does not say that there are several primaries")
	}
	tx := a.begin()
	defer tx.Rollback()
	_, table := rowlock.NewTable[refundRow](t.Context(), a.db, holdfast.TableSpec{Table: "refunds", Key: []string{"refund_no"}})
	rows, err := rowlock.New(t.Context(), a.db)
	if err != nil {
		t.Fatal(err)
	}
	_, held := rows.Hold(t.Context(), "k", holdfast.NoWait)
	for what, err := range map[string]error{"LockTx": rows.LockTx(t.Context(), tx, "k", holdfast.NoWait), "NewTable": table, "Hold": held} {
		if !errors.Is(err, holdfast.ErrUnsupported) || !strings.Contains(err.Error(), "SingleWriter") {
			t.Errorf("%s: %v", what, err)
		}
	}
	a.must(tx, `UPDATE orders SET refunded = refunded WHERE order_no = 1`) // the transaction continues

	one := openOn(t, urls[0], sqllock.Options{}, holdfast.Options{SingleWriter: true})
	inOne := one.begin()
	defer inOne.Rollback()
	alone, err := rowlock.New(t.Context(), one.db)
	if err != nil {
		t.Fatal(err)
	}
	if err := alone.LockTx(t.Context(), inOne, "k", holdfast.NoWait); err != nil || one.db.Capabilities().MultiPrimary {
		t.Errorf("with a single writer: %v", err)
	}
}

// guardOnTwo commits a takeover on one node. Before it reaches the other node, the former
// holder's transaction commits there. A lock on the row does not prevent that; a guard, which
// writes the row, does.
func guardOnTwo(t *testing.T, urls []string) {
	a, b := openOn(t, urls[0], sqllock.Options{}), openOn(t, urls[1], sqllock.Options{})
	bulk(a)
	const rounds = 10
	behind := func(guard func(tx *sql.Tx, term sqllock.Term) error) (n int) {
		for range rounds {
			lease, err := b.locks.Acquire(t.Context(), "guarded")
			if err != nil {
				t.Fatal(err)
			}
			tx := b.begin()
			if err := guard(tx, lease.Term()); err != nil {
				t.Fatal(err)
			}
			b.must(tx, `UPDATE orders SET refunded = refunded + 1 WHERE order_no = 4`)
			// The other node must apply this before the takeover.
			a.must(a.pool, `UPDATE bulk SET n = n + 1`)
			if had, err := a.locks.ForceRelease(t.Context(), "guarded", 0, holdfast.Actor{By: "test", Reason: "a stale holder"}); err != nil || !had {
				t.Fatal(had, err)
			}
			next, err := a.locks.Acquire(t.Context(), "guarded")
			if err != nil {
				t.Fatal(err)
			}
			err = tx.Commit()
			switch {
			case err == nil:
				n++
			case !b.db.Retryable(err) || b.db.CommitOutcome(err) != holdfast.NotDone:
				t.Errorf("a guarded commit that was refused: %v", err)
			}
			_ = next.Release(t.Context())
			_ = lease.Release(t.Context())
		}
		return n
	}
	// Whether the takeover arrives before the commit is luck, so the control goes on until it did not.
	naive := 0
	for end := time.Now().Add(dbtest.Hang); naive == 0 && time.Now().Before(end); {
		naive = behind(func(tx *sql.Tx, term sqllock.Term) error {
			var n int
			return tx.QueryRowContext(t.Context(), `SELECT COUNT(*) FROM holdfast_locks WHERE token = ? LOCK IN SHARE MODE`, term.Token()).Scan(&n)
		})
	}
	mine := behind(func(tx *sql.Tx, term sqllock.Term) error { return b.locks.Guard(t.Context(), tx, term) })
	t.Logf("commits behind a later grant, of the last %d: %d with a lock on the row, %d with Guard", rounds, naive, mine)
	if naive == 0 {
		t.Error("the naive guard, a lock on the row, was never passed by a stale holder")
	}
	if mine > 0 {
		t.Errorf("%d guarded transactions were committed behind a later grant", mine)
	}
}

// bulk makes a table whose update takes the other nodes a while to apply.
func bulk(o *opened) {
	o.t.Helper()
	o.must(o.pool, `CREATE TABLE bulk (id INTEGER NOT NULL PRIMARY KEY, n INTEGER NOT NULL)`)
	o.must(o.pool, `INSERT INTO bulk SELECT a.order_no * 200 + b.order_no * 2 + c.n, 0 FROM orders a JOIN orders b JOIN (SELECT 0 AS n UNION SELECT 1) c`)
}

// conflictOnTwo runs two transactions with one key on two nodes. One of them is refused at
// COMMIT, which is a definite failure, and runs again.
func conflictOnTwo(t *testing.T, urls []string) {
	a, b := openOn(t, urls[0], sqllock.Options{}), openOn(t, urls[1], sqllock.Options{})
	ta, tb := a.begin(), b.begin()
	a.must(ta, `INSERT INTO refunds (refund_no, order_no) VALUES (930000, 1)`)
	b.must(tb, `INSERT INTO refunds (refund_no, order_no) VALUES (930000, 1)`)
	if err := ta.Commit(); err != nil {
		t.Fatal(err)
	}
	err := tb.Commit()
	if err == nil || !b.db.Retryable(err) || b.db.CommitOutcome(err) != holdfast.NotDone {
		t.Errorf("the second COMMIT: %v, retryable %v, %v", err, b.db.Retryable(err), b.db.CommitOutcome(err))
	}

	// The same with InTx: its function runs twice and has one effect.
	runs := 0
	err = b.db.InTx(t.Context(), func(ctx context.Context, tx *sql.Tx) error {
		runs++
		if _, err := tx.ExecContext(ctx, `UPDATE orders SET refunded = refunded + 1 WHERE order_no = 2`); err != nil {
			return err
		}
		if runs == 1 {
			a.must(a.pool, `UPDATE orders SET refunded = refunded + 1 WHERE order_no = 2`)
		}
		return nil
	})
	if n := b.number(`SELECT refunded FROM orders WHERE order_no = 2`); err != nil || runs != 2 || n != 2 {
		t.Errorf("%d runs, %d, %v", runs, n, err)
	}

	// An ignored error must not let the remaining statements commit.
	err = b.db.InTx(t.Context(), func(ctx context.Context, tx *sql.Tx) error {
		_, _ = tx.ExecContext(ctx, `UPDATE orders SET refunded = refunded + 1 WHERE order_no = 3`)
		a.must(a.pool, `UPDATE orders SET refunded = refunded + 10 WHERE order_no = 3`)
		dbtest.Eventually(t, "the other write has not arrived", func() bool { return b.number(`SELECT refunded FROM orders WHERE order_no = 3`) == 10 })
		_, _ = tx.ExecContext(ctx, `UPDATE orders SET refunded = refunded + 1 WHERE order_no = 3`)
		_, _ = tx.ExecContext(ctx, `UPDATE orders SET refunded = refunded + 1 WHERE order_no = 3`)
		return nil
	}, holdfast.TxOptions{Attempts: 1})
	if n := b.number(`SELECT refunded FROM orders WHERE order_no = 3`); err == nil || n != 10 {
		t.Errorf("after a swallowed error: %d, %v", n, err)
	}
}
