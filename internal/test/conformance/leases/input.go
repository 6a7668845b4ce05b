package leases

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
	"github.com/holdfast-go/holdfast/sqllock"
)

// leaseBadInput checks that bad input causes a typed error and sends nothing.
func leaseBadInput[Tx any](e *env[Tx]) {
	var sent atomic.Int64
	db := e.Open(e.DSN, holdfast.Options{Observers: []holdfast.Observer{func(context.Context, holdfast.Statement) { sent.Add(1) }}}).DB
	for what, o := range map[string]sqllock.Options{
		"a negative TTL":        {TTL: -1},
		"a TTL too short":       {TTL: 50*time.Millisecond - 1},
		"a TTL too long":        {TTL: 24*time.Hour + 1},
		"an absurd TTL":         {TTL: 1<<63 - 1},
		"a negative margin":     {Margin: -1},
		"a margin of over half": {TTL: time.Second, Margin: time.Second/2 + 1},
		"a long holder":         {Holder: strings.Repeat("h", 255+1)},
		"a holder not in UTF-8": {Holder: "\xff"},
		"a holder with a NUL":   {Holder: "a\x00"},
	} {
		sent.Store(0)
		if _, err := sqllock.New(e.Ctx, db, o); !errors.Is(err, holdfast.ErrInvalid) || sent.Load() != 0 {
			e.Errorf("%s: got %v, %d statements", what, err, sent.Load())
		}
	}
	if _, err := sqllock.New[Tx](e.Ctx, nil, sqllock.Options{}); !errors.Is(err, holdfast.ErrInvalid) {
		e.Errorf("no DB: %v", err)
	}

	l := e.LockerOn(db, sqllock.Options{TTL: time.Minute, Margin: 30 * time.Second, Holder: strings.Repeat("é", 127) + "."})
	long := strings.Repeat("k", sqllock.MaxKey)
	ttl := func(d time.Duration) []sqllock.AcquireOptions { return []sqllock.AcquireOptions{{TTL: d}} }
	sent.Store(0)
	for what, bad := range map[string]struct {
		key  string
		opts []sqllock.AcquireOptions
	}{
		"an empty key":        {"", nil},
		"a key too long":      {long + "k", nil},
		"a negative TTL":      {"k", ttl(-time.Second)},
		"a TTL too short":     {"k", ttl(50*time.Millisecond - 1)},
		"a TTL too long":      {"k", ttl(24*time.Hour + 1)},
		"options given twice": {"k", append(ttl(time.Second), sqllock.AcquireOptions{})},
	} {
		_, acquire := l.Acquire(e.Ctx, bad.key, bad.opts...)
		_, try := l.TryAcquire(e.Ctx, bad.key, bad.opts...)
		do := l.Do(e.Ctx, bad.key, func(context.Context, *sqllock.Lease) error {
			e.Errorf("%s: the function ran", what)
			return nil
		}, bad.opts...)
		for _, err := range []error{acquire, try, do} {
			var input *holdfast.InputError
			if !errors.As(err, &input) || !errors.Is(err, holdfast.ErrInvalid) || input.Field == "" || input.Problem == "" {
				e.Errorf("%s: got %v", what, err)
			}
		}
	}
	if n := sent.Load(); n != 0 {
		e.Errorf("%d statements were sent", n)
	}
	for _, key := range []string{long, "k"} {
		lease := e.wantFree(l, key)
		if held := e.wantHeld(e.LockerWith(sqllock.Options{}), key); held.Holder != strings.Repeat("é", 127)+"." {
			e.Errorf("held by %q", held.Holder)
		}
		e.MustRelease(lease)
	}
	e.MustRelease(e.MustAcquire(l, "k", sqllock.AcquireOptions{TTL: 24 * time.Hour}))
}

// leaseBadGuard checks that a wrong call of the guard fails before it sends anything, and leaves
// the caller's transaction unchanged.
func leaseBadGuard[Tx any](e *env[Tx]) {
	l := e.LockerWith(sqllock.Options{})
	lease := e.wantFree(l, "bad guard")
	var none Tx
	if err := l.Guard(e.Ctx, none, lease.Term()); !errors.Is(err, holdfast.ErrNoTx) {
		e.Errorf("no transaction: %v", err)
	}
	e.Migrate(holdfast.Options{Prefix: "pay_"})
	prefix := e.LockerOn(e.Open(e.DSN, holdfast.Options{Prefix: "pay_"}).DB, sqllock.Options{})
	elsewhere := newEnv(e.T, e.Handle, e.Engine)
	database := elsewhere.LockerWith(sqllock.Options{})
	strangers := map[string]sqllock.Term{
		"of another prefix": e.wantFree(prefix, "bad guard").Term(), "of another database": elsewhere.wantFree(database, "bad guard").Term(),
	}
	for what, bad := range map[string]struct {
		want  error
		terms []sqllock.Term
	}{
		"no term":             {holdfast.ErrInvalid, nil},
		"the zero term":       {holdfast.ErrInvalid, []sqllock.Term{{}}},
		"a term without key":  {holdfast.ErrInvalid, []sqllock.Term{l.Term("", 1)}},
		"a token of nought":   {holdfast.ErrInvalid, []sqllock.Term{l.Term("k", 0)}},
		"a negative token":    {holdfast.ErrInvalid, []sqllock.Term{lease.Term(), l.Term("k", -1)}},
		"a key too long":      {holdfast.ErrInvalid, []sqllock.Term{lease.Term(), l.Term(strings.Repeat("k", sqllock.MaxKey+1), 1)}},
		"of another prefix":   {sqllock.ErrOtherStore, []sqllock.Term{strangers["of another prefix"]}},
		"of another database": {sqllock.ErrOtherStore, []sqllock.Term{lease.Term(), strangers["of another database"]}},
	} {
		tx := e.BeginTx(sql.LevelDefault)
		if err := l.Guard(e.Ctx, tx, bad.terms...); !errors.Is(err, bad.want) {
			e.Errorf("%s: got %v, want %v", what, err, bad.want)
		}
		if err := e.Effect(e.Ctx, tx, what); err != nil {
			e.Errorf("%s: the transaction was touched: %v", what, err)
		}
		e.EndTx(tx, true)
		e.WantOnce(what)
	}
	for _, commit := range []bool{true, false} {
		tx := e.BeginTx(sql.LevelDefault)
		e.EndTx(tx, commit)
		if err := l.Guard(e.Ctx, tx, lease.Term()); !errors.Is(err, holdfast.ErrTxLost) && !errors.Is(err, sql.ErrTxDone) {
			e.Errorf("a transaction that has ended (commit %v): %v", commit, err)
		}
	}
	if e.Engine != dbtest.Postgres { // ends the transaction behind the handle's back: each later statement would commit alone
		tx := e.BeginTx(sql.LevelDefault)
		if _, err := e.Exec(e.Ctx, tx, `ROLLBACK`); err != nil {
			e.Fatal(err)
		}
		if err := l.Guard(e.Ctx, tx, lease.Term()); !errors.Is(err, holdfast.ErrTxLost) {
			e.Errorf("a transaction that the server has ended: %v", err)
		}
	}
	e.MustRelease(lease)
}

// leaseNoTables checks that the error names the missing tables.
func leaseNoTables[Tx any](shared *env[Tx]) {
	e := newEnv(shared.T, shared.Handle, shared.Engine) // a database whose tables the test may drop
	l := e.LockerWith(sqllock.Options{TTL: time.Minute})
	lease := e.wantFree(l, "k")
	wrong := func(what string, err error) {
		e.Helper()
		var schema *holdfast.SchemaError
		if !errors.Is(err, holdfast.ErrSchema) || !errors.As(err, &schema) || !strings.Contains(err.Error(), "migrate up") {
			e.Errorf("%s: got %v, want ErrSchema with the command to run", what, err)
		}
	}
	e.Must(`DROP TABLE holdfast_locks`)
	_, err := l.TryAcquire(e.Ctx, "other")
	wrong("TryAcquire without its table", err)
	_, err = l.Acquire(e.Ctx, "other")
	wrong("Acquire without its table", err)
	wrong("Release without its table", lease.Release(e.Ctx))
	tx := e.BeginTx(sql.LevelDefault)
	wrong("Guard without its table", l.Guard(e.Ctx, tx, lease.Term()))
	e.WantRolledBack(tx)
	e.Must(`DROP TABLE holdfast_floor`)
	_, err = sqllock.New(e.Ctx, e.DB)
	wrong("New without the floor", err)
	e.Must(`DROP TABLE holdfast_schema`)
	_, err = sqllock.New(e.Ctx, e.DB)
	wrong("New without the version", err)
}
