package holdfastgorm_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/libtnb/sqlite"
	"gorm.io/driver/mysql"
	"gorm.io/driver/postgres"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/holdfastgorm"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/idempotency/businessrow"
	"github.com/holdfast-go/holdfast/idempotency/staged"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
	"github.com/holdfast-go/holdfast/migrations"
	"github.com/holdfast-go/holdfast/optimistic"
	"github.com/holdfast-go/holdfast/sqllock/rowlock"
)

// GORM's cache of prepared statements starts a goroutine that never ends.
func TestMain(m *testing.M) {
	dbtest.VerifyNoLeaks(m, "gorm.io/gorm/internal/lru.NewLRU[...].func1")
}

// Account is a model with everything that a mapping by db tags could not read.
type Account struct {
	gorm.Model

	OwnerName string
	Limits    Limits `gorm:"embedded;embeddedPrefix:limit_"`
	*Extra
	Version int64  `gorm:"not null"`
	Note    string `gorm:"-"`
}

// Limits is embedded with a prefix, Extra by a pointer.
type Limits struct {
	Daily int64 `gorm:"column:per_day"`
}

// Extra is embedded by a pointer.
type Extra struct{ Country string }

// Refund is a business row.
type Refund struct {
	RefundNo  holdfastgorm.Key `gorm:"primaryKey;not null;size:64"`
	Cents     int64
	CreatedAt time.Time
	UpdatedMs int64 `gorm:"autoUpdateTime:milli"`
}

// Payment is a business row as GORM's users write it: the database makes its primary key.
type Payment struct {
	gorm.Model

	PaymentNo holdfastgorm.Key `gorm:"uniqueIndex;not null;size:64"`
	Cents     int64
}

// Charge is a business row with defaults.
type Charge struct {
	ChargeNo holdfastgorm.Key `gorm:"primaryKey;not null;size:64"`
	Cents    int64
	Status   string  `gorm:"size:20;default:pending"`
	Tries    int64   `gorm:"default:3"`
	Comment  *string `gorm:"size:20;default:null"`
}

// Folded is a business row as AutoMigrate makes it.
type Folded struct {
	RefundNo string `gorm:"primaryKey;not null;size:64"`
	Cents    int64
}

// world is GORM on one engine, with tables that AutoMigrate made.
type world struct {
	*testing.T
	engine dbtest.Engine
	gorm   *gorm.DB
	db     *holdfast.DB[*sql.Tx]
	store  *idempotency.Store[*sql.Tx]
}

func each(t *testing.T, f func(w *world)) {
	t.Helper()
	for mode, config := range map[string]gorm.Config{"Default": {}, "PrepareStmtSkip": {PrepareStmt: true, SkipDefaultTransaction: true}} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			dbtest.Each(t, func(t *testing.T, e dbtest.Engine) {
				w := &world{T: t, engine: e}
				dsn := dbtest.DSN(t, e)
				if e.Like() == dbtest.MySQL {
					dsn = dbtest.With(dsn, "parseTime=true") // as GORM asks for
				}
				pool := dbtest.OpenSQL(t, dsn)
				w.must(migrations.Up(t.Context(), pool))
				var dialect gorm.Dialector
				switch e.Like() {
				case dbtest.Postgres:
					dialect = postgres.New(postgres.Config{Conn: pool})
				case dbtest.SQLite:
					dialect = sqlite.New(sqlite.Config{Conn: pool})
				default:
					dialect = mysql.New(mysql.Config{Conn: pool})
				}
				config := config
				config.Logger = logger.Discard
				var err error
				w.gorm, err = gorm.Open(dialect, &config)
				w.must(err)
				w.must(w.gorm.AutoMigrate(&Account{}, &Refund{}, &Payment{}, &Charge{}, &Folded{}))
				w.db, err = holdfastgorm.Open(t.Context(), w.gorm, holdfast.Options{SingleOwner: true})
				w.must(err)
				w.store, err = idempotency.New(t.Context(), w.db)
				w.must(err)
				f(w)
			})
		})
	}
}

func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

func (w *world) refunds() (n int64) {
	w.Helper()
	w.must(w.gorm.Model(&Refund{}).Count(&n).Error)
	return n
}

func op(key string) idempotency.Op {
	return idempotency.Op{Name: "refund", Key: key, Request: key}
}

var errBoom = errors.New("boom")

func create(no string, end error) func(tx *gorm.DB) (string, error) {
	return func(tx *gorm.DB) (string, error) {
		return "refund " + no, errors.Join(tx.Create(&Refund{RefundNo: holdfastgorm.Key(no), Cents: 100}).Error, end)
	}
}

func TestTransactions(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		ctx := w.Context()
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				if r, err := holdfastgorm.Do(ctx, w.gorm, w.store, op("1"), create("1", nil)); err != nil || r.Value != "refund 1" {
					w.Errorf("%+v, %v", r, err)
				}
			})
		}
		wg.Wait()
		if n := w.refunds(); n != 1 {
			w.Errorf("%d refunds, want 1", n)
		}
		if _, err := holdfastgorm.Do(ctx, w.gorm, w.store, op("2"), create("2", errBoom)); !errors.Is(err, errBoom) {
			w.Error(err)
		}
		for _, want := range []idempotency.Outcome{idempotency.Executed, idempotency.Replayed} {
			w.must(w.gorm.WithContext(ctx).Transaction(func(tx *gorm.DB) error {
				r, err := holdfastgorm.DoTx(ctx, w.store, tx, op("3"), create("3", nil))
				if err == nil && r.Outcome != want {
					w.Errorf("%v, want %v", r.Outcome, want)
				}
				return err
			}))
		}
		err := w.gorm.Transaction(func(tx *gorm.DB) error {
			_, err := holdfastgorm.DoTx(ctx, w.store, tx, op("4"), create("4", errBoom))
			return err
		})
		if !errors.Is(err, errBoom) {
			w.Error(err)
		}
		w.must(holdfastgorm.InTx(ctx, w.gorm, w.db, func(tx *gorm.DB) error {
			_, err := create("5", nil)(tx)
			return err
		}))
		if n := w.refunds(); n != 3 {
			w.Errorf("%d refunds, want those of 1, 3 and 5", n)
		}
		if _, err := holdfastgorm.Tx(w.gorm); !errors.Is(err, holdfast.ErrNoTx) {
			w.Errorf("outside of a transaction: %v", err)
		}
		if _, err := holdfastgorm.DoTx(ctx, w.store, w.gorm, op("6"), create("6", nil)); !errors.Is(err, holdfast.ErrNoTx) {
			w.Errorf("outside of a transaction: %v", err)
		}
	})
}

// TestTransaction writes before, in and after DoTx: all of it commits or nothing, but a verdict stays.
func TestTransaction(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		do := func(no string, verdict, end error) (idempotency.Result[string], error) {
			return holdfastgorm.Transaction(w.Context(), w.gorm, w.db, func(tx *gorm.DB) (idempotency.Result[string], error) {
				res, err := holdfastgorm.DoTx(w.Context(), w.store, tx, op(no), create(no, verdict))
				if err != nil || res.Outcome == idempotency.Replayed {
					return res, err
				}
				_, err = create(no+" after", end)(tx)
				return res, err
			})
		}
		for _, want := range []idempotency.Outcome{idempotency.Executed, idempotency.Replayed} {
			if r, err := do("1", nil, nil); err != nil || r.Outcome != want || r.Value != "refund 1" {
				w.Errorf("%+v, %v, want it %v", r, err, want)
			}
			var rejection *idempotency.Rejection
			if r, err := do("2", idempotency.Reject("no", "no"), nil); !errors.As(err, &rejection) || r.Outcome != want {
				w.Errorf("%+v, %v, want a rejection that is %v", r, err, want)
			}
			if _, err := do("3", nil, errBoom); !errors.Is(err, errBoom) {
				w.Errorf("an error after the call: %v", err)
			}
			if _, err := do("4", errBoom, nil); !errors.Is(err, errBoom) {
				w.Errorf("an error in the call: %v", err)
			}
			if _, err := do("6", nil, idempotency.Reject("no", "no")); !errors.As(err, &rejection) {
				w.Errorf("a rejection after the call: %v", err)
			}
			_, err := holdfastgorm.Transaction(w.Context(), w.gorm, w.db, func(tx *gorm.DB) (idempotency.Result[string], error) {
				res, err := holdfastgorm.DoTx(w.Context(), w.store, tx, op("7"), create("7", nil))
				w.must(err)
				_, err = holdfastgorm.DoTx(w.Context(), w.store, tx, op("8"), create("8", idempotency.Reject("no", "no")))
				return res, err
			})
			if !errors.As(err, &rejection) {
				w.Errorf("a rejection after another call: %v", err)
			}
			r, err := holdfastgorm.Transaction(w.Context(), w.gorm, w.db, func(tx *gorm.DB) (idempotency.Result[string], error) {
				return holdfastgorm.DoTx(w.Context(), w.store, tx.WithContext(w.Context()), op("9"), create("9", idempotency.Reject("no", "no")))
			})
			if !errors.As(err, &rejection) || r.Outcome != want {
				w.Errorf("with a context of the program's: %+v, %v, want a rejection that is %v", r, err, want)
			}
			_, err = holdfastgorm.Transaction(w.Context(), w.gorm, w.db, func(tx *gorm.DB) (r idempotency.Result[string], err error) {
				_, err = create("5", idempotency.Reject("no", "no"))(tx)
				return r, err
			})
			if !errors.As(err, &rejection) {
				w.Errorf("a rejection of no call: %v", err)
			}
		}
		if n := w.refunds(); n != 2 {
			w.Errorf("%d refunds, want the two of 1", n)
		}
	})
}

// TestStart begins a staged operation in GORM's own transaction: nothing of it runs before the commit,
// and it is gone with a rollback.
func TestStart(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		runs := make(chan string, 2)
		runner, err := staged.New(w.store, staged.Workflow[string, string, *sql.Tx]{
			Name: "pay", Run: func(_ context.Context, _ *staged.Run[*sql.Tx], no string) (string, error) {
				runs <- no
				return "paid " + no, nil
			},
		})
		w.must(err)
		ctx, stop := context.WithCancel(w.Context())
		var completer sync.WaitGroup
		completer.Go(func() { _ = runner.RunCompleter(ctx, staged.RunOptions{Every: time.Hour}) })
		defer completer.Wait()
		defer stop()
		start := func(no string, end error) (started *staged.Started[string], err error) {
			return started, w.gorm.WithContext(w.Context()).Transaction(func(tx *gorm.DB) error {
				own, err := holdfastgorm.Tx(tx)
				if err != nil {
					return err
				}
				if started, err = runner.StartTx(w.Context(), own, idempotency.Op{Key: no}, no); err != nil {
					return err
				}
				if _, err := create(no, nil)(tx); err != nil {
					return err
				}
				return end
			})
		}
		if _, err := start("undone", errBoom); !errors.Is(err, errBoom) {
			w.Errorf("got %v", err)
		}
		started, err := start("done", nil)
		w.must(err)
		started.Committed()
		r, err := started.Wait(w.Context())
		w.must(err)
		if r.Value != "paid done" || len(runs) != 1 || <-runs != "done" || w.refunds() != 1 {
			w.Errorf("got %+v, %d more runs, %d refunds", r, len(runs), w.refunds())
		}
	})
}

// TestModels writes a gorm.Model with GORM, and changes it with Holdfast's struct forms.
func TestModels(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		ctx := w.Context()
		a := Account{OwnerName: "Ada", Limits: Limits{Daily: 100}, Extra: &Extra{Country: "GB"}, Version: 1}
		w.must(w.gorm.Create(&a).Error)
		spec, err := holdfastgorm.Spec[Account](w.gorm)
		w.must(err)
		if spec.Table != "accounts" || strings.Join(spec.Key, ",") != "id" {
			w.Errorf("%+v", spec)
		}
		accounts, err := optimistic.New[Account](ctx, w.db, spec)
		w.must(err)
		read, err := accounts.Get(ctx, Account{Model: gorm.Model{ID: a.ID}})
		w.must(err)
		if read.OwnerName != "Ada" || read.Limits.Daily != 100 || read.Country != "GB" || read.CreatedAt.IsZero() {
			w.Errorf("%+v", read)
		}
		stale := read
		read.Limits.Daily = 250
		before := read.UpdatedAt
		written, err := accounts.Update(ctx, read)
		w.must(err)
		if !written.UpdatedAt.After(before) || !written.CreatedAt.Equal(stale.CreatedAt) {
			w.Errorf("wrote %v and %v", written.CreatedAt, written.UpdatedAt)
		}
		if _, err := accounts.Update(ctx, stale); !errors.Is(err, optimistic.ErrConflict) {
			w.Errorf("a lost update: %v", err)
		}
		var found Account
		w.must(w.gorm.First(&found, a.ID).Error)
		if found.Limits.Daily != 250 || found.Version != 2 || found.Country != "GB" || !found.UpdatedAt.After(before) {
			w.Errorf("%+v", found)
		}

		bare, err := accounts.Insert(ctx, Account{Model: gorm.Model{ID: 77}, OwnerName: "Bo"}) // without Extra
		w.must(err)
		var second Account
		w.must(w.gorm.First(&second, "owner_name = ?", "Bo").Error)
		if bare.Version != 1 || second.Version != 1 || second.Extra != nil && second.Country != "" {
			w.Errorf("%+v, and stored is %+v", bare, second)
		}

		locked, err := rowlock.NewTable[Account](ctx, w.db, spec)
		w.must(err)
		w.must(holdfastgorm.InTx(ctx, w.gorm, w.db, func(tx *gorm.DB) error {
			own, err := holdfastgorm.Tx(tx)
			if err != nil {
				return err
			}
			rows, err := locked.LockTx(ctx, own, holdfast.Forever, Account{Model: gorm.Model{ID: a.ID}})
			if err == nil && rows[0].Limits.Daily != 250 {
				w.Errorf("%+v", rows)
			}
			return err
		}))
	})
}

// TestModelAsBusinessRow claims rows of a gorm.Model, one and many at a time: they have the times that GORM
// fills, and a primary key that the database made.
func TestModelAsBusinessRow(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		ctx := w.Context()
		spec, err := holdfastgorm.Spec[Payment](w.gorm, "payment_no")
		w.must(err)
		payments, err := businessrow.New[Payment](ctx, w.db, spec, businessrow.Options{Compare: []string{"cents"}})
		w.must(err)
		row := func(no string) Payment { return Payment{PaymentNo: holdfastgorm.Key(no), Cents: 100} }
		claimed := map[string][]Payment{}
		keep := func(of Payment, outcome, want idempotency.Outcome) {
			w.Helper()
			if outcome != want {
				w.Errorf("%s: %v, want %v", of.PaymentNo, outcome, want)
			}
			claimed[string(of.PaymentNo)] = append(claimed[string(of.PaymentNo)], of)
		}
		for _, want := range []idempotency.Outcome{idempotency.Executed, idempotency.Replayed} {
			for _, no := range []string{"1", "2"} {
				r, err := payments.Do(ctx, row(no), func(context.Context, *sql.Tx) error { return nil })
				w.must(err)
				keep(r.Value, r.Outcome, want)
			}
			w.must(holdfastgorm.InTx(ctx, w.gorm, w.db, func(tx *gorm.DB) error {
				own, err := holdfastgorm.Tx(tx)
				if err != nil {
					return err
				}
				one, err := payments.ClaimTx(ctx, own, row("3"))
				if err != nil {
					return err
				}
				keep(one.Value, one.Outcome, want)
				many, err := payments.ClaimAllTx(ctx, own, []Payment{row("4"), row("5")})
				for _, a := range many {
					keep(a.Row, a.Outcome, want)
				}
				return err
			}))
		}
		for no, rows := range claimed {
			var found Payment
			w.must(w.gorm.First(&found, "payment_no = ?", holdfastgorm.Key(no)).Error)
			for _, r := range rows {
				if r.ID == 0 || r.ID != found.ID || time.Since(r.CreatedAt).Abs() > time.Hour || time.Since(found.UpdatedAt).Abs() > time.Hour {
					w.Errorf("%+v, and stored is %+v", r, found)
				}
			}
		}
		if len(claimed) != 5 {
			w.Errorf("%d payments, want 5", len(claimed))
		}
		made := row("6")
		made.ID = 7
		if _, err := payments.Do(ctx, made, func(context.Context, *sql.Tx) error { return nil }); !errors.Is(err, holdfast.ErrInvalid) {
			w.Errorf("an id of the caller's: %v", err)
		}
	})
}

// TestDefaults claims rows that leave to a default what GORM would, and has models refused of which Holdfast would
// store something else.
func TestDefaults(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		ctx := w.Context()
		spec, err := holdfastgorm.Spec[Charge](w.gorm)
		w.must(err)
		charges, err := businessrow.New[Charge](ctx, w.db, spec, businessrow.Options{Compare: []string{"cents", "status"}})
		w.must(err)
		for _, want := range []idempotency.Outcome{idempotency.Executed, idempotency.Replayed} {
			r, err := charges.Do(ctx, Charge{ChargeNo: "1", Cents: 100}, func(context.Context, *sql.Tx) error { return nil })
			if err != nil || r.Outcome != want || r.Value.Status != "pending" || r.Value.Tries != 3 {
				w.Errorf("%+v, %v, want it %v", r, err, want)
			}
		}
		comment := "x"
		_, err = charges.Do(ctx, Charge{ChargeNo: "2", Status: "new", Tries: 1, Comment: &comment}, func(context.Context, *sql.Tx) error { return nil })
		w.must(err)
		var found []Charge
		w.must(w.gorm.Order("charge_no").Find(&found).Error)
		if len(found) != 2 || found[0] != (Charge{"1", 100, "pending", 3, nil}) || found[1].Comment == nil || *found[1].Comment != "x" || found[1].Status != "new" || found[1].Tries != 1 {
			w.Errorf("%+v", found)
		}
		type createOnly struct {
			ChargeNo holdfastgorm.Key `gorm:"primaryKey"`
			Cents    int64            `gorm:"<-:create"`
		}
		type readOnly struct {
			ChargeNo holdfastgorm.Key `gorm:"primaryKey"`
			Cents    int64            `gorm:"->"`
		}
		type expression struct {
			ChargeNo holdfastgorm.Key `gorm:"primaryKey"`
			Cents    int64            `gorm:"default:(1 + 1)"`
		}
		type null struct {
			ChargeNo holdfastgorm.Key `gorm:"primaryKey"`
			Cents    int64            `gorm:"default:null"`
		}
		type Stamps struct {
			Cents int64 `gorm:"default:1"`
		}
		type pointed struct {
			*Stamps

			ChargeNo holdfastgorm.Key `gorm:"primaryKey"`
		}
		type counted struct {
			ChargeNo holdfastgorm.Key `gorm:"primaryKey"`
			Tries    int64            `gorm:"autoIncrement"`
		}
		_, err = businessrow.New[counted](ctx, w.db, spec)
		w.must(err)
		_, err4 := businessrow.New[null](ctx, w.db, spec)
		_, err1 := businessrow.New[createOnly](ctx, w.db, spec)
		_, err2 := businessrow.New[readOnly](ctx, w.db, spec)
		_, err3 := businessrow.New[expression](ctx, w.db, spec)
		_, err5 := businessrow.New[pointed](ctx, w.db, spec)
		for _, err := range []error{err1, err2, err3, err4, err5} {
			if !errors.Is(err, holdfast.ErrInvalid) || !strings.Contains(err.Error(), "Cents") {
				w.Errorf("a model of which Holdfast stores another value: %v", err)
			}
		}
	})
}

// TestKeys checks that a key that AutoMigrate made folding is refused, and that Key distinguishes
// what differs.
func TestKeys(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		ctx := w.Context()
		folded, err := holdfastgorm.Spec[Folded](w.gorm)
		w.must(err)
		_, err = businessrow.New[Folded](ctx, w.db, folded)
		if folds := w.engine.Like() == dbtest.MySQL; folds != errors.Is(err, holdfast.ErrInvalid) || !folds && err != nil {
			w.Errorf("a string: %v", err)
		}
		spec, err := holdfastgorm.Spec[Refund](w.gorm)
		w.must(err)
		refunds, err := businessrow.New[Refund](ctx, w.db, spec, businessrow.Options{Compare: []string{"cents"}})
		w.must(err)
		twins := []string{"r-1", "R-1", "r-1 ", "ŕ-1"}
		for range 2 {
			for _, no := range twins {
				row := Refund{RefundNo: holdfastgorm.Key(no), Cents: 100}
				_, err := refunds.Do(ctx, row, func(context.Context, *sql.Tx) error { return nil })
				w.must(err)
			}
		}
		var found Refund
		w.must(w.gorm.First(&found, "refund_no = ?", holdfastgorm.Key("r-1 ")).Error)
		if n := w.refunds(); n != int64(len(twins)) || found.RefundNo != "r-1 " || found.CreatedAt.IsZero() || time.Since(time.UnixMilli(found.UpdatedMs)) > time.Hour {
			w.Errorf("%d refunds, want %d; %+v", n, len(twins), found)
		}
	})
}

// Serialized has a field that GORM alone can store.
type Serialized struct {
	ID   uint
	Tags []string `gorm:"serializer:json"`
}

func TestRefusedModels(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		w.must(w.gorm.AutoMigrate(&Serialized{}))
		spec, err := holdfastgorm.Spec[Serialized](w.gorm)
		w.must(err)
		if _, err := rowlock.NewTable[Serialized](w.Context(), w.db, spec); !errors.Is(err, holdfast.ErrInvalid) || !strings.Contains(fmt.Sprint(err), "serializer") {
			w.Errorf("a serializer: %v", err)
		}
		if _, err := holdfastgorm.Open(w.Context(), nil); !errors.Is(err, holdfast.ErrInvalid) {
			w.Errorf("no db: %v", err)
		}
	})
}
