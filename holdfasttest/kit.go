package holdfasttest

import (
	"context"
	"database/sql"
	"net/http"
	"path/filepath"

	"github.com/jmoiron/sqlx"
	_ "modernc.org/sqlite" // the database of a kit

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/holdfasttest/internal/kit"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/internal/access"
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

// Kit is Holdfast on a new database, with Holdfast's tables, and with methods that inject
// outcomes. It is safe for concurrent use. If a method fails, it ends the test.
type Kit[Tx any] struct {
	// DB is the argument for New of idempotency, sqllock and the other packages.
	DB *holdfast.DB[Tx]
	// Pool is the same database, for the program's own tables and for checking results. Only
	// EveryFault injects into its statements.
	Pool *sql.DB
	// Owner is an owner for this test alone, for Op.Owner and sqllock.Locker.For: a merchant, or another
	// kind that the program has. It is empty with Options.SingleOwner.
	Owner string
	// Transport is for the program's calls to the outside. EveryFault injects into them; elsewhere it is
	// http.DefaultTransport.
	Transport http.RoundTripper

	tb     TB
	faults *faults
}

// SQLite creates a database in the test's temporary folder, with Holdfast's tables. It is closed
// when the test ends.
func SQLite(tb TB, opts ...holdfast.Options) *Kit[*sql.Tx] {
	tb.Helper()
	return OnSQL(tb, open(tb), opts...)
}

// SQLiteX is SQLite for a program whose transactions are *sqlx.Tx.
func SQLiteX(tb TB, opts ...holdfast.Options) *Kit[*sqlx.Tx] {
	tb.Helper()
	return OnSQLX(tb, sqlx.NewDb(open(tb), "sqlite"), opts...)
}

// OnSQL is a kit on a database of the caller's, which has Holdfast's tables and no other program.
// Packages mysqltest and pgxtest make one.
func OnSQL(tb TB, pool *sql.DB, opts ...holdfast.Options) *Kit[*sql.Tx] {
	tb.Helper()
	return on(tb, pool, stdhandle.Handle[*sql.Tx]{
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

// OnSQLX is OnSQL for a program whose transactions are *sqlx.Tx.
func OnSQLX(tb TB, pool *sqlx.DB, opts ...holdfast.Options) *Kit[*sqlx.Tx] {
	tb.Helper()
	return on(tb, pool.DB, stdhandle.Handle[*sqlx.Tx]{
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
	return openFile(tb, filepath.Join(tb.TempDir(), "holdfast.db"))
}

func openFile(tb TB, path string) *sql.DB {
	tb.Helper()
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

// Package pgxtest makes a kit on a handle that this API does not show.
var _ = kit.Register(func(k any, tb kit.TB, pool *sql.DB, handle any, opts []holdfast.Options) {
	tb.Helper()
	k.(opener).open(tb, pool, handle, opts) //nolint:forcetypeassert // it is a *Kit
})

type opener interface {
	open(tb kit.TB, pool *sql.DB, handle any, opts []holdfast.Options)
}

// on is OnSQL for any handle.
func on[Tx any](tb TB, pool *sql.DB, handle core.Adapter[Tx], opts []holdfast.Options) *Kit[Tx] {
	tb.Helper()
	k := &Kit[Tx]{}
	k.open(tb, pool, handle, opts)
	return k
}

// open makes k, which is new, a kit on a core.Adapter.
func (k *Kit[Tx]) open(tb kit.TB, pool *sql.DB, handle any, opts []holdfast.Options) {
	tb.Helper()
	f := &faults{}
	own := adapter[Tx]{handle.(core.Adapter[Tx]), f} //nolint:forcetypeassert // every caller gives one
	db, err := access.Open(context.Background(), new(holdfast.DB[Tx]), own, opts)
	if err != nil {
		tb.Fatalf("holdfasttest: %v", err)
	}
	*k = Kit[Tx]{DB: db, Pool: pool, Transport: http.DefaultTransport, tb: tb, faults: f}
	if len(opts) == 0 || !opts[0].SingleOwner {
		k.Owner = "owner-" + kit.Random()
	}
}

// Done creates the record of an operation that was executed with a result: the program's call with
// op is a replay of it. T is the type of the program's result.
func Done[T, Tx any](k *Kit[Tx], s *idempotency.Store[Tx], op idempotency.Op, result T) {
	k.tb.Helper()
	r, err := idempotency.Do(context.Background(), s, op, func(context.Context, Tx) (T, error) { return result, nil })
	if err != nil || r.Outcome != idempotency.Executed {
		k.tb.Fatalf("holdfasttest: the record of key %.60q was not to be made: %v, %v", op.Key, r.Outcome, err)
	}
}

// Reject creates the record of an operation that was rejected: the program's call with op returns
// a *idempotency.Rejection.
func (k *Kit[Tx]) Reject(s *idempotency.Store[Tx], op idempotency.Op, code, message string) {
	k.tb.Helper()
	r, _ := idempotency.Do(context.Background(), s, op, func(context.Context, Tx) (struct{}, error) {
		return struct{}{}, idempotency.Reject(code, message)
	})
	if r.Outcome != idempotency.Executed {
		k.tb.Fatalf("holdfasttest: the rejection of key %.60q was not to be made", op.Key)
	}
}

// Mismatch creates the record of another request under op's key: the program's call with op
// returns idempotency.ErrMismatch.
func (k *Kit[Tx]) Mismatch(s *idempotency.Store[Tx], op idempotency.Op) {
	k.tb.Helper()
	if op.NoFingerprint {
		k.tb.Fatalf("holdfasttest: key %.60q has NoFingerprint, so nothing mismatches", op.Key)
	}
	op.Request, op.Earlier, op.Fingerprint = nil, nil, []byte("another request, made by holdfasttest")
	Done(k, s, op, struct{}{})
}

// Similar executes an operation that is similar to op under another key: the program's call
// with op returns a *idempotency.SimilarError with the business id, which may be empty.
func (k *Kit[Tx]) Similar(s *idempotency.Store[Tx], op idempotency.Op, businessID string) {
	k.tb.Helper()
	if op.Similar == nil {
		k.tb.Fatalf("holdfasttest: key %.60q has no Similar, so nothing is similar to it", op.Key)
	}
	first := *op.Similar
	first.Confirm = idempotency.ConfirmAny
	op.Key, op.Similar = op.Key[:min(len(op.Key), idempotency.MaxKey-8)]+" earlier", &first
	Done(k, s, op, idempotency.ID(businessID))
}

// Expire creates the record of an operation that was executed and whose result is no longer kept:
// the program's call with op returns an *idempotency.ExpiredError with the business id, which may
// be empty.
func (k *Kit[Tx]) Expire(s *idempotency.Store[Tx], op idempotency.Op, businessID string) {
	k.tb.Helper()
	Done(k, s, op, idempotency.ID(businessID))
	a := access.Of(k.DB)
	gone := a.Dialect.Compile("", `UPDATE `+a.Table("records")+` SET state = 4, result = NULL, codec = NULL, request_id = NULL WHERE owner = $0 AND key_hash = $1`)
	if _, err := gone.Exec(context.Background(), a.Pool, op.Owner, k.key(s, op)); err != nil {
		k.tb.Fatalf("holdfasttest: %v", err)
	}
}

// InProgress makes the program's calls with op fail with idempotency.ErrInProgress, at once and
// regardless of their Wait, as if another process held the key. The effect ends when end is called
// or the test ends.
func (k *Kit[Tx]) InProgress(s *idempotency.Store[Tx], op idempotency.Op) (end func()) {
	k.tb.Helper()
	key := string(k.key(s, op))
	k.faults.hold(key, 1)
	return func() { k.faults.hold(key, -1) }
}

// LoseCommit loses the answer to the next COMMIT that Holdfast sends, in Do, Table.Do, or InTx.
// Only the table shows whether it was committed. Do cannot reach the table at once to find out,
// and returns idempotency.ErrUnknown; a retry with the same key gets a definite outcome.
// LoseCommit does not affect commits that the caller sends, such as after DoTx.
func (k *Kit[Tx]) LoseCommit(committed bool) { k.faults.loseCommit(committed) }

// LoseLease takes an owner's lease on key away from its holder, as ForceRelease does, or as happens to
// a process that paused too long. Guard and Release fail from now on. The lease's context ends with
// its next renewal, so use a short TTL in a test that waits for that.
func (k *Kit[Tx]) LoseLease(owner, key string) {
	k.tb.Helper()
	ctx := context.Background()
	locker, err := sqllock.New(ctx, k.DB)
	if err != nil {
		k.tb.Fatalf("holdfasttest: %v", err)
	}
	defer func() { _ = locker.Close(ctx) }()
	if had, err := locker.For(owner).ForceRelease(ctx, key, 0, holdfast.Actor{By: "holdfasttest", Reason: "LoseLease"}); err != nil || !had {
		k.tb.Fatalf("holdfasttest: nobody had a lease on %.60q of %.60q that could be lost: %v", key, owner, err)
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
