package holdfastgorm

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"reflect"
	"sync"

	"gorm.io/gorm"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/adapters/holdfastsql"
	"github.com/holdfast-go/holdfast/idempotency"
)

// Open opens Holdfast on the pool of db. Structs of rows are GORM's models.
//
// Errors: those of [holdfastsql.Open].
func Open(ctx context.Context, db *gorm.DB, opts ...holdfast.Options) (*holdfast.DB[*sql.Tx], error) {
	if db == nil {
		return nil, &holdfast.InputError{Field: "db", Problem: "is nil"}
	}
	pool, err := db.DB()
	if err != nil {
		return nil, fmt.Errorf("holdfastgorm: GORM has no *sql.DB: %w", err)
	}
	if len(opts) > 1 {
		return holdfastsql.Open(ctx, pool, opts...) // it refuses them
	}
	var o holdfast.Options
	if len(opts) == 1 {
		o = opts[0]
	}
	if o.Fields == nil {
		o.Fields = fieldsOf(db)
	}
	return holdfastsql.Open(ctx, pool, o)
}

// Tx returns the transaction of tx, for functions of Holdfast that join one. It fails if GORM is in
// none, for example in a hook under SkipDefaultTransaction: on a pool, a claim would be committed at
// once.
//
// Errors: [holdfast.ErrNoTx].
func Tx(tx *gorm.DB) (*sql.Tx, error) {
	if tx == nil || tx.Statement == nil {
		return nil, holdfast.ErrNoTx
	}
	conn := tx.Statement.ConnPool
	if prepared, is := conn.(*gorm.PreparedStmtTX); is { // PrepareStmt wraps it
		conn = prepared.Tx
	}
	if own, is := conn.(*sql.Tx); is && own != nil {
		return own, nil
	}
	return nil, fmt.Errorf("%w: GORM has a %T", holdfast.ErrNoTx, conn)
}

// On returns db bound to a transaction, as GORM's Begin binds it to its own: with its callbacks, hooks,
// logger and plugins. It prepares no statements.
func On(ctx context.Context, db *gorm.DB, tx *sql.Tx) *gorm.DB {
	bound := db.Session(&gorm.Session{NewDB: true, Context: ctx})
	bound.Statement.ConnPool = tx
	return bound
}

// Do is [idempotency.Do] with a *gorm.DB that is bound to the transaction and has its context.
func Do[T any](ctx context.Context, db *gorm.DB, s *idempotency.Store[*sql.Tx], op idempotency.Op, fn func(tx *gorm.DB) (T, error)) (idempotency.Result[T], error) {
	return idempotency.Do(ctx, s, op, func(ctx context.Context, tx *sql.Tx) (T, error) { return fn(On(ctx, db, tx)) })
}

// DoTx is [idempotency.DoTx] in a transaction that GORM began. After an error that is not final
// Holdfast has rolled the whole transaction back, savepoints included, so return it from GORM's
// function too. A *[idempotency.Rejection] is kept only if GORM commits: return nil for it there.
func DoTx[T any](ctx context.Context, s *idempotency.Store[*sql.Tx], tx *gorm.DB, op idempotency.Op, fn func(tx *gorm.DB) (T, error)) (idempotency.Result[T], error) {
	own, err := Tx(tx)
	if err != nil {
		return idempotency.Result[T]{}, err
	}
	res, err := idempotency.DoTx(ctx, s, own, op, func(ctx context.Context, _ *sql.Tx) (T, error) { return fn(tx.WithContext(ctx)) })
	if _, in := verdicts.Load(own); in {
		var rejection *idempotency.Rejection
		errors.As(err, &rejection)
		verdicts.Store(own, rejection)
	}
	return res, err
}

// verdicts are the rejections of the last DoTx of each Transaction that runs, by its *sql.Tx: GORM's contexts are the
// program's. Only with such a rejection, and not with one of the code around DoTx, a transaction commits.
var verdicts sync.Map

// Transaction runs fn, which calls [DoTx] and writes more, in one transaction that Holdfast begins. It
// takes the place of GORM's Transaction around DoTx: it runs fn again after a deadlock and
// [holdfast.ErrRetry], and it keeps a verdict. If fn returns the result and the error of a DoTx that was
// rejected, and that DoTx is the last one of the transaction, it commits. Every other error rolls back, a rejection by the code after a DoTx
// too. Do not call that DoTx in a nested transaction of
// GORM, which would take the verdict back alone.
//
// Errors: those of fn and of [holdfast.DB.InTx].
func Transaction[T any](ctx context.Context, db *gorm.DB, h *holdfast.DB[*sql.Tx], fn func(tx *gorm.DB) (idempotency.Result[T], error), opts ...holdfast.TxOptions) (res idempotency.Result[T], err error) {
	var decided error
	err = h.InTx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		var rejection *idempotency.Rejection
		verdicts.Store(tx, rejection)
		defer verdicts.Delete(tx)
		res, decided = fn(On(ctx, db, tx))
		last, _ := verdicts.Load(tx)
		if errors.As(decided, &rejection) && last == any(rejection) && res.Outcome != 0 && reflect.ValueOf(&res.Value).Elem().IsZero() {
			return nil
		}
		return decided
	}, opts...)
	if err != nil {
		return idempotency.Result[T]{}, err
	}
	return res, decided
}

// InTx is [holdfast.DB.InTx] with a *gorm.DB that is bound to the transaction and has its context.
// Unlike GORM's Transaction it runs again after a deadlock, and says whether a commit happened.
func InTx(ctx context.Context, db *gorm.DB, h *holdfast.DB[*sql.Tx], fn func(tx *gorm.DB) error, opts ...holdfast.TxOptions) error {
	return h.InTx(ctx, func(ctx context.Context, tx *sql.Tx) error { return fn(On(ctx, db, tx)) }, opts...)
}
