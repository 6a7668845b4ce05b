package admission_test

import (
	"context"
	"database/sql"
	"errors"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/idempotency/businessrow"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
	"github.com/holdfast-go/holdfast/optimistic"
	"github.com/holdfast-go/holdfast/sqllock"
)

// environment is a setting under which a promise breaks unless Holdfast handles it.
type environment struct {
	name  string
	on    on
	param string // of the URL
	// rule is the check that refuses or neutralises the setting.
	rule string
	// alone means that the setting cannot change while another connection is open.
	alone bool
	// breaks shows the failure without the rule; holds shows that it does not occur where the program
	// changes an admitted session. A nil function shows nothing.
	breaks, holds func(t *testing.T, e planted)
}

// planted is an environment during a test: pool has the setting, and plain is another process
// without it.
type planted struct {
	pool, plain *sql.DB
	db, other   *holdfast.DB[*sql.Tx]
}

func environments() []environment {
	iso := func(v string) string { return v + "=%27READ-UNCOMMITTED%27" }
	return []environment{
		{name: "read uncommitted: records", on: mysql, param: iso("transaction_isolation"), rule: "read uncommitted", breaks: dirtyReplay, holds: noDirtyReplay},
		{name: "read uncommitted: records of MariaDB", on: mariadb, param: iso("tx_isolation"), rule: "read uncommitted", breaks: dirtyReplay, holds: noDirtyReplay},
		{name: "read uncommitted: business rows", on: mysql, param: iso("transaction_isolation"), rule: "read uncommitted", breaks: dirtyRow, holds: noDirtyRow},
		{name: "read uncommitted: business rows of MariaDB", on: mariadb, param: iso("tx_isolation"), rule: "read uncommitted", breaks: dirtyRow, holds: noDirtyRow},
		{name: "LATIN1 and an owner", on: postgres, param: "client_encoding=LATIN1", rule: "client_encoding", breaks: twoOwners},
		{name: "WIN1252 and an owner", on: postgres, param: "client_encoding=WIN1252", rule: "client_encoding", breaks: twoOwners},
		{name: "GBK and an owner", on: postgres, param: "client_encoding=GBK", rule: "client_encoding", breaks: twoOwners},
		{name: "SJIS and an owner", on: postgres, param: "client_encoding=SJIS", rule: "client_encoding", breaks: twoOwners},
		{name: "latin1", on: innodb, param: "charset=latin1", rule: "character set"},
		{name: "cp850", on: innodb, param: "charset=cp850&interpolateParams=true", rule: "character set"},
		{name: "cp850 and an owner", on: innodb, param: "character_set_client=cp850&interpolateParams=true", rule: "character set", breaks: twoOwners},
		{name: "cp850 of the connection and an owner", on: innodb, param: "character_set_connection=cp850&interpolateParams=true", rule: "character set", breaks: twoOwners},
		{name: "character_set_client and an owner", on: innodb, param: "character_set_client=latin1&interpolateParams=true", rule: "character set", breaks: twoOwners},
		{name: "character_set_connection and an owner", on: innodb, param: "character_set_connection=latin1&interpolateParams=true", rule: "character set", breaks: twoOwners},
		{name: "character_set_results", on: innodb, param: "character_set_results=latin1", rule: "character set"},
		{name: "utf8mb3", on: innodb, param: "charset=utf8mb3&interpolateParams=true", rule: "character set"},
		{name: "a character set and a key", on: innodb, param: "charset=gbk&interpolateParams=true", rule: "character set", breaks: injected},
		{name: "completion_type", on: innodb, param: "completion_type=1", rule: "completion_type", breaks: chained},
		{name: "binlog_format", on: mysql, param: "binlog_format=%27STATEMENT%27", rule: "binlog_format", breaks: leaseLost},
		{name: "sql_safe_updates", on: mariadb, param: "sql_safe_updates=1", rule: "sql_safe_updates"},
		{name: "sql_select_limit", on: innodb, param: "sql_select_limit=1", rule: "sql_select_limit"},
		{name: "a clock that stands", on: innodb, param: "timestamp=1000000000", rule: "timestamp", breaks: stolen},
		{name: "a clock that stands a second ago", on: innodb, param: "timestamp=UNIX_TIMESTAMP(SYSDATE(6))-1", rule: "timestamp"},
		{name: "a clock that stands at a whole second", on: innodb, param: "timestamp=UNIX_TIMESTAMP()", rule: "timestamp"},
		{name: "skip_replication", on: mariadb, param: "skip_replication=1", rule: "skip_replication"},
		{name: "read uncommitted: InTx", on: mysql, param: iso("transaction_isolation"), rule: "read uncommitted", breaks: dirtyCount, holds: noDirtyCount},
		{name: "read uncommitted: InTx of MariaDB", on: mariadb, param: iso("tx_isolation"), rule: "read uncommitted", breaks: dirtyCount, holds: noDirtyCount},
		{name: "autocommit", on: innodb, param: "autocommit=0", rule: "autocommit", breaks: chained},
		{name: "unique_checks", on: innodb, param: "unique_checks=0", rule: "unique_checks"},
		{name: "sql_log_bin", on: mysql, param: "sql_log_bin=0", rule: "sql_log_bin"},
		{name: "read-only sessions", on: mysql, param: "transaction_read_only=1", rule: "read only"},
		{name: "read-only sessions of MariaDB", on: mariadb, param: "tx_read_only=1", rule: "read only"},
		{name: "read-only role", on: postgres, param: "default_transaction_read_only=on", rule: "read only"},
		{name: "triggers that do not fire", on: postgres, param: "session_replication_role=replica", rule: "triggers", breaks: unenforced},
		{name: "a journal that is off", on: sqlite, param: "_pragma=journal_mode(OFF)", rule: "journal", alone: true},
		{name: "query_only", on: sqlite, param: "_pragma=query_only(1)", rule: "read only"},
		{name: "read_uncommitted", on: sqlite, param: "_pragma=read_uncommitted(1)", rule: "read uncommitted"},
	}
}

// TestAdmission checks that each environment is refused by name, or that the promise holds in
// it; and that the promise breaks without the rule, so the rule is needed. The same rule applies
// to connections that are opened later.
func TestAdmission(t *testing.T) {
	t.Parallel()
	for _, env := range environments() {
		t.Run(env.name, func(t *testing.T) {
			t.Parallel()
			env.on.each(t, func(t *testing.T, url string) {
				with := dbtest.With(url, env.param)
				if env.alone {
					url = ""
				}
				if env.breaks != nil {
					env.breaks(t, plant(t, url, with, env.rule))
				}
				if env.holds != nil {
					env.holds(t, changed(t, url, env.param))
				}
				_, err := open(t, dbtest.OpenSQL(t, with))
				wantRefused(t, err, env.rule)
				if env.alone {
					return
				}
				pool := later(t, 1, url, with)
				db := mustOpen(t, pool)
				first, err := pool.Conn(t.Context()) // it is admitted
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = first.Close() }()
				_, err = sqllock.New(t.Context(), db)
				wantRefused(t, err, env.rule)
				err = db.InTx(t.Context(), nil)
				wantRefused(t, err, env.rule)
			})
		})
	}
}

// changed has the parameter set by the program, after the session was admitted.
func changed(t *testing.T, with, param string) planted {
	t.Helper()
	p := plant(t, with, with)
	set, err := url.QueryUnescape(param)
	if err == nil {
		_, err = p.pool.ExecContext(t.Context(), "SET SESSION "+set)
	}
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func plant(t *testing.T, url, with string, without ...string) planted {
	t.Helper()
	p := planted{pool: dbtest.OpenSQL(t, with)}
	p.pool.SetMaxOpenConns(1) // the next call uses the session of the call before
	p.db = mustOpen(t, p.pool, without...)
	if url != "" {
		p.plain = dbtest.OpenSQL(t, url)
		p.other = mustOpen(t, p.plain)
	}
	return p
}

func store(t *testing.T, db *holdfast.DB[*sql.Tx]) *idempotency.Store[*sql.Tx] {
	t.Helper()
	s, err := idempotency.New(t.Context(), db, idempotency.Options{Wait: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func locker(t *testing.T, db *holdfast.DB[*sql.Tx], ttl time.Duration) *sqllock.Locker[*sql.Tx] {
	t.Helper()
	l, err := sqllock.New(t.Context(), db, sqllock.Options{TTL: ttl})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close(t.Context()) })
	return l
}

// whileUncommitted calls Do for a key whose record another process has written but not
// committed.
func whileUncommitted(t *testing.T, e planted) (idempotency.Result[string], error) {
	t.Helper()
	op := idempotency.Op{Name: "refund", Key: "R-1", NoFingerprint: true}
	tx, err := e.plain.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	if _, err := idempotency.DoTx(t.Context(), store(t, e.other), tx, op, func(context.Context, *sql.Tx) (string, error) { return "rolled back later", nil }); err != nil {
		t.Fatal(err)
	}
	return idempotency.Do(t.Context(), store(t, e.db), op, func(context.Context, *sql.Tx) (string, error) { return "mine", nil })
}

func dirtyReplay(t *testing.T, e planted) {
	t.Helper()
	if r, err := whileUncommitted(t, e); err != nil || r.Outcome != idempotency.Replayed {
		t.Errorf("without the rule nothing breaks: %v, %v", r, err)
	}
}

func noDirtyReplay(t *testing.T, e planted) {
	t.Helper()
	if r, err := whileUncommitted(t, e); !errors.Is(err, idempotency.ErrInProgress) {
		t.Errorf("got %v, %v", r, err)
	}
	op := idempotency.Op{Name: "refund", Key: "R-1", NoFingerprint: true}
	for _, want := range []idempotency.Outcome{idempotency.Executed, idempotency.Replayed} {
		r, err := idempotency.Do(t.Context(), store(t, e.db), op, func(context.Context, *sql.Tx) (string, error) { return "mine", nil })
		if err != nil || r.Outcome != want || r.Value != "mine" {
			t.Errorf("got %v, %v; want %v", r, err, want)
		}
	}
}

// rowWhileUncommitted does the same with a business row.
func rowWhileUncommitted(t *testing.T, e planted) (idempotency.Result[refund], error) {
	t.Helper()
	table := func(db *holdfast.DB[*sql.Tx]) *businessrow.Table[refund, *sql.Tx] {
		table, err := businessrow.New[refund](t.Context(), db, holdfast.TableSpec{Table: "refunds", Key: []string{"refund_no"}},
			businessrow.Options{Wait: time.Second, Attempts: 1})
		if err != nil {
			t.Fatal(err)
		}
		return table
	}
	tx, err := e.plain.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	if _, err := table(e.other).ClaimTx(t.Context(), tx, refund{"R-1", 1}); err != nil {
		t.Fatal(err)
	}
	return table(e.db).Do(t.Context(), refund{"R-1", 1}, func(context.Context, *sql.Tx) error { return nil })
}

func dirtyRow(t *testing.T, e planted) {
	t.Helper()
	if r, err := rowWhileUncommitted(t, e); err != nil || r.Outcome != idempotency.Replayed {
		t.Errorf("without the rule nothing breaks: %v, %v", r, err)
	}
}

func noDirtyRow(t *testing.T, e planted) {
	t.Helper()
	if r, err := rowWhileUncommitted(t, e); err == nil {
		t.Errorf("got %v", r)
	}
}

// countUncommitted counts, inside InTx, the row of an open transaction that rolls back later.
func countUncommitted(t *testing.T, e planted) (n int) {
	t.Helper()
	must(t, e.plain, `DELETE FROM effects`)
	tx, err := e.plain.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	if _, err := tx.ExecContext(t.Context(), `INSERT INTO effects (k, n) VALUES ('dirty', 1)`); err != nil {
		t.Fatal(err)
	}
	err = e.db.InTx(t.Context(), func(ctx context.Context, tx *sql.Tx) error {
		return tx.QueryRowContext(ctx, `SELECT COUNT(*) FROM effects`).Scan(&n)
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func dirtyCount(t *testing.T, e planted) {
	t.Helper()
	if n := countUncommitted(t, e); n != 1 {
		t.Errorf("without the rule nothing breaks: %d rows", n)
	}
}

func noDirtyCount(t *testing.T, e planted) {
	t.Helper()
	if n := countUncommitted(t, e); n != 0 {
		t.Errorf("counted %d rows that are not committed", n)
	}
}

// injected uses a key that ends its SQL literal and so reads another lock.
func injected(t *testing.T, e planted) {
	t.Helper()
	victim, err := locker(t, e.other, time.Minute).Acquire(t.Context(), "victim")
	if err != nil {
		t.Fatal(err)
	}
	info, found, err := locker(t, e.db, time.Minute).Inspect(t.Context(), "z\xbf' OR 1=1 -- ")
	if err != nil || !found || info.Key != "victim" {
		t.Errorf("without the rule nothing breaks: %+v, %v", info, err)
	}
	_ = victim.Release(t.Context())
}

// chained acquires a lock in a transaction that never commits, and then acquires another one.
func chained(t *testing.T, e planted) {
	t.Helper()
	tx, err := e.pool.BeginTx(t.Context(), nil) // the program's own transaction
	if err != nil {
		t.Fatal(err)
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	first, err := locker(t, e.db, time.Minute).TryAcquire(t.Context(), "key")
	if err != nil {
		t.Fatal(err)
	}
	_ = e.pool.Close()
	if _, err := locker(t, e.other, time.Minute).Acquire(t.Context(), "key"); err != nil || context.Cause(first.Context()) != nil {
		t.Errorf("without the rule nothing breaks: %v, %v", err, context.Cause(first.Context()))
	}
}

// leaseLost checks that no renewal works, so that the lease is lost at its TTL.
func leaseLost(t *testing.T, e planted) {
	t.Helper()
	lease, err := locker(t, e.db, 6*50*time.Millisecond).Acquire(t.Context(), "key")
	if err != nil {
		t.Fatal(err)
	}
	<-lease.Context().Done()
	if !errors.Is(context.Cause(lease.Context()), sqllock.ErrLost) {
		t.Errorf("without the rule nothing breaks: %v", context.Cause(lease.Context()))
	}
}

// stolen checks that under a stopped clock a lease never ends, and that under a wrong clock it
// ended long ago, so that it has two holders.
func stolen(t *testing.T, e planted) {
	t.Helper()
	first, err := locker(t, e.db, time.Minute).TryAcquire(t.Context(), "key")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := locker(t, e.other, time.Minute).TryAcquire(t.Context(), "key"); err != nil || context.Cause(first.Context()) != nil {
		t.Errorf("without the rule nothing breaks: %v, %v", err, context.Cause(first.Context()))
	}
}

func accounts(t *testing.T, db *holdfast.DB[*sql.Tx]) *optimistic.Table[account, *sql.Tx] {
	t.Helper()
	table, err := optimistic.New[account](t.Context(), db, holdfast.TableSpec{Table: "accounts", Key: []string{"id"}})
	if err != nil {
		t.Fatal(err)
	}
	return table
}

// unenforced checks that an update which keeps the version passes the trigger.
func unenforced(t *testing.T, e planted) {
	t.Helper()
	if err := accounts(t, e.other).Enforce(t.Context()); err != nil {
		t.Fatal(err)
	}
	const past = `UPDATE accounts SET cents = 666`
	if _, err := e.plain.ExecContext(t.Context(), past); err == nil {
		t.Fatal("the trigger does not work")
	}
	if _, err := e.pool.ExecContext(t.Context(), past); err != nil {
		t.Errorf("without the rule nothing breaks: %v", err)
	}
}

// TestLevelRefused checks that READ UNCOMMITTED is refused when a call names it.
func TestLevelRefused(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, e dbtest.Engine) {
		db := mustOpen(t, dbtest.OpenSQL(t, migrated(t, e)))
		err := optimistic.Retry(t.Context(), db, nil, optimistic.RetryOptions{Isolation: sql.LevelReadUncommitted})
		if !errors.Is(err, holdfast.ErrInvalid) {
			t.Errorf("optimistic.Retry: %v", err)
		}
		if err := db.InTx(t.Context(), nil, holdfast.TxOptions{Isolation: sql.LevelReadUncommitted}); !errors.Is(err, holdfast.ErrInvalid) {
			t.Errorf("InTx: %v", err)
		}
		if _, err := idempotency.New(t.Context(), db, idempotency.Options{Isolation: sql.LevelReadUncommitted}); !errors.Is(err, holdfast.ErrInvalid) || !strings.Contains(err.Error(), "READ COMMITTED") {
			t.Errorf("idempotency: %v", err)
		}
	})
}
