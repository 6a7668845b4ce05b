package audit_test

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/audit"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/idempotency/operators"
	"github.com/holdfast-go/holdfast/idempotency/outbox"
	"github.com/holdfast-go/holdfast/idempotency/staged"
	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/test/conformance"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
	"github.com/holdfast-go/holdfast/limits"
	"github.com/holdfast-go/holdfast/sqllock"
	"github.com/holdfast-go/holdfast/sqllock/fairlock"
)

func TestMain(m *testing.M) { dbtest.VerifyNoLeaks(m) }

type env[Tx any] struct {
	*conformance.Env[Tx]
	store *idempotency.Store[Tx]
	ops   *operators.Operators[Tx]
}

var who = holdfast.Actor{By: "olga", Reason: "ticket 12"}

func run(t *testing.T, sqlTest func(*env[*sql.Tx]), pgxTest func(*env[pgx.Tx])) {
	t.Helper()
	t.Run("SQL", func(t *testing.T) {
		t.Parallel()
		conformance.Run(t, conformance.SQL(), func(e *conformance.Env[*sql.Tx]) { sqlTest(open(e)) })
	})
	t.Run("Pgx", func(t *testing.T) {
		t.Parallel()
		conformance.Run(t, conformance.Pgx(), func(e *conformance.Env[pgx.Tx]) { pgxTest(open(e)) })
	})
}

func open[Tx any](e *conformance.Env[Tx]) *env[Tx] {
	e.AnyOwner()
	s, err := idempotency.New(e.Ctx, e.DB)
	e.Check(err)
	return &env[Tx]{e, s, operators.New(s)}
}

func (e *env[Tx]) locker(holder string) *sqllock.Locker[Tx] {
	return e.LockerOn(e.DB, sqllock.Options{Holder: holder, TTL: time.Hour})
}

// held makes and holds n leases of an owner, with keys 0 to n-1.
func (e *env[Tx]) held(owner string, n int) {
	l := e.locker("worker").For(owner)
	for i := range n {
		_, err := l.Acquire(e.Ctx, fmt.Sprint(i))
		e.Check(err)
	}
}

func (e *env[Tx]) do(owner, key string) {
	_, err := idempotency.Do(e.Ctx, e.store, idempotency.Op{Owner: owner, Name: "refund", Key: key, Request: "r"}, func(context.Context, Tx) (string, error) { return "personal", nil })
	e.Check(err)
}

// deadLetters makes n dead letters of an owner, with keys 0 to n-1.
func (e *env[Tx]) deadLetters(owner string, n int) (*outbox.Outbox[Tx], []outbox.DeadLetter) {
	e.Helper()
	box, err := outbox.New(e.Ctx, e.DB, "events")
	e.Check(err)
	e.Check(e.DB.InTx(e.Ctx, func(ctx context.Context, tx Tx) (err error) {
		for i := range n {
			err = errors.Join(err, box.Write(ctx, tx, outbox.Message{Owner: owner, Key: fmt.Sprint(i), ID: "personal", Topic: "personal", Body: []byte("personal")}))
		}
		return err
	}))
	relay, err := outbox.NewRelay(box, func(context.Context, outbox.Delivery) error { return outbox.Permanent(errors.New("personal")) })
	e.Check(err)
	_, err = relay.Pass(e.Ctx)
	e.Check(err)
	letters, err := core.First(n, box.DeadLetters(e.Ctx))
	e.Check(err)
	if len(letters) != n {
		e.Fatalf("%d dead letters, want %d", len(letters), n)
	}
	return box, letters
}

func (e *env[Tx]) rows(f ...audit.Filter) (list []audit.Record) {
	e.Helper()
	for r, err := range audit.List(e.Ctx, e.DB, f...) {
		e.Check(err)
		list = append(list, r)
	}
	return list
}

func (e *env[Tx]) verify(want int64) audit.Report {
	e.Helper()
	report, err := audit.Verify(e.Ctx, e.DB)
	if err != nil || report.Rows != want {
		e.Fatalf("%d rows, %v, want %d", report.Rows, err, want)
	}
	return report
}

// TestInterventions has each intervention, and looks at its row.
func TestInterventions(t *testing.T) {
	t.Parallel()
	run(t, interventions[*sql.Tx], interventions[pgx.Tx])
}

func interventions[Tx any](e *env[Tx]) {
	var session string
	user := map[dbtest.Engine]string{dbtest.Postgres: `session_user`, dbtest.SQLite: `''`}[e.Engine]
	e.Check(e.SQL.QueryRowContext(e.Ctx, `SELECT `+cmp.Or(user, `CURRENT_USER()`)).Scan(&session))
	began := time.UnixMicro(int64(e.Int(`SELECT ` + access.Of(e.DB).Dialect.Now)))
	olga := e.locker("olga").For("anna")
	_, err := e.locker("worker").For("anna").Acquire(e.Ctx, "lease")
	e.Check(err)
	fair, err := fairlock.New(e.locker("worker").For("anna")).Acquire(e.Ctx, "fair")
	e.Check(err)
	permits, err := fairlock.New(e.locker("worker").For("anna")).Semaphore("permits", 3)
	e.Check(err)
	permit, err := permits.Acquire(e.Ctx, 2)
	e.Check(err)
	must := func(had bool, err error) {
		e.Helper()
		if err != nil || !had {
			e.Fatalf("%v, %v", had, err)
		}
	}
	must(olga.ForceRelease(e.Ctx, "lease", 0, who))
	must(fairlock.New(olga).ForceRelease(e.Ctx, "fair", fair.Token(), who))
	semaphore, err := fairlock.New(olga).Semaphore("permits", 3)
	e.Check(err)
	must(semaphore.ForceRelease(e.Ctx, permit.Token(), who))
	for _, had := range []func() (bool, error){ // what finds nothing writes nothing
		func() (bool, error) { return olga.ForceRelease(e.Ctx, "lease", 0, who) },
		func() (bool, error) { return olga.ForceRelease(e.Ctx, "another", 0, who) },
		func() (bool, error) { return fairlock.New(olga).ForceRelease(e.Ctx, "fair", fair.Token(), who) },
	} {
		if had, err := had(); err != nil || had {
			e.Errorf("%v, %v", had, err)
		}
	}

	payouts, err := staged.New(e.store, staged.Workflow[string, string, Tx]{Name: "payout", Run: func(ctx context.Context, r *staged.Run[Tx], _ string) (string, error) {
		return staged.Call(ctx, r, staged.ExternalCall[string]{Step: "bank"}, func(context.Context, string) (string, error) { return "", errors.New("no answer") })
	}})
	e.Check(err)
	if _, err = payouts.Do(e.Ctx, idempotency.Op{Owner: "anna", Key: "payout"}, ""); !errors.Is(err, idempotency.ErrUnknown) {
		e.Fatal(err)
	}
	e.do("anna", "refund")
	e.do("anna", "another")
	payout, refund := staged.Ref{Owner: "anna", Name: "payout", Key: "payout"}, staged.Ref{Owner: "anna", Name: "refund", Key: "refund"}
	e.Check(e.ops.Resolve(e.Ctx, payout, operators.Resolution{Reject: true, Rejection: &idempotency.Rejection{Code: "no"}}, who))
	if err := e.ops.Resolve(e.Ctx, payout, operators.Resolution{Resume: true}, who); !errors.Is(err, staged.ErrState) {
		e.Error(err)
	}
	e.Check(e.ops.Erase(e.Ctx, refund, who))
	n, err := e.store.EraseScope(e.Ctx, idempotency.Erasure{Owner: "anna", Keys: true, Actor: holdfast.Actor{By: who.By, Reason: who.Reason}})
	if err != nil || n != 3 {
		e.Errorf("erased %d, %v", n, err)
	}
	_, err = operators.AfterRestore(e.Ctx, e.DB, who)
	e.Check(err)
	l, err := limits.New(e.Ctx, e.DB, "refunds")
	e.Check(err)
	l = l.For("anna")
	_, err = l.Set(e.Ctx, "day", 100)
	e.Check(err)
	_, err = l.Take(e.Ctx, limits.Request{Key: "day", ID: "1", Amount: 60})
	e.Check(err)
	n, err = l.Erase(e.Ctx, holdfast.Actor{By: who.By, Reason: who.Reason})
	if err != nil || n != 2 {
		e.Errorf("erased %d, %v", n, err)
	}
	box, letters := e.deadLetters("anna", 2)
	e.Check(box.Requeue(e.Ctx, letters[0], who))
	e.Check(box.Discard(e.Ctx, letters[1], who))
	if err := box.Requeue(e.Ctx, letters[1], who); !errors.Is(err, outbox.ErrNotDead) {
		e.Error(err)
	}
	for _, nobody := range []holdfast.Actor{{By: "olga"}, {Reason: "asked"}, {By: "olga\x00", Reason: "asked"}} {
		for _, err := range []error{box.Requeue(e.Ctx, letters[0], nobody), box.Discard(e.Ctx, letters[0], nobody)} {
			if !errors.Is(err, holdfast.ErrInvalid) {
				e.Errorf("by %+v: %v", nobody, err)
			}
		}
	}

	want := []struct{ action, kind, before, after string }{
		{"force release", "lease", `"holder":"worker","held":true`, `"held":false`},
		{"force release", "fair lock", `"holder":"worker","held":true`, ``},
		{"force release", "semaphore", `"holder":"worker","held":true`, ``},
		{"resolve as rejected", "staged", `"state":"unknown","step":"bank"`, `"state":"rejected"`},
		{"erase", "record", `"state":"succeeded"`, `"state":"succeeded and expired"`},
		{"erase scope", "record", ``, `{"erased":2,"keys":true}`},
		{"erase scope", "staged", ``, `{"erased":1,"keys":true}`},
		{"after-restore", "database", ``, `"floor":`},
		{"erase limits", "limit entry", ``, `{"erased":1,"name":"refunds"}`},
		{"erase limits", "limit", ``, `{"erased":1,"name":"refunds"}`},
		{"requeue", "dead letter", `{"state":"dead","outbox":"events","seq":`, `{"state":"waiting","outbox":"events","seq":`},
		{"discard", "dead letter", `{"state":"dead","outbox":"events","seq":`, `{"state":"discarded","outbox":"events","seq":`},
	}
	list := e.rows()
	if len(list) != len(want) {
		e.Fatalf("%d rows: %+v", len(list), list)
	}
	for i, r := range list {
		w := want[i]
		if r.Seq != int64(i+1) || r.By != "olga" || r.Session != session || r.Reason != who.Reason || r.Action != w.action || r.Kind != w.kind ||
			!strings.Contains(string(r.Before), w.before) || (w.before == "") != (len(r.Before) == 0) ||
			!strings.Contains(string(r.After), w.after) || (w.after == "") != (len(r.After) == 0) || r.At.Before(began) || r.At.After(began.Add(time.Hour)) ||
			r.Owner != map[bool]string{true: "", false: "anna"}[w.kind == "database"] {
			e.Errorf("row %d: %s %s of %q by %s (%s) for %q, before %s, after %s, want %+v", i+1, r.Action, r.Kind, r.Owner, r.By, r.Session, r.Reason, r.Before, r.After, w)
		}
	}
	e.verify(int64(len(want)))
	if found := e.rows(audit.Filter{Owner: "anna", Kind: "lease", Subject: audit.LockSubject("lease", "anna", "lease")}); len(found) != 1 {
		e.Errorf("the lease has %d rows", len(found))
	}
	if found := e.rows(audit.Filter{Subject: audit.MessageSubject("anna", "events", letters[1].Key)}); len(found) != 1 || found[0].Action != "discard" {
		e.Errorf("the dead letter has %+v", found)
	}
	if found := e.rows(audit.Filter{After: audit.Record{Seq: 6}}); len(found) != len(want)-6 {
		e.Errorf("%d rows after the sixth", len(found))
	}
	text, err := json.Marshal(list)
	e.Check(err)
	for _, secret := range []string{"personal", `"payout"`, `"refund"`, `"fair"}`} {
		if strings.Contains(string(text), secret) {
			e.Errorf("the audit has %s:\n%s", secret, text)
		}
	}
}

// TestBroken changes the audit as an administrator of the database could.
func TestBroken(t *testing.T) {
	t.Parallel()
	conformance.Run(t, conformance.SQL(), func(c *conformance.Env[*sql.Tx]) {
		e := open(c)
		e.held("anna", 5)
		for i := range 5 {
			_, err := e.locker("olga").For("anna").ForceRelease(e.Ctx, fmt.Sprint(i), 0, holdfast.Actor{By: "olga", Reason: "asked"})
			e.Check(err)
		}
		head := e.verify(5).Heads[0]
		switch e.Engine {
		case dbtest.Postgres:
			e.Must(`CREATE TABLE kept (LIKE holdfast_audit)`)
		case dbtest.SQLite:
			e.Must(`CREATE TABLE kept AS SELECT * FROM holdfast_audit WHERE seq < 0`)
		default: // TiDB has no CREATE TABLE ... SELECT
			e.Must(`CREATE TABLE kept LIKE holdfast_audit`)
		}
		e.Must(`INSERT INTO kept SELECT * FROM holdfast_audit`)
		copied := func(seq, columns string) string {
			return `INSERT INTO holdfast_audit SELECT chain, ` + seq + `, happened_at, ` + columns + ` FROM kept WHERE seq = 5`
		}
		const same = `actor, session_name, action, kind, owner, namespace, subject, reason, confirmed_by, before_state, after_state, hash`
		const forged = `'mallory', session_name, action, kind, owner, namespace, subject, reason, confirmed_by, before_state, after_state, hash`
		for _, c := range []struct {
			what, change string
			expect       bool // found with the head only
			seq          int64
			problem      string
		}{
			{"actor", `UPDATE holdfast_audit SET actor = 'eve' WHERE seq = 3`, false, 3, "was changed"},
			{"session", `UPDATE holdfast_audit SET session_name = 'eve' WHERE seq = 3`, false, 3, "was changed"},
			{"reason", `UPDATE holdfast_audit SET reason = 'x' WHERE seq = 1`, false, 1, "was changed"},
			{"time", `UPDATE holdfast_audit SET happened_at = happened_at + 1 WHERE seq = 5`, false, 5, "was changed"},
			{"action", `UPDATE holdfast_audit SET action = 'x' WHERE seq = 2`, false, 2, "was changed"},
			{"kind", `UPDATE holdfast_audit SET kind = 'x' WHERE seq = 2`, false, 2, "was changed"},
			{"confirmed by", `UPDATE holdfast_audit SET confirmed_by = 'x' WHERE seq = 2`, false, 2, "was changed"},
			{"owner", `UPDATE holdfast_audit SET owner = 'x' WHERE seq = 2`, false, 2, "was changed"},
			{"namespace", `UPDATE holdfast_audit SET namespace = 'x' WHERE seq = 2`, false, 2, "was changed"},
			{"before", `UPDATE holdfast_audit SET before_state = '{}' WHERE seq = 2`, false, 2, "was changed"},
			{"after", `UPDATE holdfast_audit SET after_state = '' WHERE seq = 2`, false, 2, "was changed"},
			{"subject", `UPDATE holdfast_audit SET subject = (SELECT subject FROM kept WHERE seq = 4) WHERE seq = 2`, false, 2, "was changed"},
			{"moved between columns", `UPDATE holdfast_audit SET kind = owner, owner = kind WHERE seq = 2 AND kind <> owner`, false, 2, "was changed"},
			{"hash", `UPDATE holdfast_audit SET hash = (SELECT hash FROM kept WHERE seq = 4) WHERE seq = 2`, false, 2, "was changed"},
			{"first deleted", `DELETE FROM holdfast_audit WHERE seq = 1`, false, 1, "is missing"},
			{"middle deleted", `DELETE FROM holdfast_audit WHERE seq = 3`, false, 3, "is missing"},
			{"another in its place", `UPDATE holdfast_audit SET seq = 3 WHERE seq = (SELECT seq + 2 FROM kept WHERE seq = 3)`, false, 3, "was changed"},
			{"forged at the end", copied("6", forged), false, 6, "was changed or inserted"},
			{"copied at the end", copied("6", same), false, 6, "was changed or inserted"},
			{"far away", copied("9", same), false, 6, "is missing"},
			{"another chain", `UPDATE holdfast_audit SET chain = 'x' WHERE seq = 5`, false, 1, "is missing"},
			{"last deleted", `DELETE FROM holdfast_audit WHERE seq = 5`, true, 5, "is missing or was written anew"},
			{"all deleted", `DELETE FROM holdfast_audit`, true, 1, "is missing or was written anew"},
		} {
			if c.what == "another in its place" {
				e.Must(`DELETE FROM holdfast_audit WHERE seq = 3`)
			}
			e.Must(c.change)
			if c.expect {
				if report, err := audit.Verify(e.Ctx, e.DB); err != nil {
					e.Errorf("%s: %+v, %v", c.what, report, err)
				}
			}
			report, err := audit.Verify(e.Ctx, e.DB, audit.VerifyOptions{Expect: [][]byte{head.Hash}})
			var broken *audit.BrokenError
			if !errors.Is(err, audit.ErrBroken) || !errors.As(err, &broken) || broken.Seq != c.seq || !strings.Contains(err.Error(), c.problem) {
				e.Errorf("%s: %+v, %v", c.what, report, err)
			}
			e.Must(`DELETE FROM holdfast_audit`)
			e.Must(`INSERT INTO holdfast_audit SELECT * FROM kept`)
		}
		// What comes later does not hide the head that was kept.
		e.held("bob", 1)
		_, err := e.locker("olga").For("bob").ForceRelease(e.Ctx, "0", 0, holdfast.Actor{By: "olga", Reason: "asked"})
		e.Check(err)
		if report, err := audit.Verify(e.Ctx, e.DB, audit.VerifyOptions{Expect: [][]byte{head.Hash}}); err != nil || report.Rows != 6 {
			e.Errorf("%+v, %v", report, err)
		}
		if _, err := audit.Verify(e.Ctx, e.DB, audit.VerifyOptions{Expect: [][]byte{{1}}}); !errors.Is(err, holdfast.ErrInvalid) {
			e.Error(err)
		}
	})
}

// TestConcurrent has many interventions at once: none is lost, and the chain has one end.
func TestConcurrent(t *testing.T) {
	t.Parallel()
	run(t, concurrent[*sql.Tx], concurrent[pgx.Tx])
}

func concurrent[Tx any](e *env[Tx]) {
	const workers, each = 6, 8
	var wg sync.WaitGroup
	box, letters := e.deadLetters("anna", each)
	for w := range workers {
		e.held(fmt.Sprint(w), each)
		for i := range each {
			e.do(fmt.Sprint(w), fmt.Sprint(i))
		}
	}
	for w := range workers {
		l, owner := e.locker("olga").For(fmt.Sprint(w)), fmt.Sprint(w)
		wg.Go(func() {
			for i := range each {
				var err error
				if w%2 == 0 {
					_, err = l.ForceRelease(e.Ctx, fmt.Sprint(i), 0, holdfast.Actor{By: "olga", Reason: "asked"})
				} else { // at the isolation of a store
					err = e.ops.Erase(e.Ctx, staged.Ref{Owner: owner, Name: "refund", Key: fmt.Sprint(i)}, who)
				}
				if err != nil && !errors.Is(err, holdfast.ErrRetry) {
					e.Error(err)
				}
				for errors.Is(err, holdfast.ErrRetry) { // nothing happened: a caller asks again
					if w%2 == 0 {
						_, err = l.ForceRelease(e.Ctx, fmt.Sprint(i), 0, holdfast.Actor{By: "olga", Reason: "asked"})
					} else {
						err = e.ops.Erase(e.Ctx, staged.Ref{Owner: owner, Name: "refund", Key: fmt.Sprint(i)}, who)
					}
				}
			}
		})
	}
	wg.Go(func() {
		for _, letter := range letters {
			err := box.Discard(e.Ctx, letter, who)
			for errors.Is(err, holdfast.ErrRetry) {
				err = box.Discard(e.Ctx, letter, who)
			}
			if err != nil {
				e.Error(err)
			}
		}
	})
	wg.Wait()
	e.verify(workers*each + each)
}

// TestUnwritten takes the right to write the audit, or has it refuse: then nothing is changed.
func TestUnwritten(t *testing.T) {
	t.Parallel()
	conformance.Run(t, conformance.SQL(), func(c *conformance.Env[*sql.Tx]) {
		e := open(c)
		e.held("anna", 1)
		fair, err := fairlock.New(e.locker("worker").For("anna")).Acquire(e.Ctx, "fair")
		e.Check(err)
		e.do("anna", "refund")
		e.do("anna", "another")
		_, letters := e.deadLetters("anna", 2)
		refused := "denied"
		switch e.Engine {
		case dbtest.SQLite:
			refused = "full"
			e.Must(`CREATE TRIGGER full BEFORE INSERT ON holdfast_audit BEGIN SELECT RAISE(ABORT, 'full'); END`)
		case dbtest.Vitess:
			return // it takes no GRANT
		default:
			url := e.As("operator", "operator")
			_, account, _ := strings.Cut(url, "//")
			account, _, _ = strings.Cut(account, ":pw@")
			e.Must(`REVOKE INSERT ON holdfast_audit FROM ` + account)
			e.Pool = e.Handle.Open(e, url)
			e.AnyOwner()
			e.store, err = idempotency.New(e.Ctx, e.DB)
			e.Check(err)
			e.ops = operators.New(e.store)
		}
		state := func() string {
			return fmt.Sprint(
				e.Int(`SELECT COUNT(*) FROM holdfast_locks WHERE attempt IS NOT NULL AND forced_at IS NULL`), e.Int(`SELECT COUNT(*) FROM holdfast_tickets`),
				e.Int(`SELECT COUNT(*) FROM holdfast_records WHERE result IS NOT NULL`), e.Int(`SELECT COUNT(*) FROM holdfast_interventions`),
				e.Int(`SELECT COUNT(*) FROM holdfast_outbox WHERE state = 3`), e.Int(`SELECT token FROM holdfast_floor`), e.Int(`SELECT COUNT(*) FROM holdfast_audit`),
			)
		}
		before := state()
		olga := e.locker("olga").For("anna")
		_, lease := olga.ForceRelease(e.Ctx, "0", 0, holdfast.Actor{By: "olga", Reason: "asked"})
		_, ticket := fairlock.New(olga).ForceRelease(e.Ctx, "fair", fair.Token(), holdfast.Actor{By: "olga", Reason: "asked"})
		_, scope := e.store.EraseScope(e.Ctx, idempotency.Erasure{Owner: "anna", Actor: holdfast.Actor{By: "olga", Reason: "asked"}})
		_, restore := operators.AfterRestore(e.Ctx, e.DB, who)
		box, err := outbox.New(e.Ctx, e.DB, "events")
		e.Check(err)
		for what, err := range map[string]error{
			"lease": lease, "ticket": ticket, "scope": scope, "restore": restore,
			"erase":   e.ops.Erase(e.Ctx, staged.Ref{Owner: "anna", Name: "refund", Key: "refund"}, who),
			"requeue": box.Requeue(e.Ctx, letters[0], who), "discard": box.Discard(e.Ctx, letters[1], who),
		} {
			if err == nil || !strings.Contains(err.Error(), refused) {
				e.Errorf("%s: %v", what, err)
			}
		}
		if after := state(); after != before {
			e.Errorf("was %s, is %s", before, after)
		}
	})
}
