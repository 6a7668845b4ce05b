package refunds

import (
	"context"
	"database/sql"
	"errors"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/adapters/holdfastsql"
	"github.com/holdfast-go/holdfast/bench/internal/sqlengine"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/idempotency/businessrow"
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
	if key != "" {
		if err := s.exec(ctx, tx, s.refund, s.texts.refund, key, order, int64(Cents)); err != nil {
			return err
		}
	}
	return s.exec(ctx, tx, s.ledger, s.texts.ledger, order, int64(Cents))
}

// others runs the steps but for the insert of the refund's row.
func (s *steps) others(ctx context.Context, tx *sql.Tx, order int64) error {
	return s.run(ctx, tx, order, "")
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

// own is the program's pool, and connected the one with Holdfast's connector.
func own(e *sqlengine.Engine) *sql.DB       { return e.SQL }
func connected(e *sqlengine.Engine) *sql.DB { return e.Connected }

// way protects a transaction of steps.
type way func(ctx context.Context, db *holdfast.DB[*sql.Tx], pool *sql.DB, s *steps) (Do, error)

func do(ctx context.Context, db *holdfast.DB[*sql.Tx], _ *sql.DB, s *steps) (Do, error) {
	f, _, err := under(ctx, db, s.run)
	return f, err
}

// doTx makes the refund in a transaction of the program's own.
func doTx(ctx context.Context, db *holdfast.DB[*sql.Tx], pool *sql.DB, s *steps) (Do, error) {
	store, err := idempotency.New(ctx, db, idempotency.Options{Namespace: "bench"})
	return func(ctx context.Context, order int64, key string) error {
		tx, err := pool.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		_, err = idempotency.DoTx(ctx, store, tx, idempotency.Op{Name: "refund", Key: key, Request: request{order, Cents}},
			func(ctx context.Context, tx *sql.Tx) (string, error) { return key, s.run(ctx, tx, order, key) })
		if err != nil {
			return errors.Join(err, tx.Rollback())
		}
		return tx.Commit()
	}, err
}

// row is a refund.
type row struct {
	No    string `db:"refund_no"`
	Order int64  `db:"order_id"`
	Cents int64  `db:"cents"`
}

// tableDo claims the refund's own row, so that the steps insert none.
func tableDo(ctx context.Context, db *holdfast.DB[*sql.Tx], _ *sql.DB, s *steps) (Do, error) {
	refunds, err := businessrow.New[row](ctx, db, holdfast.TableSpec{Table: "refunds", Key: []string{"refund_no"}},
		businessrow.Options{Compare: []string{"order_id", "cents"}})
	return func(ctx context.Context, order int64, key string) error {
		_, err := refunds.Do(ctx, row{key, order, Cents}, func(ctx context.Context, tx *sql.Tx) error { return s.others(ctx, tx, order) })
		return err
	}, err
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
