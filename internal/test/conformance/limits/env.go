// Package limits contains the suites of limits.
package limits

import (
	"context"
	"database/sql"
	"errors"
	"testing"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/test/conformance"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
	"github.com/holdfast-go/holdfast/limits"
)

// env is one test, with the helpers of these suites.
type env[Tx any] struct{ *conformance.Env[Tx] }

// Suite is the suite of limits, in Holdfast's table and in the program's own.
func Suite[Tx any](t *testing.T, h conformance.Handle[Tx]) {
	t.Helper()
	for name, f := range map[string]func(*env[Tx]){
		"TwoRefundsOfSixty":   twoRefundsOfSixty[Tx],
		"StaleSnapshot":       staleSnapshot[Tx],
		"TakenOnceForAnID":    takenOnceForAnID[Tx],
		"ReservationLife":     reservationLife[Tx],
		"EndedIsEnded":        endedIsEnded[Tx],
		"ExpiredDoNotCount":   expiredDoNotCount[Tx],
		"ManyExpired":         manyExpired[Tx],
		"SetRaisesAndLowers":  setRaisesAndLowers[Tx],
		"RefusalsLeaveTheTx":  refusalsLeaveTheTx[Tx],
		"LimitInput":          limitInput[Tx],
		"NumbersAtTheEdge":    numbersAtTheEdge[Tx],
		"LimitOwners":         limitOwners[Tx],
		"TwinLimits":          twinLimits[Tx],
		"ChangedByAnother":    changedByAnother[Tx],
		"ClosedLater":         closedLater[Tx],
		"LimitEntriesByPage":  limitEntriesByPage[Tx],
		"ForgottenByTheSweep": forgottenByTheSweep[Tx],
		"OwnTable":            ownTable[Tx],
		"OwnTableIsChecked":   ownTableIsChecked[Tx],
		"VersionIsEnforced":   versionIsEnforced[Tx],
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			conformance.Run(t, h, func(e *conformance.Env[Tx]) { f(&env[Tx]{e}) })
		})
	}
}

// Storms is the suite of random calls, some of which are killed.
func Storms[Tx any](t *testing.T, h conformance.Handle[Tx]) {
	t.Helper()
	t.Run("LimitStorm", func(t *testing.T) {
		t.Parallel()
		conformance.Run(t, h, func(e *conformance.Env[Tx]) { storm(&env[Tx]{e}) })
	})
}

// Operations is the suite of limits within idempotent operations.
func Operations[Tx any](t *testing.T, h conformance.Handle[Tx]) {
	t.Helper()
	for name, f := range map[string]func(*env[Tx]){
		"TakenWithinAnOperation": takenWithinAnOperation[Tx],
		"TakenUnderAForeignKey":  takenUnderAForeignKey[Tx],
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			conformance.Run(t, h, func(e *conformance.Env[Tx]) { f(&env[Tx]{e}) })
		})
	}
}

// open opens limits in Holdfast's table, or, under another name, in that of the options.
func (e *env[Tx]) open(opts ...limits.Options) *limits.Limits[Tx] {
	e.Helper()
	name := "refunds"
	if len(opts) > 0 && opts[0].Table != nil {
		name = opts[0].Table.Table
	}
	l, err := limits.New(e.Ctx, e.DB, name, opts...)
	e.Check(err)
	return l
}

// orders creates the program's own table, and opens limits in it.
func (e *env[Tx]) orders(opts ...func(*limits.Table)) *limits.Limits[Tx] {
	e.Helper()
	e.AnyOwner()
	e.Must(`CREATE TABLE orders (shop ` + e.Text() + ` NOT NULL, order_no ` + e.Text() + ` NOT NULL, paid BIGINT NOT NULL, held BIGINT NOT NULL, refunded BIGINT NOT NULL,
 version BIGINT NOT NULL, PRIMARY KEY (shop, order_no))`)
	table := limits.Table{TableSpec: holdfast.TableSpec{Table: "orders", Key: []string{"shop", "order_no"}}, Owner: "shop", Limit: "paid", Reserved: "held", Captured: "refunded", Version: "version"}
	for _, o := range opts {
		o(&table)
	}
	return e.open(limits.Options{Table: &table})
}

// order inserts a row of the program's own table.
func (e *env[Tx]) order(shop, no string, paid int64) {
	e.Helper()
	e.Must(`INSERT INTO orders (shop, order_no, paid, held, refunded, version) VALUES ($1, $2, $3, 0, 0, 1)`, shop, no, paid)
}

// set creates a limit.
func (e *env[Tx]) set(l *limits.Limits[Tx], key string, amount int64) {
	e.Helper()
	_, err := l.Set(e.Ctx, key, amount)
	e.Check(err)
}

func ask(key, id string, amount int64) limits.Request {
	return limits.Request{Key: key, ID: id, Amount: amount}
}

// want fails unless err is the expected error, or nil.
func (e *env[Tx]) want(err, want error) {
	e.Helper()
	if !errors.Is(err, want) {
		e.Errorf("got %v, want %v", err, want)
	}
}

// wantStatus reads a limit, and checks that its counters are the sums of its entries.
func (e *env[Tx]) wantStatus(l *limits.Limits[Tx], key string, limit, reserved, captured int64) {
	e.Helper()
	s, err := l.Get(e.Ctx, key)
	want := limits.Status{Limit: limit, Reserved: reserved, Captured: captured, Available: limit - reserved - captured}
	if err != nil || s != want {
		e.Errorf("the limit %q is %+v, %v, want %+v", key, s, err, want)
	}
	var inEntries limits.Status
	list, err := core.First(1000, l.Entries(e.Ctx, key))
	e.Check(err)
	for _, entry := range list {
		inEntries.Captured += entry.Captured
		if entry.State == limits.Reserved {
			inEntries.Reserved += entry.Amount
		}
	}
	if inEntries.Captured != captured || inEntries.Reserved != reserved {
		e.Errorf("the entries of %q sum to %+v, want %d reserved and %d captured", key, inEntries, reserved, captured)
	}
}

// levels are the isolation levels that the engine has, READ UNCOMMITTED included.
func (e *env[Tx]) levels() []sql.IsolationLevel {
	levels := e.Levels()
	if e.InnoDB() && e.Engine != dbtest.TiDB && e.Engine != dbtest.Vitess {
		levels = append(levels, sql.LevelReadUncommitted)
	}
	return levels
}

// inTx runs f in a transaction of the program's at a level, again while the engine asks for that, and
// commits.
func (e *env[Tx]) inTx(level sql.IsolationLevel, f func(tx Tx) error) error {
	for {
		err := e.once(level, f)
		if e.Ctx.Err() != nil || !e.DB.Retryable(err) {
			return err
		}
	}
}

func (e *env[Tx]) once(level sql.IsolationLevel, f func(tx Tx) error) error {
	tx, err := e.Begin(e.Ctx, level)
	if err != nil {
		return err
	}
	if err := f(tx); err != nil {
		_ = e.End(context.WithoutCancel(e.Ctx), tx, false) // Holdfast may have done it
		return err
	}
	return e.End(e.Ctx, tx, true)
}

var errInvalid = holdfast.ErrInvalid
