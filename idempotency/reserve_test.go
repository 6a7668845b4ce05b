package idempotency

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/adapters/holdfastsql"
	"github.com/holdfast-go/holdfast/internal/dialect"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
	"github.com/holdfast-go/holdfast/migrations"
)

// reserving opens a database whose engine can reserve a key, with two stores of one process each.
func reserving(t *testing.T, f func(t *testing.T, pool *sql.DB, stores [2]*Store[*sql.Tx])) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, e dbtest.Engine) {
		pool := dbtest.OpenSQL(t, dbtest.DSN(t, e))
		if err := migrations.Up(t.Context(), pool); err != nil {
			t.Fatal(err)
		}
		db, err := holdfastsql.Open(t.Context(), pool, holdfast.Options{SingleOwner: true})
		if err != nil {
			t.Fatal(err)
		}
		var stores [2]*Store[*sql.Tx]
		for i := range stores {
			if stores[i], err = New(t.Context(), db); err != nil {
				t.Fatal(err)
			}
		}
		if l, is := stores[0].protocol.(*lockFirst[*sql.Tx]); !is || l.before.Text == "" {
			return
		}
		if _, err := pool.ExecContext(t.Context(), `CREATE TABLE effects (k VARCHAR(40))`); err != nil {
			t.Fatal(err)
		}
		f(t, pool, stores)
	})
}

func effect(ctx context.Context, tx *sql.Tx, key string) error {
	_, err := tx.ExecContext(ctx, `INSERT INTO effects VALUES ('`+key+`')`)
	return err
}

// TestReserveBeforeCommit lets a call take its snapshot before another call commits, and the lock after
// that. Its function then runs in vain, and its answer has to be the other's, regardless of what it returns.
func TestReserveBeforeCommit(t *testing.T) {
	reserving(t, func(t *testing.T, pool *sql.DB, stores [2]*Store[*sql.Tx]) {
		const gate = `pg_catalog.pg_advisory_xact_lock(4242)`
		first, late := stores[0], stores[1]
		late.sql.claim = late.dialect().Claim("late", func(text string) string {
			if text != late.dialect().Records.Reserve {
				return text
			}
			if !strings.Contains(text, "$2::text, true) IS NULL") {
				t.Error("the gate has no place")
			}
			return strings.NewReplacer("{records}", late.access.Table("records"), "{lockspace}", dialect.Lockspace(late.access.Table("records")),
				"$2::text, true) IS NULL", "$2::text, true) || "+gate+"::text IS NULL").Replace(text)
		})
		late.protocol.(*lockFirst[*sql.Tx]).wait = late.sql.claim.Reserve(nil, late.options.LockTimeout, late.options.LockTimeout)
		for key, fails := range map[string]error{"succeeds": nil, "fails": errors.New("refunded already"), "rejects": Reject("refunded", "by the other call")} {
			op := Op{Name: "refund", Key: key, Request: key}
			guard, err := pool.BeginTx(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = guard.Rollback() })
			if _, err := guard.ExecContext(t.Context(), `SELECT `+gate); err != nil {
				t.Fatal(err)
			}
			inside, commit, answers := make(chan struct{}), make(chan struct{}), make(chan error, 1)
			go func() {
				_, err := Do(t.Context(), first, op, func(ctx context.Context, tx *sql.Tx) (string, error) {
					close(inside)
					<-commit
					return "first", effect(ctx, tx, key)
				})
				answers <- err
			}()
			<-inside
			ran := false
			var res Result[string]
			replayed := make(chan error, 1)
			go func() {
				var err error
				res, err = Do(t.Context(), late, op, func(ctx context.Context, tx *sql.Tx) (string, error) {
					ran = true
					return "late", errors.Join(effect(ctx, tx, key), fails)
				})
				replayed <- err
			}()
			dbtest.Eventually(t, "the late call has its snapshot", func() bool {
				var n int
				if err := pool.QueryRowContext(t.Context(), `SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objid = 4242 AND NOT granted`).Scan(&n); err != nil {
					t.Fatal(err)
				}
				return n == 1
			})
			close(commit)
			if err := <-answers; err != nil {
				t.Fatal(err)
			}
			if err := guard.Rollback(); err != nil {
				t.Fatal(err)
			}
			if err := <-replayed; err != nil || res.Outcome != Replayed || res.Value != "first" || !ran {
				t.Errorf("%s: got %+v, %v; its function ran: %v", key, res, err, ran)
			}
			var n int
			if err := pool.QueryRowContext(t.Context(), `SELECT count(*) FROM effects WHERE k = '`+key+`'`).Scan(&n); err != nil || n != 1 {
				t.Errorf("%s: %d effects, %v", key, n, err)
			}
		}
	})
}

// TestReserveBesideDoTx checks that a function of DoTx does not run beside one of Do, either way round.
func TestReserveBesideDoTx(t *testing.T) {
	reserving(t, func(t *testing.T, pool *sql.DB, stores [2]*Store[*sql.Tx]) {
		doTx := func(s *Store[*sql.Tx], op Op, f func(context.Context, *sql.Tx) (string, error)) error {
			tx, err := pool.BeginTx(t.Context(), nil)
			if err != nil {
				return err
			}
			defer func() { _ = tx.Rollback() }()
			if _, err := DoTx(t.Context(), s, tx, op, f); err != nil {
				return err
			}
			return tx.Commit()
		}
		do := func(s *Store[*sql.Tx], op Op, f func(context.Context, *sql.Tx) (string, error)) error {
			_, err := Do(t.Context(), s, op, f)
			return err
		}
		type way = func(s *Store[*sql.Tx], op Op, f func(context.Context, *sql.Tx) (string, error)) error
		for key, ways := range map[string][2]way{"Do first": {do, doTx}, "DoTx first": {doTx, do}} {
			op := Op{Name: "refund", Key: key, Request: key}
			err := ways[0](stores[0], op, func(ctx context.Context, tx *sql.Tx) (string, error) {
				now := op
				now.Wait = holdfast.NoWait
				if err := ways[1](stores[1], now, func(context.Context, *sql.Tx) (string, error) {
					t.Errorf("%s: the other function runs beside it", key)
					return "", nil
				}); !errors.Is(err, ErrInProgress) {
					t.Errorf("%s: got %v", key, err)
				}
				return "", effect(ctx, tx, key)
			})
			if err != nil {
				t.Errorf("%s: %v", key, err)
			}
		}
	})
}

// TestReserveOfTwoTables checks that equal keys of two tables with records do not wait for each other.
func TestReserveOfTwoTables(t *testing.T) {
	t.Parallel()
	if dialect.Lockspace(`"a"."holdfast_records"`) == dialect.Lockspace(`"b"."holdfast_records"`) {
		t.Error("two tables have one lock for a key")
	}
}

// TestReserveExpiredFails lets the function fail for a key whose record has expired.
func TestReserveExpiredFails(t *testing.T) {
	reserving(t, func(t *testing.T, _ *sql.DB, stores [2]*Store[*sql.Tx]) {
		s, op, fails := stores[0], Op{Name: "refund", Key: "expired", Request: "expired"}, errors.New("fails")
		s.options.ResultTTL, s.options.KeyTTL = time.Microsecond, time.Microsecond
		for _, want := range []error{nil, fails} {
			if _, err := Do(t.Context(), s, op, func(context.Context, *sql.Tx) (string, error) { return "", want }); !errors.Is(err, want) {
				t.Errorf("got %v, want %v", err, want)
			}
		}
	})
}

// TestDeferredConstraint lets COMMIT fail by a unique key of the program's. That is not the record's.
func TestDeferredConstraint(t *testing.T) {
	reserving(t, func(t *testing.T, pool *sql.DB, stores [2]*Store[*sql.Tx]) {
		if _, err := pool.ExecContext(t.Context(), `CREATE TABLE late (k INT UNIQUE DEFERRABLE INITIALLY DEFERRED)`); err != nil {
			t.Fatal(err)
		}
		_, err := Do(t.Context(), stores[0], Op{Name: "refund", Key: "k", Request: 1}, func(ctx context.Context, tx *sql.Tx) (string, error) {
			_, err := tx.ExecContext(ctx, `INSERT INTO late VALUES (1), (1)`)
			return "", err
		})
		if dialect.SQLState(err) != "23505" || errors.Is(err, holdfast.ErrTxLost) {
			t.Errorf("got %v", err)
		}
	})
}
