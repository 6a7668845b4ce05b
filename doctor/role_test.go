package doctor_test

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/doctor"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/idempotency/operators"
	"github.com/holdfast-go/holdfast/idempotency/outbox"
	"github.com/holdfast-go/holdfast/idempotency/staged"
	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/test/conformance"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
	"github.com/holdfast-go/holdfast/limits"
	"github.com/holdfast-go/holdfast/migrations"
	"github.com/holdfast-go/holdfast/optimistic/register"
	"github.com/holdfast-go/holdfast/reaper"
	"github.com/holdfast-go/holdfast/sqllock"
	"github.com/holdfast-go/holdfast/sqllock/fairlock"
	"github.com/holdfast-go/holdfast/sqllock/rowlock"
)

type env = conformance.Env[*sql.Tx]

var refund = idempotency.Op{Owner: "anna", Name: "refund", Key: "k", Request: "r"}

// TestRoles has an account in each role, with exactly the printed grants: it does the work of its role, it
// is refused the rest, and the doctor finds nothing missing and nothing to spare.
func TestRoles(t *testing.T) {
	t.Parallel()
	conformance.Run(t, conformance.SQL(), func(e *env) {
		if e.Engine == dbtest.SQLite || e.Engine == dbtest.Vitess {
			if err := migrations.PrintGrants(&strings.Builder{}, holdfast.Engine(e.Engine), migrations.App, "a"); !errors.Is(err, holdfast.ErrUnsupported) {
				e.Errorf("grants: %v", err)
			}
			return
		}
		for _, r := range []struct {
			role    doctor.Role
			work    func(e *env, db *holdfast.DB[*sql.Tx])
			refused []string
		}{
			{doctor.Role(migrations.App), appWork, []string{
				`UPDATE holdfast_interventions SET reason = 'x'`, `DELETE FROM holdfast_interventions`, `UPDATE holdfast_floor SET token = 0`,
				`UPDATE holdfast_audit SET reason = 'x'`, `DELETE FROM holdfast_audit`,
				`DELETE FROM holdfast_locks`, `DELETE FROM holdfast_sweeps`, `DROP TABLE holdfast_records`, `ALTER TABLE holdfast_records ADD COLUMN x INT`,
			}},
			{doctor.Role(migrations.Operator), operatorWork, []string{
				`UPDATE holdfast_interventions SET reason = 'x'`, `DELETE FROM holdfast_interventions`, `UPDATE holdfast_registers SET revision = 9`,
				`UPDATE holdfast_audit SET reason = 'x'`, `DELETE FROM holdfast_audit`,
				`DELETE FROM holdfast_staged`, `DROP TABLE holdfast_records`,
			}},
			{doctor.Role(migrations.Reaper), reaperWork, []string{
				`UPDATE holdfast_locks SET token = 0`, `SELECT body FROM holdfast_outbox`, `SELECT seq FROM holdfast_audit`, `UPDATE holdfast_audit SET reason = 'x'`, `DELETE FROM holdfast_audit`, `DELETE FROM holdfast_interventions`, `DROP TABLE holdfast_records`,
			}},
			{doctor.Role(migrations.Reader), readerWork, []string{
				`UPDATE holdfast_audit SET reason = 'x'`, `DELETE FROM holdfast_audit`, `INSERT INTO holdfast_audit SELECT * FROM holdfast_audit`,
				`DELETE FROM holdfast_records`, `UPDATE holdfast_locks SET token = 0`, `INSERT INTO holdfast_schema (version) VALUES (2)`,
			}},
		} {
			pool := e.Open(e.As(string(r.role), string(r.role)))
			pool.DB = access.WithOwners(pool.DB, core.AnyOwner)
			r.work(e, pool.DB)
			found, err := doctor.Check(e.Ctx, pool.DB, doctor.Options{Role: r.role})
			e.Check(err)
			for _, f := range found {
				if strings.Contains(f.Check, "privileges") || f.Check == "backlog" { // each role sees which operations wait
					e.Errorf("%s: %+v", r.role, f)
				}
			}
			for _, q := range r.refused {
				err := pool.DB.InTx(e.Ctx, func(ctx context.Context, tx *sql.Tx) error {
					_, err := tx.ExecContext(ctx, q)
					return err
				})
				if !errors.Is(err, holdfast.ErrDenied) && !strings.Contains(err.Error(), "must be owner") {
					e.Errorf("%s: %s: %v", r.role, q, err)
				}
			}
		}
	})
}

func store(e *env, db *holdfast.DB[*sql.Tx]) *idempotency.Store[*sql.Tx] {
	s, err := idempotency.New(e.Ctx, db)
	e.Check(err)
	return s
}

func payouts(e *env, s *idempotency.Store[*sql.Tx], answer error) *staged.Runner[string, string, *sql.Tx] {
	r, err := staged.New(s, staged.Workflow[string, string, *sql.Tx]{Name: "payout", Run: func(ctx context.Context, r *staged.Run[*sql.Tx], _ string) (string, error) {
		return staged.Call(ctx, r, staged.ExternalCall[string]{Step: "bank"}, func(context.Context, string) (string, error) { return "paid", answer })
	}})
	e.Check(err)
	return r
}

func appWork(e *env, db *holdfast.DB[*sql.Tx]) {
	e.Check(migrations.Up(e.Ctx, e.SQL))
	s := store(e, db)
	op := refund
	op.Similar = &idempotency.Similar{By: []string{"x"}, Window: time.Hour}
	effect := func(ctx context.Context, tx *sql.Tx) (string, error) { return "done", e.Effect(ctx, tx, op.Key) }
	for range 2 {
		_, err := idempotency.Do(e.Ctx, s, op, effect)
		e.Check(err)
	}
	e.WantOnce(op.Key)
	r := payouts(e, s, nil)
	_, err := r.Do(e.Ctx, idempotency.Op{Owner: "anna", Key: "paid"}, "")
	e.Check(err)
	e.Check(db.InTx(e.Ctx, func(ctx context.Context, tx *sql.Tx) error {
		_, err := r.StartTx(ctx, tx, idempotency.Op{Owner: "anna", Key: "waiting"}, "")
		return err
	}))
	_, err = payouts(e, s, errors.New("no answer")).Do(e.Ctx, idempotency.Op{Owner: "anna", Key: "parked"}, "")
	if !errors.Is(err, idempotency.ErrUnknown) {
		e.Errorf("parked: %v", err)
	}
	locks := e.LockerOn(db, sqllock.Options{})
	lease, err := locks.Acquire(e.Ctx, "lease")
	e.Check(err)
	fair, err := fairlock.New(locks).Acquire(e.Ctx, "fair")
	e.Check(err)
	rows, err := rowlock.New(e.Ctx, db)
	e.Check(err)
	box, err := outbox.New(e.Ctx, db, "events")
	e.Check(err)
	e.Check(db.InTx(e.Ctx, func(ctx context.Context, tx *sql.Tx) error {
		return errors.Join(locks.Guard(ctx, tx, lease.Term()), rows.LockTx(ctx, tx, "row", dbtest.Hang), box.Write(ctx, tx, outbox.Message{Owner: "anna", Key: "k", ID: "1", Topic: "t", Body: []byte("b")}))
	}))
	relay, err := outbox.NewRelay(box, func(context.Context, outbox.Delivery) error { return outbox.Permanent(errors.New("refused")) })
	e.Check(err)
	_, err = relay.Pass(e.Ctx)
	e.Check(errors.Join(err, fair.Release(e.Ctx), lease.Release(e.Ctx)))
	reg, err := register.New(e.Ctx, db)
	e.Check(err)
	_, err = reg.Create(e.Ctx, "name", []byte("v"))
	e.Check(err)
	l, err := limits.New(e.Ctx, db, "refunds")
	e.Check(err)
	l = l.For("anna")
	_, err = l.Set(e.Ctx, "day", 100)
	e.Check(err)
	_, err = l.Take(e.Ctx, limits.Request{Key: "day", ID: "1", Amount: 60})
	e.Check(err)
	if _, err = l.Erase(e.Ctx, holdfast.Actor{By: "olga", Reason: "asked"}); !errors.Is(err, holdfast.ErrDenied) {
		e.Errorf("the app erases limits: %v", err)
	}
}

func operatorWork(e *env, db *holdfast.DB[*sql.Tx]) {
	s, who := store(e, db), holdfast.Actor{By: "olga", Reason: "asked"}
	o := operators.New(s)
	e.Check(o.Resolve(e.Ctx, staged.Ref{Owner: "anna", Name: "payout", Key: "parked"}, operators.Resolution{Step: staged.StepDone, StepResult: "paid"}, who))
	e.Check(o.Erase(e.Ctx, staged.Ref{Owner: "anna", Name: "payout", Key: "paid"}, who))
	if _, err := o.Cancel(e.Ctx, staged.Ref{Owner: "anna", Name: "payout", Key: "waiting"}, who); err != nil {
		e.Errorf("an operator cancels: %v", err)
	}
	if _, err := o.Cancel(e.Ctx, staged.Ref{Owner: "anna", Name: "payout", Key: "never"}, who); !errors.Is(err, holdfast.ErrDenied) {
		e.Errorf("an operator voids a key that was never used: %v", err)
	}
	_, err := e.LockerOn(db, sqllock.Options{}).ForceRelease(e.Ctx, "lease", 0, holdfast.Actor{By: "test", Reason: "asked"})
	e.Check(err)
	holder := e.LockerOn(e.DB, sqllock.Options{})
	fair, err := fairlock.New(holder).Acquire(e.Ctx, "fair")
	e.Check(err)
	had, err := fairlock.New(e.LockerOn(db, sqllock.Options{})).ForceRelease(e.Ctx, "fair", fair.Token(), holdfast.Actor{By: "test", Reason: "asked"})
	if err != nil || !had {
		e.Errorf("a fair lock by force: %v, %v", had, err)
	}
	_ = fair.Release(e.Ctx)
	_, err = operators.AfterRestore(e.Ctx, db, who)
	e.Check(err)
	n, err := s.EraseScope(e.Ctx, idempotency.Erasure{Owner: "anna", Keys: true, Actor: holdfast.Actor{By: "olga", Reason: "asked"}})
	if err != nil || n == 0 {
		e.Errorf("erased %d, %v", n, err)
	}
	l, err := limits.New(e.Ctx, db, "refunds")
	e.Check(err)
	_, err = l.For("anna").Erase(e.Ctx, holdfast.Actor{By: "olga", Reason: "asked"})
	e.Check(err)
	box, err := outbox.New(e.Ctx, db, "events")
	e.Check(err)
	letters, err := core.First(2, box.DeadLetters(e.Ctx))
	e.Check(err)
	if len(letters) != 1 {
		e.Fatalf("%d dead letters", len(letters))
	}
	e.Check(box.Requeue(e.Ctx, letters[0], who))
	if _, err = idempotency.Do(e.Ctx, s, idempotency.Op{Owner: "anna", Name: "refund", Key: "new", Request: "r"}, func(context.Context, *sql.Tx) (string, error) { return "", nil }); !errors.Is(err, holdfast.ErrDenied) {
		e.Errorf("an operator executes: %v", err)
	}
}

func reaperWork(e *env, db *holdfast.DB[*sql.Tx]) {
	r, err := reaper.New(e.Ctx, db)
	e.Check(err)
	_, err = r.Sweep(e.Ctx) // nothing is due: it asks for its rights
	e.Check(err)
	for _, table := range []string{"records", "staged"} {
		e.Must(`UPDATE holdfast_` + table + ` SET key_expires_at = 1 WHERE state > 1 AND state < 6`)
	}
	for _, table := range []string{"locks", "waiters", "tickets", "similar"} {
		e.Must(`UPDATE holdfast_` + table + ` SET expires_at = 1`)
	}
	report, err := r.Sweep(e.Ctx)
	e.Check(errors.Join(err, report.Unrecorded))
	if report.Rows() < 4 {
		e.Errorf("cleared %d rows", report.Rows())
	}
}

func readerWork(e *env, db *holdfast.DB[*sql.Tx]) {
	_, err := core.First(1, operators.New(store(e, db)).List(e.Ctx))
	e.Check(err)
	for _, err := range e.LockerOn(db, sqllock.Options{}).List(e.Ctx) {
		e.Check(err)
	}
	_, err = core.First(10, reaper.History(e.Ctx, db))
	e.Check(err)
	// An idle pass says what is missing, and not that all is clear.
	r, err := reaper.New(e.Ctx, db)
	e.Check(err)
	if report, err := r.Sweep(e.Ctx); !errors.Is(err, holdfast.ErrDenied) || !strings.Contains(err.Error(), "DELETE on") {
		e.Errorf("a reader reaps: %+v, %v", report, err)
	}
	found, err := doctor.Check(e.Ctx, db)
	e.Check(err)
	all := map[string]doctor.Finding{}
	for _, f := range found {
		all[f.Check] = f
	}
	want(e.T, all, "privileges", doctor.Warning)
	found, err = doctor.Check(e.Ctx, db, doctor.Options{Role: doctor.Role(migrations.App)})
	e.Check(err)
	for _, f := range found {
		all[f.Check] = f
	}
	want(e.T, all, "privileges", doctor.Broken)
	// The account of the tests may do everything.
	found, err = doctor.Check(e.Ctx, e.DB, doctor.Options{Role: doctor.Role(migrations.Reader)})
	e.Check(err)
	for _, f := range found {
		all[f.Check] = f
	}
	want(e.T, all, "excess privileges", doctor.Warning)
}
