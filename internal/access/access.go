// Package access gives Holdfast's packages access to the internals of a holdfast.DB.
package access

import (
	"context"
	"reflect"

	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/dialect"
	"github.com/holdfast-go/holdfast/internal/trace"
)

// Access contains the internals of one DB.
type Access[Tx any] struct {
	Handle[Tx]

	Dialect *dialect.Dialect
	// Trace reports calls and events.
	Trace *trace.Tracer
	// Catalog describes the user's own tables.
	Catalog Catalog
	// Pool runs single statements. Each commits on its own.
	Pool core.Querier
	// Owners says which calls name an owner.
	Owners core.Owners
}

// ofDB, openDB and withOwners are package holdfast's, which sets them with Register.
var (
	ofDB       func(db any) any
	openDB     func(ctx context.Context, db, adapter, options any) error
	withOwners func(db any, owners core.Owners) any
)

// Register is for package holdfast, which this package cannot import. of returns the Access of a
// *holdfast.DB. open opens one, which is new, on a core.Adapter; options are a []holdfast.Options. with returns a
// *holdfast.DB that shares all with another, but for its owners.
func Register(of func(db any) any, open func(ctx context.Context, db, adapter, options any) error, with func(db any, owners core.Owners) any) struct{} {
	ofDB, openDB, withOwners = of, open, with
	return struct{}{}
}

// DB is a *holdfast.DB: the method says what its transactions are.
type DB[Tx, Options any] interface {
	InTx(ctx context.Context, fn func(ctx context.Context, tx Tx) error, opts ...Options) error
}

// Of returns the Access of a *holdfast.DB.
func Of[Tx, Options any](db DB[Tx, Options]) Access[Tx] {
	return ofDB(db).(Access[Tx]) //nolint:forcetypeassert // package holdfast returns it
}

// Open opens db, which is new, on an adapter, and returns it.
func Open[D, Tx, Options any](ctx context.Context, db *D, adapter core.Adapter[Tx], opts []Options) (*D, error) {
	if err := openDB(ctx, db, adapter, opts); err != nil {
		return nil, err
	}
	return db, nil
}

// WithOwners returns db with another rule about owners.
func WithOwners[D any](db *D, owners core.Owners) *D {
	return withOwners(db, owners).(*D) //nolint:forcetypeassert // package holdfast returns it
}

var ofLocker func(locker any) any

// RegisterLocker is for package sqllock, which this package cannot import. of returns the *keeper.Keeper of a
// *sqllock.Locker.
func RegisterLocker(of func(locker any) any) struct{} {
	ofLocker = of
	return struct{}{}
}

// Locker returns the *keeper.Keeper of a *sqllock.Locker, as what the caller needs of it.
func Locker[T any](locker any) T {
	return ofLocker(locker).(T) //nolint:forcetypeassert // the Keeper has what a caller names
}

// Handle runs statements and transactions on the program's handle.
type Handle[Tx any] interface {
	// Admission returns the error with which Open would refuse the environment now.
	Admission(ctx context.Context) error
	// Explain adds the remedy, and so the code, to a driver's error that has the same remedy on every engine.
	Explain(err error) error
	// Starved adds to err, for which ctx has ended, that every connection of the pool is in use, if that
	// is so.
	Starved(ctx context.Context, err error) error
	// Connections returns how many connections of the pool are in use, and how many it may have: 0 if it has no
	// bound, or none is known.
	Connections() (used, most int)
	// Table returns the quoted name of one of Holdfast's own tables.
	Table(name string) string
	// OnConn runs f on a connection of the pool, and again on another connection if that one
	// was dead, so f must be safe to run more than once. before, if given, is a setting for
	// f's statement alone, and runs first.
	OnConn(ctx context.Context, before string, f func(q core.Querier) error) error
	// Acquire pins a connection.
	Acquire(ctx context.Context) (core.Conn[Tx], error)
	// Join runs statements in a caller's transaction.
	Join(tx Tx) (core.Querier, error)
	// Listen receives the engine's notifications: see core.Listener.
	Listen(ctx context.Context, statement string, ready func(), each func(payload string)) error
	// Side runs f on a dedicated connection, for as long as f runs. If the pool cannot spare n connections,
	// it returns core.ErrNoListener.
	Side(ctx context.Context, n int, f func(q core.Querier) error) error
	// Alive returns an error if a caller's transaction has already ended, on an engine that
	// would commit each further statement on its own.
	Alive(ctx context.Context, q core.Querier) error
	// Rollback rolls back a caller's transaction. It returns when ctx ends, also if the server does
	// not answer.
	Rollback(ctx context.Context, tx Tx) error
	// Attempt runs one transaction, once. An error of f rolls it back. first is as in Begin, and f gets its
	// answer.
	Attempt(ctx context.Context, opts core.TxOptions, first *core.Bound, f func(ctx context.Context, tx Tx, q core.Querier, first core.Reply) error) error
	// Begin begins a transaction that Finish ends. It runs first, if not nil, as the first
	// statement, and returns its answer. On some handles that takes a single round trip, if
	// opts.FirstSets is true. After an error there is no transaction.
	Begin(ctx context.Context, opts core.TxOptions, first *core.Bound) (OwnTx[Tx], core.Reply, error)
}

// OwnTx is an open transaction of Holdfast's own. Exec and Query run statements in it.
type OwnTx[Tx any] interface {
	core.Querier
	// Tx returns the handle's transaction.
	Tx() Tx
	// Finish runs last and commits. last affects one row if, and only if, the transaction is
	// still the one that began; otherwise Finish rolls back. If ctx has ended, Finish rolls
	// back and returns its cause.
	Finish(ctx context.Context, last core.Bound) error
	// Rollback rolls back. It does nothing after Finish.
	Rollback()
	// RollbackThen is Rollback, and then runs look in the same session, whose life shows that the server has not
	// crashed since the transaction began. It returns false
	// if look has not run to its end, as after Finish and on a lost connection; look may then still run.
	RollbackThen(look func(q core.Querier)) bool
}

// Field is holdfast.Field.
type Field struct {
	Column    string
	Index     []int
	Generated bool
	Fill      func(ctx context.Context, row reflect.Value, update bool) error
}

// Catalog contains what is needed to describe a user's own table.
type Catalog struct {
	Dialect *dialect.Dialect
	Pool    core.Querier
	// Schema is the schema of a table that is named without a schema.
	Schema string
	// Check returns an error for an invalid name.
	Check func(argument, name string) error
	// Unsupported returns the error for a refused table.
	Unsupported func(f dialect.Finding) error
	// Fields lists the fields of a row's struct. It returns none if their db tags name them.
	Fields func(row reflect.Type) ([]Field, error)
}
