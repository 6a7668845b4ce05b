package scaleout_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/adapters/holdfastsql"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/idempotency/staged"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
	"github.com/holdfast-go/holdfast/migrations"
	"github.com/holdfast-go/holdfast/sqllock"
)

// sourceVariable is the URL of a database of one MySQL server, from which owners move to each of the
// sharded keyspaces.
const sourceVariable = "HOLDFAST_TEST_VITESS_SOURCE"

const (
	moved  = 8 // owners
	orders = `CREATE TABLE IF NOT EXISTS orders (owner VARBINARY(64) NOT NULL PRIMARY KEY, refunded BIGINT NOT NULL, version BIGINT NOT NULL)`
)

// recipe are the statements of `holdfast migrate print --owner-move`, and those of the program's table.
type recipe struct {
	live, floor, raise string
	tables             map[string][]string // the read, the insert and the delete
}

const ordersTable = "orders"

func printed(t *testing.T) (r recipe) {
	t.Helper()
	var b strings.Builder
	if err := migrations.PrintOwnerMove(&b, holdfast.MySQL); err != nil {
		t.Fatal(err)
	}
	r.tables = map[string][]string{ordersTable: {
		`SELECT owner, refunded, version FROM orders WHERE owner = ?`, `INSERT INTO orders (owner, refunded, version) VALUES (?, ?, ?)`, `DELETE FROM orders WHERE owner = ?`,
	}}
	for part := range strings.SplitSeq(b.String(), "\n\n") {
		comment, text, _ := strings.Cut(part, "\n")
		about, _, _ := strings.Cut(strings.TrimPrefix(comment, "-- "), ":")
		switch texts := strings.Split(strings.TrimSuffix(strings.TrimSpace(text), ";"), ";\n"); len(texts) {
		case 1:
			r.live = texts[0]
		case 2:
			r.floor, r.raise = texts[0], texts[1]
		default:
			r.tables[about] = texts
		}
	}
	return r
}

// home is one program on one database.
type home struct {
	pool    *sql.DB
	ops     *idempotency.Store[*sql.Tx]
	locks   *sqllock.Locker[*sql.Tx]
	payouts *staged.Runner[string, string, *sql.Tx]
}

// account is one owner's traffic. Its requests share gate; the move has it alone.
type account struct {
	gate     sync.RWMutex
	at       *home
	owner    string
	answered atomic.Int64
	replayed atomic.Int64 // on the target, of what the source had executed
	payouts  atomic.Int64 // calls of the provider

	mu     sync.Mutex
	source map[string]bool // the keys that the source executed
	token  int64           // the last one
}

var errProvider = errors.New("the provider does not answer yet")

func newHome(t *testing.T, url string, accounts func(owner string) *account, paid func() bool) *home {
	t.Helper()
	h := &home{pool: dbtest.OpenSQL(t, url)}
	for range 2 {
		if err := migrations.Up(t.Context(), h.pool); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := h.pool.ExecContext(t.Context(), orders); err != nil {
		t.Fatal(err)
	}
	db, err := holdfastsql.Open(t.Context(), h.pool)
	if err == nil {
		h.ops, err = idempotency.New(t.Context(), db, idempotency.Options{Wait: patience})
	}
	if err == nil {
		h.locks, err = sqllock.New(t.Context(), db)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = h.locks.Close(context.WithoutCancel(t.Context())) })
	h.payouts, err = staged.New(h.ops, staged.Workflow[string, string, *sql.Tx]{
		Name: "payout", Backoff: time.Millisecond, MaxBackoff: time.Millisecond, MaxAttempts: 1000,
		Run: func(ctx context.Context, r *staged.Run[*sql.Tx], owner string) (string, error) {
			ref, err := staged.Call(ctx, r, staged.ExternalCall[string]{Step: "pay"}, func(_ context.Context, key string) (string, error) {
				accounts(owner).payouts.Add(1)
				return key, nil
			})
			if err == nil && !paid() {
				err = errProvider
			}
			return ref, err
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// refundOf asks once for a refund of one cent, at the database that the owner is at.
func (a *account) refundOf(ctx context.Context, key string, source *home) error {
	a.gate.RLock()
	defer a.gate.RUnlock()
	op := idempotency.Op{Owner: a.owner, Name: "refund", Key: key, Request: key}
	res, err := idempotency.Do(ctx, a.at.ops, op, func(ctx context.Context, tx *sql.Tx) (int64, error) {
		return 1, move(ctx, tx, refund{Owner: a.owner, Cents: 1})
	})
	if err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.at == source && res.Outcome == idempotency.Executed:
		a.source[key] = true
	case a.at != source && res.Outcome == idempotency.Replayed && a.source[key]:
		a.replayed.Add(1)
	}
	return nil
}

// grant takes the owner's lock, and compares its token to the one before.
func (a *account) grant(ctx context.Context, t *testing.T) error {
	a.gate.RLock()
	defer a.gate.RUnlock()
	return a.at.locks.For(a.owner).Do(ctx, "balance", func(_ context.Context, lease *sqllock.Lease) error {
		a.mu.Lock()
		defer a.mu.Unlock()
		if lease.Token() <= a.token {
			t.Errorf("%s: token %d after %d", a.owner, lease.Token(), a.token)
		}
		a.token = lease.Token()
		return nil
	})
}

// reap deletes the rows of the owner's locks on the source, as the reaper does.
func (a *account) reap(ctx context.Context) error {
	_, err := a.at.pool.ExecContext(ctx, `UPDATE holdfast_floor SET token = GREATEST(token, (SELECT COALESCE(MAX(token), 0) FROM holdfast_locks WHERE owner = ?)) WHERE id = 1`, a.owner)
	if err == nil {
		_, err = a.at.pool.ExecContext(ctx, `DELETE FROM holdfast_locks WHERE owner = ?`, a.owner)
	}
	return err
}

// moveTo is the recipe of docs/howto/scale-out.md for one owner. The caller has the gate.
func (a *account) moveTo(ctx context.Context, target *home, r recipe) error {
	source := a.at
	for live := 1; live > 0; {
		if err := source.pool.QueryRowContext(ctx, r.live, slices.Repeat([]any{a.owner}, strings.Count(r.live, "?"))...).Scan(&live); err != nil {
			return err
		}
	}
	tx, err := target.pool.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	for name, texts := range r.tables {
		if err := copyRows(ctx, source.pool, tx, texts, a.owner); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	if err := tx.Commit(); err != nil {
		return err
	}
	if err := r.raiseFloors(ctx, source.pool, target.pool); err != nil {
		return err
	}
	a.at = target
	for _, texts := range r.tables {
		if _, err := source.pool.ExecContext(ctx, texts[2], a.owner); err != nil {
			return err
		}
	}
	return nil
}

func copyRows(ctx context.Context, from *sql.DB, to *sql.Tx, texts []string, owner string) error {
	rows, err := from.QueryContext(ctx, texts[0], owner)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	columns, err := rows.Columns()
	if err != nil {
		return err
	}
	for rows.Next() {
		values := make([]any, len(columns))
		into := make([]any, len(columns))
		for i := range values {
			into[i] = &values[i]
		}
		if err := rows.Scan(into...); err != nil {
			return err
		}
		if _, err := to.ExecContext(ctx, texts[1], values...); err != nil {
			return err
		}
	}
	return rows.Err()
}

// raiseFloors raises the floor of each shard to the source's.
func (r recipe) raiseFloors(ctx context.Context, source, target *sql.DB) error {
	var floor int64
	if err := source.QueryRowContext(ctx, r.floor).Scan(&floor); err != nil {
		return err
	}
	uses, err := shardsOf(ctx, target)
	for _, use := range uses {
		err = errors.Join(err, onShard(ctx, target, use, func(conn *sql.Conn) error {
			_, err := conn.ExecContext(ctx, r.raise, floor, floor)
			return err
		}))
	}
	return err
}

// TestMove carries out the recipe while clients ask for refunds: each is asked for before the move and
// after it, and some in between.
func TestMove(t *testing.T) {
	if os.Getenv(sourceVariable) == "" {
		t.Skipf("%s is not set: make scaleout sets it", sourceVariable)
	}
	for _, url := range sharded(t) {
		t.Run(keyspaceOf(url), func(t *testing.T) { moves(t, url) })
	}
}

func moves(t *testing.T, url string) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	run, all := time.Now().UnixNano(), printed(t)
	var accounts []*account
	var answers atomic.Bool // the provider's
	of := func(owner string) *account {
		return accounts[slices.IndexFunc(accounts, func(a *account) bool { return a.owner == owner })]
	}
	source, target := newHome(t, os.Getenv(sourceVariable), of, answers.Load), newHome(t, url, of, answers.Load)
	// The source's tokens are ahead of the clock, as after a clock that was set back.
	if _, err := source.pool.ExecContext(ctx, `UPDATE holdfast_floor SET token = GREATEST(token, ?)`, (run+int64(time.Hour))/1000); err != nil {
		t.Fatal(err)
	}
	for i := range moved {
		a := &account{at: source, owner: fmt.Sprintf("moves %d of %d", i, run), source: map[string]bool{}}
		accounts = append(accounts, a)
		if _, err := source.pool.ExecContext(ctx, `INSERT INTO orders (owner, refunded, version) VALUES (?, 0, 1)`, a.owner); err != nil {
			t.Fatal(err)
		}
		if _, err := source.payouts.Do(ctx, idempotency.Op{Owner: a.owner, Key: "payout"}, a.owner); !errors.Is(err, errProvider) {
			t.Fatalf("the payout: %v", err)
		}
	}

	var wg sync.WaitGroup
	for _, a := range accounts {
		for range clients {
			wg.Go(func() {
				for n := range 2 * intents {
					key := fmt.Sprint("refund ", n%intents)
					for {
						err := a.refundOf(ctx, key, source)
						if err == nil {
							err = a.grant(ctx, t)
						}
						if err == nil {
							break
						}
						if ctx.Err() != nil || !repeatable(err) {
							t.Errorf("%s, %s: %v", a.owner, key, err)
							return
						}
					}
					a.answered.Add(1)
				}
			})
		}
	}
	for i, a := range accounts { // each at another moment of its traffic
		for a.answered.Load() < int64(i*clients*intents/moved) && ctx.Err() == nil && !t.Failed() {
			time.Sleep(time.Millisecond)
		}
		a.gate.Lock()
		var err error
		if i%2 == 0 {
			err = a.reap(ctx)
		}
		err = errors.Join(err, a.moveTo(ctx, target, all))
		a.gate.Unlock()
		if err != nil {
			t.Fatalf("%s: %v", a.owner, err)
		}
	}
	wg.Wait()

	answers.Store(true)
	executed, replayed := 0, 0
	for _, a := range accounts {
		var sum int
		if err := target.pool.QueryRowContext(ctx, `SELECT refunded FROM orders WHERE owner = ?`, a.owner).Scan(&sum); err != nil {
			t.Fatal(err)
		}
		if sum != intents {
			t.Errorf("%s: %d refunds of %d", a.owner, sum, intents)
		}
		executed += sum
		replayed += int(a.replayed.Load())
		var left int
		for table := range all.tables {
			var n int
			if err := source.pool.QueryRowContext(ctx, `SELECT COUNT(*) FROM `+table+` WHERE owner = ?`, a.owner).Scan(&n); err != nil {
				t.Fatal(err)
			}
			left += n
		}
		if left > 0 {
			t.Errorf("%s: %d rows are left", a.owner, left)
		}
		for {
			_, err := target.payouts.Do(ctx, idempotency.Op{Owner: a.owner, Key: "payout"}, a.owner)
			if err == nil {
				break
			}
			if !repeatable(err) {
				t.Fatalf("%s: the payout goes on: %v", a.owner, err)
			}
		}
		if n := a.payouts.Load(); n != 1 {
			t.Errorf("%s: the provider was called %d times", a.owner, n)
		}
	}
	if replayed == 0 {
		t.Error("nothing that the source executed was asked for at the target: this shows nothing")
	}
	t.Logf("owners moved=%d refunds=%d asked=%d replayed from the source's records=%d payouts continued=%d", moved, executed, moved*clients*2*intents, replayed, moved)
	naiveMove(ctx, t, accounts[0], source, target, all)
}

// naiveMove leaves the records behind, so that what the source executed is executed again.
func naiveMove(ctx context.Context, t *testing.T, a *account, source, target *home, all recipe) {
	t.Helper()
	a = &account{at: source, owner: a.owner + " again", source: map[string]bool{}}
	_, err := source.pool.ExecContext(ctx, `INSERT INTO orders (owner, refunded, version) VALUES (?, 0, 1)`, a.owner)
	err = errors.Join(err, a.refundOf(ctx, "key", source), a.moveTo(ctx, target, recipe{all.live, all.floor, all.raise, map[string][]string{ordersTable: all.tables[ordersTable]}}), a.refundOf(ctx, "key", source))
	var sum int
	if err == nil {
		err = target.pool.QueryRowContext(ctx, `SELECT refunded FROM orders WHERE owner = ?`, a.owner).Scan(&sum)
	}
	if err != nil || sum != 2 {
		t.Errorf("without its record a refund is made %d times, %v; twice is wanted, or the test above shows nothing", sum, err)
	}
}
