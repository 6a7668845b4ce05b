package refunds

import (
	"context"
	"database/sql"
	"errors"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/adapters/holdfastsql"
	"github.com/holdfast-go/holdfast/bench/internal/sqlengine"
)

// steps are the service's statements through database/sql, as texts or prepared.
type steps struct {
	engine                      string
	pool                        *sql.DB
	texts                       texts
	lock, raise, refund, ledger *sql.Stmt // nil: as texts
}

func newSteps(ctx context.Context, e *sqlengine.Engine, pool *sql.DB, prepared bool) (s *steps, closes func() error, err error) {
	s = &steps{engine: e.Name, pool: pool, texts: textsOf(e.Name)}
	var made []*sql.Stmt
	closes = func() error {
		var errs []error
		for _, p := range made {
			errs = append(errs, p.Close())
		}
		return errors.Join(errs...)
	}
	if !prepared {
		return s, closes, nil
	}
	for _, p := range []struct {
		to   **sql.Stmt
		text string
	}{{&s.lock, s.texts.lock}, {&s.raise, s.texts.raise}, {&s.refund, s.texts.refund}, {&s.ledger, s.texts.ledger}} {
		if *p.to, err = pool.PrepareContext(ctx, p.text); err != nil {
			return nil, nil, errors.Join(err, closes())
		}
		made = append(made, *p.to)
	}
	return s, closes, nil
}

func (s *steps) exec(ctx context.Context, tx *sql.Tx, p *sql.Stmt, text string, args ...any) error {
	var err error
	if p == nil {
		_, err = tx.ExecContext(ctx, text, args...)
	} else {
		_, err = tx.StmtContext(ctx, p).ExecContext(ctx, args...)
	}
	return err
}

func (s *steps) run(ctx context.Context, tx *sql.Tx, order int64, key string) error {
	var paid, refunded int64
	row := func() *sql.Row {
		if s.lock == nil {
			return tx.QueryRowContext(ctx, s.texts.lock, order)
		}
		return tx.StmtContext(ctx, s.lock).QueryRowContext(ctx, order)
	}()
	if err := row.Scan(&paid, &refunded); err != nil {
		return err
	}
	if refunded+Cents > paid {
		return ErrOverpaid
	}
	raise := []any{int64(Cents), order}
	if s.engine == sqlengine.Postgres {
		raise = []any{order, int64(Cents)}
	}
	if err := s.exec(ctx, tx, s.raise, s.texts.raise, raise...); err != nil {
		return err
	}
	if err := s.exec(ctx, tx, s.refund, s.texts.refund, key, order, int64(Cents)); err != nil {
		return err
	}
	return s.exec(ctx, tx, s.ledger, s.texts.ledger, order, int64(Cents))
}

// bareSQL is the transaction without a key.
func bareSQL(prepared bool) func(context.Context, *sqlengine.Engine, holdfast.Observer) (Do, func() error, error) {
	return func(ctx context.Context, e *sqlengine.Engine, _ holdfast.Observer) (Do, func() error, error) {
		s, closes, err := newSteps(ctx, e, e.SQL, prepared)
		if err != nil {
			return nil, nil, err
		}
		return func(ctx context.Context, order int64, key string) error {
			tx, err := e.SQL.BeginTx(ctx, nil)
			if err != nil {
				return err
			}
			if err := s.run(ctx, tx, order, key); err != nil {
				return errors.Join(err, tx.Rollback())
			}
			return tx.Commit()
		}, closes, nil
	}
}

// doSQL is the transaction under Do.
func doSQL(prepared bool) func(context.Context, *sqlengine.Engine, holdfast.Observer) (Do, func() error, error) {
	return func(ctx context.Context, e *sqlengine.Engine, observe holdfast.Observer) (Do, func() error, error) {
		s, closes, err := newSteps(ctx, e, e.SQL, prepared)
		if err != nil {
			return nil, nil, err
		}
		db, err := holdfastsql.Open(ctx, e.SQL, holdfast.Options{Observers: []holdfast.Observer{observe}})
		if err != nil {
			return nil, nil, errors.Join(err, closes())
		}
		do, _, err := under(ctx, db, s.run)
		if err != nil {
			return nil, nil, errors.Join(err, closes())
		}
		return do, closes, nil
	}
}

// lookSQL reads a refund by its number.
func lookSQL(_ context.Context, e *sqlengine.Engine, _ holdfast.Observer) (Do, func() error, error) {
	text := textsOf(e.Name).look
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
	do, _, err := under(ctx, db, s.run)
	return do, err
}
