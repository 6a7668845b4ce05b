package refunds

import (
	"context"
	"database/sql"
	"errors"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/adapters/holdfastsql"
	"github.com/holdfast-go/holdfast/bench/internal/sqlengine"
	"github.com/holdfast-go/holdfast/internal/refund"
)

// steps are the service's statements through database/sql, as texts or prepared.
type steps struct {
	refund.Texts

	prepared map[string]*sql.Stmt // by text; nil: as texts
}

func newSteps(ctx context.Context, e *sqlengine.Engine, pool *sql.DB, prepared bool) (s *steps, closes func() error, err error) {
	s = &steps{Texts: textsOf(e.Name)}
	closes = func() error {
		var errs []error
		for _, p := range s.prepared {
			errs = append(errs, p.Close())
		}
		return errors.Join(errs...)
	}
	if !prepared {
		return s, closes, nil
	}
	s.prepared = map[string]*sql.Stmt{}
	for _, text := range []string{s.Lock, s.Raise, s.Refund, s.Ledger} {
		if s.prepared[text], err = pool.PrepareContext(ctx, text); err != nil {
			delete(s.prepared, text)
			return nil, nil, errors.Join(err, closes())
		}
	}
	return s, closes, nil
}

// in returns what sends the statements of a transaction.
func (s *steps) in(tx *sql.Tx) refund.Tx {
	if s.prepared == nil {
		return tx
	}
	return preparedTx{tx, s.prepared}
}

type preparedTx struct {
	tx    *sql.Tx
	stmts map[string]*sql.Stmt
}

func (p preparedTx) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	return p.tx.StmtContext(ctx, p.stmts[query]).ExecContext(ctx, args...)
}

func (p preparedTx) QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row {
	return p.tx.StmtContext(ctx, p.stmts[query]).QueryRowContext(ctx, args...)
}

func (s *steps) run(ctx context.Context, tx *sql.Tx, order int64, key string) error {
	return s.Run(ctx, s.in(tx), order, key)
}

// bareSQL is the transaction without a key.
func bareSQL(prepared bool) func(context.Context, *sqlengine.Engine, holdfast.Observer) (Do, func() error, error) {
	return func(ctx context.Context, e *sqlengine.Engine, _ holdfast.Observer) (Do, func() error, error) {
		s, closes, err := newSteps(ctx, e, e.SQL, prepared)
		if err != nil {
			return nil, nil, err
		}
		return func(ctx context.Context, order int64, key string) error {
			return refund.Bare(ctx, e.SQL, func(tx *sql.Tx) error { return s.run(ctx, tx, order, key) })
		}, closes, nil
	}
}

// own is the program's pool, and connected the one with Holdfast's connector.
func own(e *sqlengine.Engine) *sql.DB       { return e.SQL }
func connected(e *sqlengine.Engine) *sql.DB { return e.Connected }

// way protects a transaction of steps.
type way func(ctx context.Context, db *holdfast.DB[*sql.Tx], pool *sql.DB, s *steps) (Do, error)

func do(ctx context.Context, db *holdfast.DB[*sql.Tx], _ *sql.DB, s *steps) (Do, error) {
	return under(ctx, db, s.run)
}

func doTx(ctx context.Context, db *holdfast.DB[*sql.Tx], pool *sql.DB, s *steps) (Do, error) {
	return underTx(ctx, db, func(ctx context.Context, run func(*sql.Tx) error) error { return refund.Bare(ctx, pool, run) }, s.run)
}

func tableDo(ctx context.Context, db *holdfast.DB[*sql.Tx], _ *sql.DB, s *steps) (Do, error) {
	return underTable(ctx, db, func(ctx context.Context, tx *sql.Tx, order int64) error { return s.Money(ctx, s.in(tx), order) })
}

// ours is the transaction under Holdfast.
func ours(protect way, of func(*sqlengine.Engine) *sql.DB, prepared bool) func(context.Context, *sqlengine.Engine, holdfast.Observer) (Do, func() error, error) {
	return func(ctx context.Context, e *sqlengine.Engine, observe holdfast.Observer) (Do, func() error, error) {
		pool := of(e)
		s, closes, err := newSteps(ctx, e, pool, prepared)
		if err != nil {
			return nil, nil, err
		}
		db, err := holdfastsql.Open(ctx, pool, holdfast.Options{SingleOwner: true, Observers: []holdfast.Observer{observe}})
		if err != nil {
			return nil, nil, errors.Join(err, closes())
		}
		do, err := protect(ctx, db, pool, s)
		if err != nil {
			return nil, nil, errors.Join(err, closes())
		}
		return do, closes, nil
	}
}

// lookSQL reads a refund by its number.
func lookSQL(_ context.Context, e *sqlengine.Engine, _ holdfast.Observer) (Do, func() error, error) {
	text := textsOf(e.Name).Look
	return func(ctx context.Context, _ int64, key string) error {
		var order, cents int64
		return e.SQL.QueryRowContext(ctx, text, key).Scan(&order, &cents)
	}, nothing, nil
}

// Ours makes a refund under Do on the engine's pool of database/sql, with a DB opened with
// opts.
func Ours(ctx context.Context, e *sqlengine.Engine, opts ...holdfast.Options) (Do, error) {
	s, _, err := newSteps(ctx, e, e.SQL, false)
	if err != nil {
		return nil, err
	}
	db, err := holdfastsql.Open(ctx, e.SQL, opts...)
	if err != nil {
		return nil, err
	}
	return under(ctx, db, s.run)
}

func nothing() error { return nil }
