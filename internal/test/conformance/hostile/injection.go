package hostile

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/idempotency/inbox"
	"github.com/holdfast-go/holdfast/idempotency/operators"
	"github.com/holdfast-go/holdfast/idempotency/staged"
	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/test/conformance"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
	"github.com/holdfast-go/holdfast/migrations"
	"github.com/holdfast-go/holdfast/optimistic/register"
	"github.com/holdfast-go/holdfast/sqllock"
	"github.com/holdfast-go/holdfast/sqllock/fairlock"
)

// Injection is the suite of names and values that contain SQL. Each works literally, or fails
// with an error that names the argument; the tables do not change.
func Injection[Tx any](t *testing.T, h conformance.Handle[Tx]) {
	dbtest.NotUnderRace(t, "one value after the other")
	for name, f := range map[string]func(*env[Tx]){
		"InjectOperations":  injectOperations[Tx],
		"InjectStaged":      injectStaged[Tx],
		"InjectLocks":       injectLocks[Tx],
		"InjectLines":       injectLines[Tx],
		"InjectRegister":    injectRegister[Tx],
		"InjectLimits":      injectLimits[Tx],
		"InjectIdentifiers": injectIdentifiers[Tx],
		"InjectNoTable":     injectNoTable[Tx],
		"InjectSchema":      injectSchema[Tx],
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(t, h, func(e *env[Tx]) {
				e.Must(`CREATE TABLE canary (n INT NOT NULL)`)
				e.Must(`INSERT INTO canary VALUES (7)`)
				f(e)
			})
		})
	}
}

// whole fails unless the tables are unchanged.
func (e *env[Tx]) whole(what string) {
	e.Helper()
	if n := e.Int(`SELECT SUM(n) FROM canary`); n != 7 {
		e.Fatalf("%q changed a table", what)
	}
}

// refuses fails unless err is an InputError that names field.
func (e *env[Tx]) refuses(what, field string, err error) {
	e.Helper()
	var input *holdfast.InputError
	if !errors.As(err, &input) || !strings.Contains(input.Field, field) {
		e.Errorf("%q: %v, want %s named", what, err, field)
	}
}

func injectOperations[Tx any](e *env[Tx]) {
	e.ManyOwners()
	for _, evil := range Strings() {
		name := evil
		if !plain(evil) {
			_, err := idempotency.New(e.Ctx, e.DB, idempotency.Options{Namespace: evil})
			e.refuses(evil, "Namespace", err)
			name = "plain"
		}
		s, err := idempotency.New(e.Ctx, e.DB, idempotency.Options{Namespace: name})
		if err != nil {
			e.Fatal(err)
		}
		for _, want := range []idempotency.Outcome{idempotency.Executed, idempotency.Replayed} {
			r, err := idempotency.Do(e.Ctx, s, idempotency.Op{Owner: name, Name: name, Key: evil, Request: plain(evil)},
				func(context.Context, Tx) (idempotency.ID, error) { return idempotency.ID(name), nil })
			if err != nil || r.Outcome != want || string(r.Value) != name {
				e.Errorf("%q: %v %q, %v", evil, r.Outcome, r.Value, err)
			}
		}
		if name != evil {
			for field, op := range map[string]idempotency.Op{"Op.Owner": {Owner: evil, Name: "n", Key: "k"}, "Op.Name": {Owner: "t", Name: evil, Key: "k"}} {
				op.NoFingerprint = true
				_, err := idempotency.Do(e.Ctx, s, op, func(context.Context, Tx) (string, error) { return "", nil })
				e.refuses(evil, field, err)
			}
		}
		list, err := core.First(9, operators.New(s).List(e.Ctx, operators.Filter{Owner: name, Name: name, Key: evil, Records: true, States: []idempotency.State{idempotency.StateSucceeded}}))
		if err != nil || len(list) != 1 || list[0].Owner != name || list[0].Name != name || list[0].Key != evil {
			e.Errorf("list %q: %+v, %v", evil, list, err)
		}
		in, err := inbox.New(s, name)
		if err != nil {
			e.Fatal(err)
		}
		if outcome, err := in.Process(e.Ctx, inbox.Message{Owner: name, ID: evil, Body: []byte(evil)}, func(context.Context, Tx) error { return nil }); err != nil || outcome != idempotency.Executed {
			e.Errorf("message %q: %v, %v", evil, outcome, err)
		}
		if n, err := s.EraseScope(e.Ctx, idempotency.Erasure{Owner: name, Name: name, Keys: true, Actor: holdfast.Actor{By: "olga", Reason: "asked"}}); err != nil || n != 1 {
			e.Errorf("erase %q: %d, %v", evil, n, err)
		}
		e.whole(evil)
	}
}

func injectStaged[Tx any](e *env[Tx]) {
	e.ManyOwners()
	store, err := idempotency.New(e.Ctx, e.DB)
	if err != nil {
		e.Fatal(err)
	}
	for _, evil := range Strings() {
		name := evil
		if !plain(evil) {
			_, err := staged.New(store, staged.Workflow[string, string, Tx]{Name: evil, Run: func(context.Context, *staged.Run[Tx], string) (string, error) { return "", nil }})
			e.refuses(evil, "Workflow.Name", err)
			name = "plain"
		}
		s, err := staged.New(store, staged.Workflow[string, string, Tx]{
			Name: name, Run: func(ctx context.Context, r *staged.Run[Tx], req string) (string, error) {
				if _, err := staged.Local(ctx, r, name, func(context.Context, Tx) (string, error) { return req, nil }); err != nil {
					return "", err
				}
				return staged.Call(ctx, r, staged.ExternalCall[string]{Step: name + "2"}, func(context.Context, string) (string, error) { return "", errors.New(name) })
			},
		})
		if err != nil {
			e.Fatal(err)
		}
		ref := staged.Ref{Owner: name, Name: name, Key: evil}
		var parked *staged.ParkedError
		if _, err := s.Do(e.Ctx, idempotency.Op{Owner: name, Key: evil}, name); !errors.As(err, &parked) || parked.Step != name+"2" {
			e.Errorf("%q: %v", evil, err)
		}
		event := staged.ProviderEvent{ID: evil, Kind: name, Body: []byte(evil), Ref: ref}
		if isNew, err := staged.HandleEvent(e.Ctx, store, event, nil); err != nil || !isNew {
			e.Errorf("events %q: %v, %v", evil, isNew, err)
		}
		ops := operators.New(store)
		if err := ops.Resolve(e.Ctx, ref, operators.Resolution{Reject: true, Rejection: &idempotency.Rejection{Code: name}}, holdfast.Actor{By: name, Reason: name}); err != nil {
			e.Errorf("resolve %q: %v", evil, err)
		}
		op, err := ops.Show(e.Ctx, ref)
		if err != nil || op.Ref != ref || len(op.Events) != 1 || op.Events[0].ID != evil || op.Events[0].Kind != name || len(op.Interventions) != 1 ||
			op.Interventions[0].By != name || op.Interventions[0].Reason != name || len(op.Steps) != 2 {
			e.Errorf("show %q: %+v, %v", evil, op, err)
		}
		if name != evil {
			e.refuses(evil, "Actor.", ops.Resolve(e.Ctx, ref, operators.Resolution{Resume: true}, holdfast.Actor{By: evil, Reason: "r"}))
			event.Kind = evil
			_, err := staged.HandleEvent(e.Ctx, store, event, nil)
			e.refuses(evil, "ProviderEvent.Kind", err)
		}
		if _, err := staged.HandleEvent(e.Ctx, store, staged.ProviderEvent{ID: "1", ProviderKey: name}, nil); !errors.Is(err, staged.ErrNotFound) {
			e.Errorf("provider's key %q: %v", name, err)
		}
		e.whole(evil)
	}
}

func injectLocks[Tx any](e *env[Tx]) {
	for _, evil := range Strings() {
		name := evil
		if !plain(evil) {
			_, err := sqllock.New(e.Ctx, e.DB, sqllock.Options{Holder: evil})
			e.refuses(evil, "Holder", err)
			name = "plain"
		}
		l, err := sqllock.New(e.Ctx, e.DB, sqllock.Options{Holder: name})
		if err != nil {
			e.Fatal(err)
		}
		lease, err := l.TryAcquire(e.Ctx, evil)
		if err != nil {
			e.Fatal(err)
		}
		if err := lease.SetValue(e.Ctx, []byte(evil)); err != nil {
			e.Errorf("say %q: %v", evil, err)
		}
		n := 0
		for info, err := range l.List(e.Ctx, sqllock.ListOptions{Prefix: evil, Free: true}) {
			if n++; err != nil || info.Key != evil || info.Holder != name || string(info.Value) != evil {
				e.Errorf("list %q: %+v, %v", evil, info, err)
			}
		}
		if n != 1 {
			e.Errorf("list %q: %d locks", evil, n)
		}
		if name != evil {
			for _, who := range []holdfast.Actor{{By: name, Reason: evil}, {By: evil, Reason: name}} {
				_, err := l.ForceRelease(e.Ctx, evil, lease.Token(), who)
				e.refuses(evil, "Actor.", err)
			}
		}
		if had, err := l.ForceRelease(e.Ctx, evil, lease.Token(), holdfast.Actor{By: name, Reason: name}); err != nil || !had {
			e.Errorf("force %q: %v, %v", evil, had, err)
		}
		if info, _, err := l.Inspect(e.Ctx, evil); err != nil || info.Held || info.Forced.Reason != name || info.Forced.By != name {
			e.Errorf("inspect %q: %+v, %v", evil, info, err)
		}
		rowLocks := e.RowLocker()
		tx := e.BeginTx(sql.LevelReadCommitted)
		if err := rowLocks.LockTx(e.Ctx, tx, evil, holdfast.Forever); err != nil {
			e.Errorf("row lock %q: %v", evil, err)
		}
		e.EndTx(tx, true)
		held, err := rowLocks.Hold(e.Ctx, evil, holdfast.Forever)
		if err == nil {
			err = held.Release(e.Ctx)
		}
		if err != nil && (e.Engine != dbtest.SQLite || !errors.Is(err, holdfast.ErrUnsupported)) {
			e.Errorf("hold %q: %v", evil, err)
		}
		if err := l.Close(e.Ctx); err != nil && !errors.Is(err, sqllock.ErrLost) { // the lease was taken away by force
			e.Error(err)
		}
		e.whole(evil)
	}
}

func injectLines[Tx any](e *env[Tx]) {
	for _, evil := range Strings() {
		name := evil
		if !plain(evil) {
			name = "plain"
		}
		l, err := sqllock.New(e.Ctx, e.DB, sqllock.Options{Holder: name})
		if err != nil {
			e.Fatal(err)
		}
		permits, err := fairlock.New(l).Semaphore(evil, 2)
		if err != nil {
			e.Fatal(err)
		}
		one, err := permits.TryAcquire(e.Ctx, 1)
		if err != nil {
			e.Fatal(err)
		}
		lease, err := fairlock.New(l).TryAcquire(e.Ctx, evil)
		if err != nil {
			e.Fatal(err)
		}
		for line, err := range fairlock.New(l).Queues(e.Ctx, fairlock.ListOptions{Prefix: evil}) {
			if err != nil || line.Key != evil || len(line.Tickets) != 1 || line.Tickets[0].Holder != name {
				e.Errorf("lines %q: %+v, %v", evil, line, err)
			}
		}
		if had, err := fairlock.New(l).ForceRelease(e.Ctx, evil, lease.Token(), holdfast.Actor{By: name, Reason: name}); err != nil || !had {
			e.Errorf("force %q: %v, %v", evil, had, err)
		}
		if line, err := fairlock.New(l).Queue(e.Ctx, evil); err != nil || line.Forced.Reason != name || line.Forced.By != name || len(line.Tickets) != 0 {
			e.Errorf("line %q: %+v, %v", evil, line, err)
		}
		if err := one.Release(e.Ctx); err != nil {
			e.Error(err)
		}
		if err := l.Close(e.Ctx); err != nil && !errors.Is(err, sqllock.ErrLost) { // the lease was taken away by force
			e.Error(err)
		}
		e.whole(evil)
	}
}

func injectRegister[Tx any](e *env[Tx]) {
	r, err := register.New(e.Ctx, e.DB)
	if err != nil {
		e.Fatal(err)
	}
	for _, evil := range Strings() {
		entry, err := r.Create(e.Ctx, evil, []byte(evil))
		if err != nil {
			e.Fatalf("%q: %v", evil, err)
		}
		if _, err := r.CompareAndSwap(e.Ctx, evil, entry.Revision, []byte(evil+evil)); err != nil {
			e.Errorf("%q: %v", evil, err)
		}
		if got, err := r.Get(e.Ctx, evil); err != nil || got.Name != evil || string(got.Value) != evil+evil || got.Revision != 2 {
			e.Errorf("%q: %+v, %v", evil, got, err)
		}
		e.whole(evil)
	}
	if n := e.Int(`SELECT COUNT(*) FROM holdfast_registers`); n != len(Strings()) {
		e.Errorf("%d names", n)
	}
}

// injectSchema uses a prefix or schema of this kind. It is refused, or its tables are in that
// schema.
func injectSchema[Tx any](e *env[Tx]) {
	dbtest.Needs(e, e.Engine, dbtest.AnySchemaName)
	for _, evil := range Strings() {
		_, err := access.Open(e.Ctx, new(holdfast.DB[Tx]), core.Adapter[Tx](nil), []holdfast.Options{{Prefix: evil}})
		e.refuses(evil, "Options.Prefix", err)
		e.refuses(evil, "Options.Prefix", migrations.Up(e.Ctx, e.SQL, holdfast.Options{Prefix: evil}))
		if !plain(evil) {
			e.refuses(evil, "Options.Schema", migrations.Up(e.Ctx, e.SQL, holdfast.Options{Schema: evil}))
			continue
		}
		if e.Engine == dbtest.Postgres {
			e.schemaWorks(evil)
		} else if err := migrations.Up(e.Ctx, e.SQL, holdfast.Options{Schema: evil}); err == nil {
			e.Errorf("schema %q, which is not there, has tables", evil)
		}
		e.whole(evil)
	}
}

// schemaWorks uses the name as a schema; PostgreSQL accepts any name.
func (e *env[Tx]) schemaWorks(schema string) {
	e.Helper()
	at := e.quote(schema)
	e.Must(`DROP SCHEMA IF EXISTS ` + at + ` CASCADE`)
	e.Must(`CREATE SCHEMA ` + at)
	defer func() { e.Must(`DROP SCHEMA ` + at + ` CASCADE`) }()
	if err := migrations.Up(e.Ctx, e.SQL, holdfast.Options{Schema: schema}); err != nil {
		e.Errorf("schema %q: %v", schema, err)
		return
	}
	db := e.Handle.Open(e.T, e.DSN, holdfast.Options{Schema: schema}).DB
	if r, err := e.Do(e.StoreOn(db, idempotency.Options{Wait: time.Second}), conformance.Op("a "+schema)); err != nil || r.Outcome != idempotency.Executed {
		e.Errorf("schema %q: %v, %v", schema, r, err)
	}
}
