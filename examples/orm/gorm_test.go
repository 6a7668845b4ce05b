package orm_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"

	"gorm.io/driver/mysql"
	"gorm.io/driver/postgres"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"
	"gorm.io/gorm/utils/tests"

	"github.com/holdfast-go/holdfast/examples/orm"
	"github.com/holdfast-go/holdfast/holdfastgorm"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
)

// lite is a minimal SQLite dialect for GORM. GORM's own SQLite dialects bring their own
// drivers: one needs cgo, and the other registers under the same name as modernc.org/sqlite.
type lite struct{ tests.DummyDialector }

func (lite) SavePoint(tx *gorm.DB, name string) error { return tx.Exec("SAVEPOINT " + name).Error }

func (lite) RollbackTo(tx *gorm.DB, name string) error {
	return tx.Exec("ROLLBACK TO SAVEPOINT " + name).Error
}

func openGORM(s *shop, config gorm.Config) *orm.GORM {
	s.Helper()
	config.Logger = logger.Discard
	var dialect gorm.Dialector
	switch {
	case s.engine == dbtest.Postgres:
		dialect = postgres.New(postgres.Config{Conn: s.pool})
	case s.innoDB():
		dialect = mysql.New(mysql.Config{Conn: s.pool})
	default:
		config.ConnPool = s.pool
		dialect = lite{}
	}
	db, err := gorm.Open(dialect, &config)
	s.must(err)
	return &orm.GORM{Holdfast: s.holdfast(), Gorm: db}
}

// gormModes are the settings that change how GORM begins transactions and writes.
var gormModes = map[string]gorm.Config{
	"Default":         {},
	"PrepareStmtSkip": {PrepareStmt: true, SkipDefaultTransaction: true},
}

func eachGORM(t *testing.T, f func(t *testing.T, s *shop, g *orm.GORM)) {
	for mode, config := range gormModes {
		for name, open := range map[string]func(*testing.T, dbtest.Engine) *shop{mode: open, mode + "Connector": openConnected} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				dbtest.Each(t, func(t *testing.T, e dbtest.Engine) {
					s := open(t, e)
					f(t, s, openGORM(s, config))
				})
			})
		}
	}
}

func TestGORM(t *testing.T) {
	eachGORM(t, func(t *testing.T, s *shop, g *orm.GORM) {
		suite(t, s, g)
		settles(t, s, g.Holdfast, g)
	})
}

func TestGORMSwallowedErrors(t *testing.T) {
	eachGORM(t, func(t *testing.T, s *shop, g *orm.GORM) {
		swallowed(t, s, g.Holdfast, func(ctx context.Context, tx *sql.Tx) writer {
			bound := holdfastgorm.On(ctx, g.Gorm, tx)
			return writer{
				exec:   func(query string) error { return bound.Exec(query).Error },
				create: func(r orm.Refund) error { return bound.Create(&r).Error },
			}
		})
	})
}

// In a transaction that GORM began, no fence protects the statements after a swallowed error,
// so this form loses the record. When the function returns the error, GORM rolls back.
func TestGORMSwallowedErrorInItsOwnTransaction(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, e dbtest.Engine) {
		s := open(t, e)
		g := openGORM(s, gorm.Config{})
		op := idempotency.Op{Name: "careless", Key: "1", NoFingerprint: true}
		run := func(careful bool) error {
			return g.Gorm.WithContext(t.Context()).Transaction(func(tx *gorm.DB) error {
				own, err := holdfastgorm.Tx(tx)
				s.must(err)
				_, err = idempotency.DoTx(t.Context(), g.Store, own, op, func(context.Context, *sql.Tx) (string, error) {
					if err := s.lose(func(query string) error { return tx.Exec(query).Error }); careful {
						return "", err
					}
					return "", tx.Create(&paid).Error
				})
				return err
			})
		}
		if err := run(true); err == nil {
			t.Error("the error was returned, and got lost")
		}
		s.wantBooks(0, 0, 0)
		if err := run(false); err == nil {
			t.Error("a transaction that is gone was committed")
		}
		stands := int64(1) // an effect without its record
		if e == dbtest.Postgres {
			stands = 0 // PostgreSQL refuses statements after an error
		}
		s.wantBooks(stands, 0, 0)
	})
}

// A deadlock that is returned rolls everything back, and GORM's whole transaction runs again.
func TestGORMDeadlockIsRunAgain(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, e dbtest.Engine) {
		s := open(t, e)
		if !s.innoDB() {
			t.Skip("the error that lose makes there says nothing of running it again")
		}
		g := openGORM(s, gorm.Config{})
		runs := 0
		s.must(orm.Again(t.Context(), g.DB, func() error {
			return g.Gorm.WithContext(t.Context()).Transaction(func(tx *gorm.DB) error {
				own, err := holdfastgorm.Tx(tx)
				s.must(err)
				op := idempotency.Op{Name: "again", Key: "1", NoFingerprint: true}
				_, err = idempotency.DoTx(t.Context(), g.Store, own, op, func(context.Context, *sql.Tx) (string, error) {
					err := tx.Create(&paid).Error
					if runs++; runs == 1 {
						err = s.lose(func(query string) error { return tx.Exec(query).Error })
					}
					return "", err
				})
				return err
			})
		}))
		if runs != 2 {
			t.Errorf("%d runs, want 2", runs)
		}
		s.wantBooks(1, 1, 0)
	})
}

// hooked has a hook. GORM runs it in the transaction of the write, which GORM begins itself
// unless SkipDefaultTransaction is set.
type hooked struct {
	OrderNo string
	found   error
}

func (*hooked) TableName() string { return "refunds" }

func (h *hooked) BeforeCreate(tx *gorm.DB) error {
	_, h.found = holdfastgorm.Tx(tx)
	return errors.New("no further")
}

// A pool is not a transaction: a record written through it would commit on its own.
func TestGORMOutsideOfATransaction(t *testing.T) {
	eachGORM(t, func(t *testing.T, _ *shop, g *orm.GORM) {
		if tx, err := holdfastgorm.Tx(g.Gorm); err == nil {
			t.Errorf("found %v", tx)
		}
		if tx, err := holdfastgorm.Tx(g.Gorm.WithContext(t.Context()).Where("cents > 0")); err == nil {
			t.Errorf("found %v", tx)
		}
		row := hooked{}
		if err := g.Gorm.Create(&row).Error; err == nil {
			t.Error("the hook did not run")
		}
		if skip := g.Gorm.SkipDefaultTransaction; (row.found != nil) != skip {
			t.Errorf("in a hook, with SkipDefaultTransaction %v: %v", skip, row.found)
		}
	})
}

// GORM's nested transactions are savepoints.
func TestGORMNestedTransactions(t *testing.T) {
	boom := errors.New("boom")
	once := func(ctx context.Context, g *orm.GORM, tx *gorm.DB, r orm.Refund, end error) error {
		own, err := holdfastgorm.Tx(tx)
		if err != nil {
			return err
		}
		op := idempotency.Op{Name: "nested", Key: r.RefundNo, NoFingerprint: true}
		_, err = idempotency.DoTx(ctx, g.Store, own, op, func(context.Context, *sql.Tx) (string, error) {
			if err := tx.Create(&r).Error; err != nil {
				return "", err
			}
			return "", end
		})
		return err
	}
	first, second := paid, paid
	second.RefundNo = "2"

	eachGORM(t, func(t *testing.T, s *shop, g *orm.GORM) {
		ctx := t.Context()
		begin := g.Gorm.WithContext(ctx)

		// If a nested transaction fails and its error is ignored, its record is rolled back with
		// it, and the outer transaction is unchanged.
		s.must(begin.Transaction(func(tx *gorm.DB) error {
			if err := once(ctx, g, tx, first, nil); err != nil {
				return err
			}
			_ = tx.Transaction(func(tx *gorm.DB) error {
				if err := once(ctx, g, tx, second, nil); err != nil {
					return err
				}
				return boom
			})
			return nil
		}))
		s.wantBooks(1, 1, 0)

		// If the function of DoTx fails, Holdfast rolls back the whole transaction, not only to
		// GORM's savepoint. If that error is ignored, the commit fails.
		s.exec(`DELETE FROM refunds`)
		s.exec(`DELETE FROM holdfast_records`)
		err := begin.Transaction(func(tx *gorm.DB) error {
			if err := once(ctx, g, tx, first, nil); err != nil {
				return err
			}
			_ = tx.Transaction(func(tx *gorm.DB) error { return once(ctx, g, tx, second, boom) })
			_ = tx.Create(&paid) // fails before it reaches a connection
			return nil
		})
		if !errors.Is(err, sql.ErrTxDone) {
			t.Errorf("commit: %v, want %v", err, sql.ErrTxDone)
		}
		s.wantBooks(0, 0, 0)

		// Inside the function, a nested transaction that fails is rolled back alone. With
		// DisableNestedTransaction it is not rolled back: its writes commit with the record.
		for _, flat := range []bool{false, true} {
			s.exec(`DELETE FROM refunds`)
			s.exec(`DELETE FROM holdfast_records`)
			_, err := idempotency.Do(ctx, g.Store, idempotency.Op{Name: "nested", Key: "1", NoFingerprint: true}, func(ctx context.Context, tx *sql.Tx) (string, error) {
				bound := holdfastgorm.On(ctx, g.Gorm, tx).Session(&gorm.Session{DisableNestedTransaction: flat})
				if err := bound.Create(&first).Error; err != nil {
					return "", err
				}
				_ = bound.Transaction(func(tx *gorm.DB) error { return errors.Join(tx.Create(&second).Error, boom) })
				return "", nil
			})
			s.must(err)
			if flat {
				s.wantBooks(2, 1, 0)
			} else {
				s.wantBooks(1, 1, 0)
			}
		}

		// CreateInBatches is a nested transaction too.
		s.exec(`DELETE FROM refunds`)
		s.exec(`DELETE FROM holdfast_records`)
		batch := []orm.Refund{first, second, first}
		_, err = idempotency.Do(ctx, g.Store, idempotency.Op{Name: "batch", Key: "1", NoFingerprint: true}, func(ctx context.Context, tx *sql.Tx) (string, error) {
			return "", holdfastgorm.On(ctx, g.Gorm, tx).CreateInBatches(&batch, 2).Error
		})
		s.must(err)
		s.wantBooks(3, 1, 0)
	})
}

// A write through the outer handle bypasses the transaction. It is committed even though the
// function failed and its record was rolled back. Nothing can detect this.
func TestGORMWritePastTheTransaction(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, e dbtest.Engine) {
		if e == dbtest.SQLite {
			t.Skip("there the write would wait for the transaction, which is the one writer")
		}
		s := open(t, e)
		g := openGORM(s, gorm.Config{})
		_, err := idempotency.Do(t.Context(), g.Store, idempotency.Op{Name: "past", Key: "1", NoFingerprint: true}, func(ctx context.Context, _ *sql.Tx) (string, error) {
			return "", errors.Join(g.Gorm.WithContext(ctx).Create(&paid).Error, errors.New("boom"))
		})
		if err == nil {
			t.Error("the function's error got lost")
		}
		s.wantBooks(1, 0, 0)
	})
}
