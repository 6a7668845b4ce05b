package migrations_test

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jmoiron/sqlx"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/doctor"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/idempotency/outbox"
	"github.com/holdfast-go/holdfast/idempotency/staged"
	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/test/conformance"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
	"github.com/holdfast-go/holdfast/limits"
	"github.com/holdfast-go/holdfast/migrations"
	"github.com/holdfast-go/holdfast/reaper"
	"github.com/holdfast-go/holdfast/sqllock"
	"github.com/holdfast-go/holdfast/sqllock/fairlock"
)

// TestRowSecurity has accounts of an app, a worker and a reaper under the printed policies: a wrong tenant is refused
// by the database, and the work of the right one is as without.
func TestRowSecurity(t *testing.T) {
	t.Parallel()
	conformance.Modes(t, conformance.Suite{SQL: rowSecurity[*sql.Tx], SQLX: rowSecurity[*sqlx.Tx], Pgx: rowSecurity[pgx.Tx]}, "Connector")
}

func rowSecurity[Tx any](t *testing.T, h conformance.Handle[Tx]) {
	t.Helper()
	conformance.Run(t, h, func(e *conformance.Env[Tx]) {
		if e.Engine != dbtest.Postgres {
			if err := migrations.PrintRowSecurity(&strings.Builder{}, holdfast.Engine(e.Engine), nil); !errors.Is(err, holdfast.ErrUnsupported) {
				e.Errorf("policies: %v", err)
			}
			return
		}
		dbtest.Needs(e, e.Engine, dbtest.Users)
		app, work, reap := e.As("app", "app"), e.As("worker", "app", "operator"), e.As("reaper", "reaper")
		applyPolicies(e, account(reap), account(work))
		e.Check(migrations.Up(e.Ctx, e.SQL)) // finds nothing to do, and nothing strange
		tenants := &tenants[Tx]{Env: e, db: access.WithOwners(e.Open(app, holdfast.Options{OwnerSetting: holdfast.DefaultOwnerSetting}).DB, core.ManyOwners), app: app}
		tenants.work("anna")
		tenants.work("bob")
		tenants.wrongTenant()
		tenants.forEveryOwner(e.Open(work, holdfast.Options{OwnerSetting: holdfast.DefaultOwnerSetting}).DB)
		tenants.strange()
		tenants.doctor()
		tenants.reap(e.Open(reap).DB)
	})
}

// account is the account of a URL.
func account(url string) string {
	_, rest, _ := strings.Cut(url, "://")
	name, _, _ := strings.Cut(rest, ":")
	return name
}

func applyPolicies[Tx any](e *conformance.Env[Tx], everyOwner ...string) {
	e.Helper()
	var b strings.Builder
	e.Check(migrations.PrintRowSecurity(&b, holdfast.PostgreSQL, everyOwner, holdfast.Options{Schema: e.Schema()}))
	e.Must(b.String())
}

type tenants[Tx any] struct {
	*conformance.Env[Tx]
	db  *holdfast.DB[Tx]
	app string
}

func (e *tenants[Tx]) store(db *holdfast.DB[Tx]) *idempotency.Store[Tx] {
	s, err := idempotency.New(e.Ctx, access.WithOwners(db, core.AnyOwner))
	e.Check(err)
	return s
}

func (e *tenants[Tx]) do(db *holdfast.DB[Tx], owner, key string) (idempotency.Result[string], error) {
	return idempotency.Do(e.Ctx, e.store(db), idempotency.Op{Owner: owner, Name: "refund", Key: key, Request: "r"}, func(ctx context.Context, tx Tx) (string, error) {
		return owner, e.Effect(ctx, tx, owner+key)
	})
}

// work does what an app does for an owner.
func (e *tenants[Tx]) work(owner string) {
	e.Helper()
	for range 2 {
		r, err := e.do(e.db, owner, "do")
		if err != nil || r.Value != owner {
			e.Errorf("Do of %s: %q, %v", owner, r.Value, err)
		}
	}
	e.WantOnce(owner + "do")
	s := e.store(e.db)
	op := idempotency.Op{Owner: owner, Name: "refund", Key: "joined", Request: "r"}
	for range 2 {
		e.Check(e.db.InTx(e.Ctx, func(ctx context.Context, tx Tx) error {
			_, err := idempotency.DoTx(ctx, s, tx, op, func(ctx context.Context, tx Tx) (string, error) { return "", e.Effect(ctx, tx, owner+"joined") })
			return err
		}))
	}
	e.WantOnce(owner + "joined")
	locks := e.LockerOn(e.db, sqllock.Options{}).For(owner)
	lease, err := locks.Acquire(e.Ctx, "lease")
	e.Check(err)
	if second, err := locks.TryAcquire(e.Ctx, "lease"); !errors.Is(err, sqllock.ErrHeld) {
		e.Errorf("a second holder: %v, %v", second, err)
	}
	fair, err := fairlock.New(locks).Acquire(e.Ctx, "fair")
	e.Check(err)
	e.Check(locks.InTx(e.Ctx, lease, func(ctx context.Context, tx Tx) error { return e.Effect(ctx, tx, owner+"guarded") }))
	e.WantOnce(owner + "guarded")
	e.Check(errors.Join(fair.Release(e.Ctx), lease.Release(e.Ctx)))
	l, err := limits.New(e.Ctx, e.db, "refunds")
	e.Check(err)
	l = l.For(owner)
	_, err = l.Set(e.Ctx, "day", 100)
	e.Check(err)
	_, err = l.Take(e.Ctx, limits.Request{Key: "day", ID: "1", Amount: 60})
	e.Check(err)
	r := e.payouts(e.db)
	_, err = r.Do(e.Ctx, idempotency.Op{Owner: owner, Key: "payout"}, "")
	e.Check(err)
	box := e.outbox(e.db)
	e.Check(e.db.InTx(e.Ctx, func(ctx context.Context, tx Tx) error {
		_, err := r.StartTx(ctx, tx, idempotency.Op{Owner: owner, Key: "later"}, "")
		return errors.Join(err, box.Write(ctx, tx, outbox.Message{Owner: owner, Key: "k", ID: owner}))
	}))
	refused(e.T, e.db.InTx(e.Ctx, func(ctx context.Context, tx Tx) error {
		return box.Write(ctx, tx, outbox.Message{Owner: owner, Key: "k"}, outbox.Message{Owner: owner + "'s neighbour", Key: "k"})
	}))
}

func (e *tenants[Tx]) payouts(db *holdfast.DB[Tx]) *staged.Runner[string, string, Tx] {
	e.Helper()
	r, err := staged.New(e.store(db), staged.Workflow[string, string, Tx]{Name: "payout", Run: func(ctx context.Context, r *staged.Run[Tx], _ string) (string, error) {
		return staged.Call(ctx, r, staged.ExternalCall[string]{Step: "bank"}, func(context.Context, string) (string, error) { return "paid", nil })
	}})
	e.Check(err)
	return r
}

func (e *tenants[Tx]) outbox(db *holdfast.DB[Tx]) *outbox.Outbox[Tx] {
	e.Helper()
	box, err := outbox.New(e.Ctx, db, "events")
	e.Check(err)
	return box
}

// forEveryOwner completes and relays. The app's account finds nothing; one of every owner does it for both
// tenants, and decides on a dead letter.
func (e *tenants[Tx]) forEveryOwner(worker *holdfast.DB[Tx]) {
	e.Helper()
	for _, c := range []struct {
		db   *holdfast.DB[Tx]
		want int
	}{{e.db, 0}, {worker, 2}} {
		done, err := e.payouts(c.db).Complete(e.Ctx)
		if err != nil || done.Found != c.want || done.Succeeded != c.want {
			e.Errorf("completed %+v, %v, want %d", done, err, c.want)
		}
		box := e.outbox(c.db)
		relay, err := outbox.NewRelay(box, func(_ context.Context, d outbox.Delivery) error {
			if d.Owner == "bob" {
				return outbox.Permanent(errors.New("refused"))
			}
			return nil
		})
		e.Check(err)
		if n, err := relay.Pass(e.Ctx); err != nil || n != c.want/2 {
			e.Errorf("relayed %d, %v, want %d", n, err, c.want/2)
		}
		letters, err := core.First(9, box.DeadLetters(e.Ctx))
		if err != nil || len(letters) != c.want/2 {
			e.Errorf("dead letters: %+v, %v, want %d", letters, err, c.want/2)
		}
		for _, l := range letters {
			e.Check(box.Discard(e.Ctx, l, holdfast.Actor{By: "olga", Reason: "asked"}))
		}
	}
}

// wrongTenant has sessions that are bound to anna ask for bob's rows.
func (e *tenants[Tx]) wrongTenant() {
	e.Helper()
	pool := dbtest.OpenSQL(e.T, e.app)
	tx, err := pool.BeginTx(e.Ctx, nil)
	e.Check(err)
	_, err = tx.ExecContext(e.Ctx, `SELECT set_config('holdfast.owner', 'anna', true)`)
	e.Check(err)
	for table, want := range map[string]int{"records": 2, "locks": 2, "limits": 1, "staged": 1} {
		var mine, others int
		e.Check(tx.QueryRowContext(e.Ctx, `SELECT count(*), count(*) FILTER (WHERE owner <> 'anna') FROM holdfast_`+table).Scan(&mine, &others))
		if mine < want || others > 0 {
			e.Errorf("%s: anna sees %d rows, %d of others", table, mine, others)
		}
	}
	r, err := tx.ExecContext(e.Ctx, `UPDATE holdfast_locks SET token = 0 WHERE owner = 'bob'`)
	e.Check(err)
	if n, _ := r.RowsAffected(); n > 0 {
		e.Errorf("anna changes %d rows of bob's", n)
	}
	_, err = tx.ExecContext(e.Ctx, `UPDATE holdfast_locks SET owner = 'bob', name = 'x'`)
	refused(e.T, err)
	e.Check(tx.Rollback())
	// Without an owner there is nothing to see.
	var n int
	e.Check(pool.QueryRowContext(e.Ctx, `SELECT count(*) FROM holdfast_records`).Scan(&n))
	if n > 0 {
		e.Errorf("a session without an owner sees %d records", n)
	}
	_, err = pool.ExecContext(e.Ctx, `INSERT INTO holdfast_registers (owner, name, revision, changed_at) VALUES ('bob', 'x', 0, 0)`)
	refused(e.T, err)
	// The program's own transaction is anna's.
	s := e.store(e.db)
	err = e.db.InTx(e.Ctx, func(ctx context.Context, tx Tx) error {
		q, err := access.Of(e.db).Join(tx)
		if err != nil {
			return err
		}
		if _, err = q.Exec(ctx, `SELECT set_config('holdfast.owner', 'anna', true)`); err != nil {
			return err
		}
		_, err = idempotency.DoTx(ctx, s, tx, idempotency.Op{Owner: "bob", Name: "refund", Key: "wrong", Request: "r"}, func(ctx context.Context, tx Tx) (string, error) {
			return "", e.Effect(ctx, tx, "wrong")
		})
		return err
	})
	refused(e.T, err)
	// So are all sessions of a pool: the replay of bob's operation too.
	bound := e.Open(e.app+"&options=-c%20holdfast.owner%3Danna", holdfast.Options{OwnerSetting: holdfast.DefaultOwnerSetting}).DB
	for _, key := range []string{"wrong", "do"} {
		r, err := e.do(bound, "bob", key)
		refused(e.T, err)
		if r.Value != "" {
			e.Errorf("anna's sessions get %q", r.Value)
		}
	}
	if _, err := e.do(bound, "anna", "bound"); err != nil {
		e.Error(err)
	}
	_, err = e.LockerOn(access.WithOwners(bound, core.AnyOwner), sqllock.Options{}).For("bob").TryAcquire(e.Ctx, "lease")
	refused(e.T, err)
	// A program that sets no owner is refused too.
	_, err = e.do(e.Open(e.app).DB, "bob", "unset")
	refused(e.T, err)
	for _, key := range []string{"wrong", "bobwrong", "bobunset"} {
		if n := e.Effects(key); n != 0 {
			e.Errorf("%s: %d effects", key, n)
		}
	}
}

// refused checks that the database refused rows of another owner, or did not show them.
func refused(t *testing.T, err error) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), "row-level security policy") {
		t.Errorf("not refused: %v", err)
	}
}

// strange has Open and the migrations refuse policies that are not the printed ones.
func (e *tenants[Tx]) strange() {
	e.Helper()
	for what, undo := range map[string]string{
		`CREATE POLICY all_of_it ON holdfast_records USING (true)`:                     `DROP POLICY all_of_it ON holdfast_records`,
		`CREATE POLICY hide ON holdfast_records AS RESTRICTIVE USING (owner <> 'bob')`: `DROP POLICY hide ON holdfast_records`,
		`ALTER POLICY holdfast_every_owner ON holdfast_records TO PUBLIC`:              `ALTER POLICY holdfast_every_owner ON holdfast_records TO ` + e.other("_reaper") + `, ` + e.other("_worker"),
		`ALTER TABLE holdfast_records NO FORCE ROW LEVEL SECURITY`:                     `ALTER TABLE holdfast_records FORCE ROW LEVEL SECURITY`,
		`DROP POLICY holdfast_owner ON holdfast_records`:                               ``,
		`ALTER POLICY holdfast_owner ON holdfast_records USING (owner <> 'x')`:         ``,
	} {
		e.Must(what)
		if err := access.Of(e.DB).Admission(e.Ctx); !errors.Is(err, holdfast.ErrUnsupported) || !strings.Contains(err.Error(), "row level security") {
			e.Errorf("%s: %v", what, err)
		}
		if undo != "" {
			e.Must(undo)
		} else {
			applyPolicies(e.Env, e.other("_reaper"), e.other("_worker"))
		}
	}
	e.Check(access.Of(e.DB).Admission(e.Ctx))
}

// other is another account of the test.
func (e *tenants[Tx]) other(name string) string {
	return strings.Replace(account(e.app), "_app", name, 1)
}

// doctor finds nothing to object to.
func (e *tenants[Tx]) doctor() {
	e.Helper()
	found, err := doctor.Check(e.Ctx, e.db, doctor.Options{Role: doctor.Role(migrations.App)})
	e.Check(err)
	for _, f := range found {
		if strings.Contains(f.Check, "privileges") || strings.Contains(f.Check, "table") {
			e.Errorf("%+v", f)
		}
	}
}

// reap clears the rows of every owner.
func (e *tenants[Tx]) reap(db *holdfast.DB[Tx]) {
	e.Helper()
	e.Must(`UPDATE holdfast_records SET key_expires_at = 1`)
	r, err := reaper.New(e.Ctx, db)
	e.Check(err)
	report, err := r.Sweep(e.Ctx)
	e.Check(errors.Join(err, report.Unrecorded))
	if report.Rows() < 4 {
		e.Errorf("cleared %d rows", report.Rows())
	}
}

// TestRowSecurityOfFunctions checks that functions do not lead past the policies. A role that passes them makes
// no functions; the doctor finds those that were there before the policies; and those of a role that is under
// the policies refuse the operation of another owner.
func TestRowSecurityOfFunctions(t *testing.T) {
	t.Parallel()
	conformance.Run(t, conformance.SQL(), func(e *conformance.Env[*sql.Tx]) {
		if e.Engine != dbtest.Postgres {
			return
		}
		owner, app := account(e.As("owner")), e.As("app", "app")
		client := account(app)
		e.Check(migrations.FunctionsUp(e.Ctx, e.SQL))
		applyPolicies(e)
		var grants strings.Builder
		e.Check(migrations.PrintFunctionGrants(&grants, holdfast.PostgreSQL, client, holdfast.Options{Schema: e.Schema()}))
		e.Must(grants.String())
		db := e.Open(app, holdfast.Options{OwnerSetting: holdfast.DefaultOwnerSetting}).DB
		found := func() (problems string) {
			all, err := doctor.Check(e.Ctx, db, doctor.Options{Role: doctor.Role(migrations.App)})
			e.Check(err)
			for _, f := range all {
				if f.Check == "functions and row level security" {
					problems += f.Problem
				}
			}
			return problems
		}
		if p := found(); !strings.Contains(p, "holdfast_claim, whose owner") || !strings.Contains(p, "is a superuser") {
			e.Errorf("the doctor: %q", p)
		}
		var refused *holdfast.UnsupportedError
		if err := migrations.FunctionsUp(e.Ctx, e.SQL); !errors.As(err, &refused) || refused.Check != "row level security" {
			e.Errorf("a superuser makes functions: %v", err)
		}
		outcome := func() (outcome string, err error) {
			tx, err := dbtest.OpenSQL(e, app).BeginTx(e.Ctx, nil)
			e.Check(err)
			defer func() { _ = tx.Rollback() }()
			_, err = tx.ExecContext(e.Ctx, `SET LOCAL holdfast.owner = 'anna'`)
			e.Check(err)
			err = tx.QueryRowContext(e.Ctx, `SELECT outcome FROM holdfast_claim('default', 'bob', 'refund', 'key')`).Scan(&outcome)
			return outcome, err
		}
		if o, err := outcome(); err != nil || o != "claimed" {
			e.Errorf("without the refusal nothing breaks: %q, %v", o, err)
		}
		e.Check(migrations.FunctionsDown(e.Ctx, e.SQL))

		e.Must(`GRANT USAGE, CREATE ON SCHEMA ` + e.Schema() + ` TO ` + owner)
		rows, err := e.SQL.QueryContext(e.Ctx, `SELECT tablename FROM pg_tables WHERE schemaname = current_schema() AND tablename LIKE 'holdfast%'`)
		e.Check(err)
		defer func() { _ = rows.Close() }()
		var tables []string
		for rows.Next() {
			var table string
			e.Check(rows.Scan(&table))
			tables = append(tables, table)
		}
		e.Check(rows.Err())
		for _, table := range tables {
			e.Must(`ALTER TABLE ` + table + ` OWNER TO ` + owner)
		}
		e.Check(migrations.FunctionsUp(e.Ctx, dbtest.OpenSQL(e, strings.Replace(app, client, owner, 1))))
		e.Must(grants.String())
		if o, err := outcome(); err == nil {
			e.Errorf("anna claims an operation of bob: %q", o)
		}
		if p := found(); p != "" {
			e.Errorf("the doctor: %q", p)
		}
		e.Must(`ALTER SCHEMA ` + e.Schema() + ` OWNER TO current_user`)
		for _, table := range tables {
			e.Must(`ALTER TABLE ` + table + ` OWNER TO current_user`)
		}
		e.Must(`DROP OWNED BY ` + owner)
	})
}
