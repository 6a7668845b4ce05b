package holdfasttest

import (
	"context"
	"database/sql"
	"path/filepath"

	"github.com/jmoiron/sqlx"
	_ "modernc.org/sqlite" // the database of a kit

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/stdhandle"
	"github.com/holdfast-go/holdfast/migrations"
	"github.com/holdfast-go/holdfast/sqllock"
)

// TB is the part of testing.TB that a kit needs.
type TB interface {
	Helper()
	Cleanup(f func())
	Fatalf(format string, args ...any)
	TempDir() string
}

// Kit is Holdfast on a new database, with Holdfast's tables, and what may happen
// to it. It is safe for concurrent use. A call that cannot do what it is asked
// for ends the test.
type Kit[Tx any] struct {
	// DB is what New of idempotency, sqllock and the other packages takes.
	DB *holdfast.DB[Tx]
	// Pool is the same database, for the program's own tables and for looking
	// at what was done. Nothing is injected into its statements.
	Pool *sql.DB

	tb     TB
	faults *faults
}

// SQLite makes a database in the test's temporary folder, with Holdfast's tables
// in it. It is closed when the test ends.
func SQLite(tb TB, opts ...holdfast.Option) *Kit[*sql.Tx] {
	tb.Helper()
	pool := open(tb)
	return newKit(tb, pool, stdhandle.Handle[*sql.Tx]{
		Querier: stdhandle.Querier{R: pool},
		Pin: func(ctx context.Context) (*sql.Conn, stdhandle.Begin[*sql.Tx], error) {
			c, err := pool.Conn(ctx)
			if err != nil {
				return nil, nil, err
			}
			return c, c.BeginTx, nil
		},
		Std: func(tx *sql.Tx) *sql.Tx { return tx },
	}, opts)
}

// SQLiteX is SQLite for a program whose transactions are *sqlx.Tx.
func SQLiteX(tb TB, opts ...holdfast.Option) *Kit[*sqlx.Tx] {
	tb.Helper()
	pool := sqlx.NewDb(open(tb), "sqlite")
	return newKit(tb, pool.DB, stdhandle.Handle[*sqlx.Tx]{
		Querier: stdhandle.Querier{R: pool.DB},
		Pin: func(ctx context.Context) (*sql.Conn, stdhandle.Begin[*sqlx.Tx], error) {
			c, err := pool.Connx(ctx)
			if err != nil {
				return nil, nil, err
			}
			return c.Conn, c.BeginTxx, nil
		},
		Std: func(tx *sqlx.Tx) *sql.Tx {
			if tx == nil {
				return nil
			}
			return tx.Tx
		},
	}, opts)
}

func open(tb TB) *sql.DB {
	tb.Helper()
	path := filepath.Join(tb.TempDir(), "holdfast.db")
	pool, err := sql.Open("sqlite", "file:"+filepath.ToSlash(path)+"?_pragma=journal_mode(WAL)&_pragma=busy_timeout(5000)")
	if err != nil {
		tb.Fatalf("holdfasttest: %v", err)
	}
	tb.Cleanup(func() { _ = pool.Close() })
	if err := migrations.Up(context.Background(), pool); err != nil {
		tb.Fatalf("holdfasttest: Holdfast's tables: %v", err)
	}
	return pool
}

func newKit[Tx any](tb TB, pool *sql.DB, handle core.Adapter[Tx], opts []holdfast.Option) *Kit[Tx] {
	tb.Helper()
	f := &faults{}
	db, err := holdfast.New(context.Background(), adapter[Tx]{handle, f}, opts...)
	if err != nil {
		tb.Fatalf("holdfasttest: %v", err)
	}
	return &Kit[Tx]{DB: db, Pool: pool, tb: tb, faults: f}
}

// Done makes the record of an operation that was done with a result: the
// program's call with op is a replay of it. T is the type of the program's result.
func Done[T, Tx any](k *Kit[Tx], s *idempotency.Store[Tx], op idempotency.Op, result T) {
	k.tb.Helper()
	r, err := idempotency.Do(context.Background(), s, op, func(context.Context, Tx) (T, error) { return result, nil })
	if err != nil || r.Outcome != idempotency.Executed {
		k.tb.Fatalf("holdfasttest: the record of key %.60q was not to be made: %v, %v", op.Key, r.Outcome, err)
	}
}

// Reject makes the record of an operation that was refused for good: the
// program's call with op is a *idempotency.Rejection.
func (k *Kit[Tx]) Reject(s *idempotency.Store[Tx], op idempotency.Op, code, message string) {
	k.tb.Helper()
	r, _ := idempotency.Do(context.Background(), s, op, func(context.Context, Tx) (struct{}, error) {
		return struct{}{}, idempotency.Reject(code, message)
	})
	if r.Outcome != idempotency.Executed {
		k.tb.Fatalf("holdfasttest: the rejection of key %.60q was not to be made", op.Key)
	}
}

// Mismatch makes the record of another request under op's key: the program's
// call with op is idempotency.ErrMismatch.
func (k *Kit[Tx]) Mismatch(s *idempotency.Store[Tx], op idempotency.Op) {
	k.tb.Helper()
	if op.NoFingerprint {
		k.tb.Fatalf("holdfasttest: key %.60q has NoFingerprint, so nothing mismatches", op.Key)
	}
	op.Request, op.Earlier, op.Fingerprint = nil, nil, []byte("another request, made by holdfasttest")
	Done(k, s, op, struct{}{})
}

// Expire makes the record of an operation that was done and whose result is no
// longer kept: the program's call with op is an *idempotency.ExpiredError with
// the business id, which may be empty.
func (k *Kit[Tx]) Expire(s *idempotency.Store[Tx], op idempotency.Op, businessID string) {
	k.tb.Helper()
	Done(k, s, op, idempotency.ID(businessID))
	_, err := k.Pool.ExecContext(context.Background(),
		`UPDATE `+k.DB.Access().Table("records")+` SET state = 4, result = NULL, codec = NULL WHERE key_hash = ?`, k.key(s, op))
	if err != nil {
		k.tb.Fatalf("holdfasttest: %v", err)
	}
}

// InProgress has the program's calls with op answered with
// idempotency.ErrInProgress, at once and however long they would wait, as if
// another process had the key, until end is called or the test ends.
func (k *Kit[Tx]) InProgress(s *idempotency.Store[Tx], op idempotency.Op) (end func()) {
	k.tb.Helper()
	key := string(k.key(s, op))
	k.faults.hold(key, 1)
	return func() { k.faults.hold(key, -1) }
}

// LoseCommit loses the answer to the next COMMIT that Holdfast sends, of Do,
// Table.Do, or InTx: whether it was committed, only the table says. Do, which
// would ask the table, cannot reach it at once and returns
// idempotency.ErrUnknown; asking again with the same key gets a definite answer.
// The caller's own commits, as after DoTx, are the caller's.
func (k *Kit[Tx]) LoseCommit(committed bool) { k.faults.loseCommit(committed) }

// LoseLease takes the lease on key away from whoever has it, as a person does
// with ForceRelease, or as happens to a process that stood still. Guard and
// Release fail from now on; the lease's context ends with its next renewal, so
// give it a short TTL in a test that waits for that.
func (k *Kit[Tx]) LoseLease(key string) {
	k.tb.Helper()
	ctx := context.Background()
	locker, err := sqllock.New(ctx, k.DB, sqllock.Options{})
	if err != nil {
		k.tb.Fatalf("holdfasttest: %v", err)
	}
	defer func() { _ = locker.Close(ctx) }()
	if had, err := locker.ForceRelease(ctx, key, 0, "holdfasttest.LoseLease"); err != nil || !had {
		k.tb.Fatalf("holdfasttest: nobody had a lease on %.60q that could be lost: %v", key, err)
	}
}

func (k *Kit[Tx]) key(s *idempotency.Store[Tx], op idempotency.Op) []byte {
	k.tb.Helper()
	key, err := s.RecordKey(op)
	if err != nil {
		k.tb.Fatalf("holdfasttest: %v", err)
	}
	return key
}
