package hostile

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/adapters/holdfastsql"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/test/conformance"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
)

// Input is the suite of bad input and bad environments. Each causes a typed error at once, and
// no work is done.
func Input[Tx any](t *testing.T, h conformance.Handle[Tx]) {
	for name, f := range map[string]func(*env[Tx]){
		"BadOps":           badOps[Tx],
		"BadOptions":       badOptions[Tx],
		"BadSchema":        badSchema[Tx],
		"ClosedPool":       closedPool[Tx],
		"CancelledContext": cancelledContext[Tx],
		"PrefixAndSchema":  prefixAndSchema[Tx],
		"IsolationLevels":  isolationLevels[Tx],
		"AutocommitOff":    autocommitOff[Tx],
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(t, h, f)
		})
	}
}

func badOps[Tx any](e *env[Tx]) {
	withOwners, err := idempotency.New(e.Ctx, access.WithOwners(e.DB, core.ManyOwners))
	if err != nil {
		e.Fatal(err)
	}
	good := idempotency.Op{Owner: "t", Name: "refund", Key: "k", Request: 1}
	for what, spoil := range map[string]func(*idempotency.Op){
		"no owner":           func(o *idempotency.Op) { o.Owner = "" },
		"a long owner":       func(o *idempotency.Op) { o.Owner = strings.Repeat("t", 129) },
		"an owner with NUL":  func(o *idempotency.Op) { o.Owner = "a\x00" },
		"an owner not UTF-8": func(o *idempotency.Op) { o.Owner = "\xff" },
		"no name":            func(o *idempotency.Op) { o.Name = "" },
		"a long name":        func(o *idempotency.Op) { o.Name = strings.Repeat("n", 129) },
		"no key":             func(o *idempotency.Op) { o.Key = "" },
		"a long key":         func(o *idempotency.Op) { o.Key = strings.Repeat("k", 1025) },
		"no request":         func(o *idempotency.Op) { o.Request = nil },
		"two fingerprints":   func(o *idempotency.Op) { o.NoFingerprint = true },
		"no JSON":            func(o *idempotency.Op) { o.Request = func() {} },
		"broken JSON":        func(o *idempotency.Op) { o.Request = rawJSON("{") },
		"a negative wait":    func(o *idempotency.Op) { o.Wait = -1 },
		"an owner too many":  nil,
	} {
		op, store := good, withOwners
		if spoil != nil {
			spoil(&op)
		} else {
			store = e.Store(idempotency.Options{}) // a store with a single owner
		}
		if _, err := e.Do(store, op); !errors.Is(err, holdfast.ErrInvalid) {
			e.Errorf("%s: got %v", what, err)
		}
		tx := e.BeginTx(sql.LevelDefault)
		if _, err := e.DoTx(store, tx, op); !errors.Is(err, holdfast.ErrInvalid) {
			e.Errorf("%s in a transaction: got %v", what, err)
		}
		e.EndTx(tx, true) // tx is unchanged
	}
	if n := e.Int(`SELECT COUNT(*) FROM holdfast_records`) + e.Int(`SELECT COUNT(*) FROM effects`); n != 0 {
		e.Errorf("%d rows were written", n)
	}
	good.Key = strings.Repeat("k", 1024)
	if _, err := e.Do(withOwners, good); err != nil {
		e.Errorf("the longest key: %v", err)
	}
}

type rawJSON string

func (r rawJSON) MarshalJSON() ([]byte, error) { return []byte(r), nil }

func badOptions[Tx any](e *env[Tx]) {
	for what, o := range map[string]idempotency.Options{
		"a negative wait":          {Wait: -1},
		"a negative life":          {ResultTTL: -2},
		"a key that dies first":    {ResultTTL: 2 * time.Hour, KeyTTL: time.Hour},
		"a negative rejection":     {RejectionTTL: -2},
		"a negative bound of new":  {MaxNew: -2},
		"a negative bound":         {MaxRecords: -2},
		"a negative size":          {MaxResult: -1},
		"a size too large":         {MaxResult: 16 << 20},
		"a negative lock timeout":  {LockTimeout: -1},
		"an absurd lock timeout":   {LockTimeout: 1 << 62},
		"negative attempts":        {Attempts: -1},
		"a long namespace":         {Namespace: strings.Repeat("n", 129)},
		"a namespace with a NUL":   {Namespace: "\x00"},
		"a namespace not in UTF-8": {Namespace: "\xff"},
	} {
		if _, err := idempotency.New(e.Ctx, e.DB, o); !errors.Is(err, holdfast.ErrInvalid) {
			e.Errorf("%s: got %v", what, err)
		}
	}
	for what, o := range map[string]holdfast.TxOptions{
		"a negative lock timeout": {LockTimeout: -1}, "an absurd lock timeout": {LockTimeout: 1 << 62}, "negative attempts": {Attempts: -1},
	} {
		err := e.DB.InTx(e.Ctx, func(context.Context, Tx) error { return nil }, o)
		if !errors.Is(err, holdfast.ErrInvalid) {
			e.Errorf("%s: got %v", what, err)
		}
	}
	if err := e.DB.InTx(e.Ctx, func(context.Context, Tx) error { return nil }, holdfast.TxOptions{}, holdfast.TxOptions{}); !errors.Is(err, holdfast.ErrInvalid) {
		e.Errorf("options given twice: %v", err)
	}
	if _, err := idempotency.New[Tx](e.Ctx, nil, idempotency.Options{}); !errors.Is(err, holdfast.ErrInvalid) {
		e.Errorf("a nil DB: %v", err)
	}
}

// badSchema checks that missing tables and unsupported versions cause an error that names the
// command to run.
func badSchema[Tx any](e *env[Tx]) {
	check := func(what, want string) {
		e.Helper()
		_, err := idempotency.New(e.Ctx, e.DB)
		var se *holdfast.SchemaError
		if !errors.Is(err, holdfast.ErrSchema) || !errors.As(err, &se) || !strings.Contains(err.Error(), want) {
			e.Errorf("%s: got %v, want %q in it", what, err, want)
		}
	}
	s := e.Store(idempotency.Options{})
	e.Must(`UPDATE holdfast_schema SET version = 999`)
	check("a newer schema", "deploy a newer build")
	e.Must(`DELETE FROM holdfast_schema`)
	check("an empty table", "migrate up")
	e.Must(`DROP TABLE holdfast_schema`)
	check("no table", "migrate up")
	e.Must(`DROP TABLE holdfast_records`)
	if _, err := e.Do(s, conformance.Op("a")); !errors.Is(err, holdfast.ErrSchema) {
		e.Errorf("Do without its table: %v", err)
	}
	tx := e.BeginTx(sql.LevelDefault)
	if _, err := e.DoTx(s, tx, conformance.Op("a")); !errors.Is(err, holdfast.ErrSchema) {
		e.Errorf("DoTx without its table: %v", err)
	}
	e.WantRolledBack(tx)
	if n := e.Effects("a"); n != 0 {
		e.Errorf("%d effects", n)
	}
}

func closedPool[Tx any](e *env[Tx]) {
	s := e.Store(idempotency.Options{})
	refunds := e.Refunds()
	e.Close()
	start := time.Now()
	_, err := e.Do(s, conformance.Op("a"))
	_, err2 := refunds.Do(e.Ctx, conformance.Refund{No: "a"}, func(context.Context, Tx) error { return nil })
	err3 := e.DB.InTx(e.Ctx, func(context.Context, Tx) error { return nil })
	_, err4 := idempotency.New(e.Ctx, e.DB)
	for i, err := range []error{err, err2, err3, err4} {
		if err == nil || !strings.Contains(err.Error(), "closed") {
			e.Errorf("call %d on a closed pool: %v", i, err)
		}
	}
	if d := time.Since(start); d > dbtest.Slack {
		e.Errorf("it took %v", d)
	}
}

// cancelledContext checks that every blocking call ends when its context ends.
func cancelledContext[Tx any](e *env[Tx]) {
	s, refunds := e.Store(idempotency.Options{Wait: time.Hour}), e.Refunds() // the wait is long, so only the context ends the call
	release := e.HoldKey("held")
	defer release()
	tx := e.BeginTx(sql.LevelDefault)
	calls := map[string]func(context.Context) error{
		"Do": func(ctx context.Context) error {
			_, err := idempotency.Do(ctx, s, conformance.Op("held"), func(context.Context, Tx) (string, error) { return "", nil })
			return err
		},
		"DoTx": func(ctx context.Context) error {
			_, err := idempotency.DoTx(ctx, s, tx, conformance.Op("held"), func(context.Context, Tx) (string, error) { return "", nil })
			return err
		},
		"InTx": func(ctx context.Context) error {
			return e.DB.InTx(ctx, func(ctx context.Context, _ Tx) error { <-ctx.Done(); return nil })
		},
		"Table.Do": func(ctx context.Context) error {
			_, err := refunds.Do(ctx, conformance.Refund{No: "a"}, func(ctx context.Context, _ Tx) error { <-ctx.Done(); return nil })
			return err
		},
	}
	for name, call := range calls {
		for _, after := range []time.Duration{0, 150 * time.Millisecond} {
			if name == "DoTx" && after == 0 {
				continue // the call would end tx
			}
			if e.Engine == dbtest.SQLite && name == "Table.Do" {
				continue // the holder has the only write lock
			}
			ctx, cancel := context.WithTimeout(e.Ctx, after)
			start := time.Now()
			err := call(ctx)
			cancel()
			if !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, idempotency.ErrInProgress) {
				e.Errorf("%s, cancelled after %v: got %v", name, after, err)
			}
			if d := time.Since(start); d > after+dbtest.Slack {
				e.Errorf("%s, cancelled after %v, took %v", name, after, d)
			}
		}
	}
	release()
	e.Eventually("every connection is back", func() bool { return e.InUse() == 0 })
	if r, err := e.Do(s, conformance.Op("held")); err != nil || r.Value != "held" {
		e.Errorf("%v, %v", r, err)
	}
	e.WantOnce("held")
}

func prefixAndSchema[Tx any](e *env[Tx]) {
	for _, prefix := range []string{"x;", "a b", "1a", strings.Repeat("p", 33), "\u00e9", "`", `"`} {
		if _, err := access.Open(e.Ctx, new(holdfast.DB[Tx]), core.Adapter[Tx](nil), []holdfast.Options{{Prefix: prefix}}); !errors.Is(err, holdfast.ErrInvalid) {
			e.Errorf("prefix %q: got %v", prefix, err)
		}
	}
	if _, err := access.Open(e.Ctx, new(holdfast.DB[Tx]), core.Adapter[Tx](nil), []holdfast.Options{{Engine: "oracle"}}); !errors.Is(err, holdfast.ErrInvalid) {
		e.Errorf("an engine unknown: %v", err)
	}
	// Two prefixes have separate tables, and so has a schema selected by its name.
	e.Migrate(holdfast.Options{Prefix: "pay_"})
	opts := holdfast.Options{Prefix: "pay_", Schema: e.Schema()}
	pay := e.StoreOn(e.Handle.Open(e.T, e.DSN, opts).DB, idempotency.Options{})
	for _, s := range []*idempotency.Store[Tx]{pay, e.Store(idempotency.Options{})} {
		if r, err := e.Do(s, conformance.Op("a")); err != nil || r.Outcome != idempotency.Executed {
			e.Errorf("%v, %v", r, err)
		}
	}
	if a, b := e.Int(`SELECT COUNT(*) FROM pay_records`), e.Int(`SELECT COUNT(*) FROM holdfast_records`); a != 1 || b != 1 {
		e.Errorf("%d and %d records", a, b)
	}
}

// isolationLevels checks that Do works at each level of the engine, and that a level the engine
// lacks causes an error at once.
func isolationLevels[Tx any](e *env[Tx]) {
	for _, level := range e.Levels() {
		key := level.String()
		var wg sync.WaitGroup
		for range 4 {
			s := e.Store(idempotency.Options{Isolation: level, Attempts: 100})
			for range 4 {
				wg.Go(func() {
					if _, err := e.Do(s, conformance.Op(key)); err != nil {
						e.Errorf("%v: %v", level, err)
					}
				})
			}
		}
		wg.Wait()
		e.WantOnce(key)
	}
	if e.Engine == dbtest.SQLite {
		return // the driver treats every level as serializable
	}
	s := e.Store(idempotency.Options{Isolation: sql.LevelLinearizable})
	if _, err := e.Do(s, conformance.Op("none")); err == nil || e.Effects("none") != 0 {
		e.Errorf("a level that is not there: %v", err)
	}
}

// autocommitOff checks that Open reports a session without autocommit.
func autocommitOff[Tx any](e *env[Tx]) {
	if !e.InnoDB() {
		return // the other engines have no such server setting
	}
	pool := dbtest.OpenSQL(e.T, dbtest.With(e.DSN, "autocommit=0"))
	_, err := holdfastsql.Open(e.Ctx, pool)
	if !errors.Is(err, holdfast.ErrUnsupported) || !strings.Contains(err.Error(), "autocommit") {
		e.Errorf("got %v", err)
	}
}
