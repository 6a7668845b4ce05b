package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/idempotency/staged"
	"github.com/holdfast-go/holdfast/internal/test/conformance"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
	"github.com/holdfast-go/holdfast/sqllock"
	"github.com/holdfast-go/holdfast/sqllock/fairlock"
)

// operator runs commands on the database of e.
type operator struct{ *conformance.Env[*sql.Tx] }

func (o operator) run(args ...string) (code int, stdout, stderr string) {
	o.Helper()
	return command(o.T, append(args, "-dsn", o.DSN)...)
}

// ok runs a command that must succeed.
func (o operator) ok(args ...string) string {
	o.Helper()
	code, out, err := o.run(args...)
	if code != 0 || err != "" {
		o.Errorf("%v: status %d, %q, %q", args, code, out, err)
	}
	return out
}

// fails runs a command that must fail with an error that contains want.
func (o operator) fails(want string, args ...string) { o.Helper(); o.ends(exitFailed, want, args...) }

// misused runs a command whose command line is wrong; the error must contain want.
func (o operator) misused(want string, args ...string) { o.Helper(); o.ends(exitUsage, want, args...) }

func (o operator) ends(status int, want string, args ...string) {
	o.Helper()
	if code, out, err := o.run(args...); code != status || out != "" || !strings.Contains(err, want) {
		o.Errorf("%v: status %d, %q, %q, want %q", args, code, out, err, want)
	}
}

// json runs a command and decodes its JSON output.
func (o operator) json(into any, args ...string) {
	o.Helper()
	out := o.ok(append(args, "-json")...)
	if err := json.Unmarshal([]byte(out), into); err != nil || strings.Count(out, "\n") != 1 {
		o.Errorf("%v: %q: %v", args, out, err)
	}
}

func onEveryEngine(t *testing.T, f func(o operator)) {
	t.Parallel()
	conformance.Run(t, conformance.SQL(), func(e *conformance.Env[*sql.Tx]) {
		e.AnyOwner() // as the command has it
		f(operator{e})
	})
}

func TestLocksBlocked(t *testing.T) {
	onEveryEngine(t, func(o operator) {
		if o.Engine == dbtest.SQLite {
			o.fails("does not tell", "locks", "blocked")
			return
		}
		locks := o.RowLocker()
		lock := func(tx *sql.Tx) error { return locks.LockTx(o.Ctx, tx, "order/1", dbtest.Hang) }
		holder := o.BeginTx(sql.LevelDefault)
		o.Check(lock(holder))
		waits := make(chan error, 1)
		go func() {
			waits <- o.DB.InTx(o.Ctx, func(_ context.Context, tx *sql.Tx) error { return lock(tx) })
		}()
		blocker := o.SessionOf(holder)
		var found block
		o.Eventually("it is seen to wait", func() bool {
			var blocks []block
			o.json(&blocks, "locks", "blocked") // tests beside this one may wait for each other
			i := slices.IndexFunc(blocks, func(b block) bool { return b.Blocker == blocker })
			if i >= 0 {
				found = blocks[i]
			}
			return i >= 0
		})
		if found.Waiter == "" || found.Waiter == blocker || found.State == "" {
			o.Errorf("got %+v", found)
		}
		o.Eventually("the table shows it", func() bool {
			out := o.ok("locks", "blocked")
			return strings.Contains(out, "BLOCKER") && strings.Contains(out, found.Waiter)
		})
		o.EndTx(holder, true)
		o.Check(<-waits)
	})
}

func TestLocks(t *testing.T) {
	onEveryEngine(t, func(o operator) {
		if out := o.ok("locks", "list"); out != "no leases\n" {
			o.Errorf("got %q", out)
		}
		if out := o.ok("locks", "queues", "-json"); out != "[]\n" {
			o.Errorf("got %q", out)
		}
		l, err := sqllock.New(o.Ctx, o.DB, sqllock.Options{Holder: "worker 7", TTL: time.Minute})
		if err != nil {
			o.Fatal(err)
		}
		defer func() { _ = l.Close(o.Ctx) }()
		held, err := l.Acquire(o.Ctx, "order/1")
		if err != nil {
			o.Fatal(err)
		}
		if _, err := l.Acquire(o.Ctx, "\xff\x00"); err != nil {
			o.Fatal(err)
		}
		place, err := fairlock.New(l).AcquireShared(o.Ctx, "a line")
		if err != nil {
			o.Fatal(err)
		}
		s, err := fairlock.New(l).Semaphore("permits", 3)
		if err != nil {
			o.Fatal(err)
		}
		permits, err := s.Acquire(o.Ctx, 2)
		if err != nil {
			o.Fatal(err)
		}

		out := o.ok("locks", "list")
		for _, want := range []string{"order/1", `"worker 7"`, strconv.FormatInt(held.Token(), 10), `"\xff\x00"`} {
			if !strings.Contains(out, want) {
				o.Errorf("%q is not in\n%s", want, out)
			}
		}
		var leases []lease
		o.json(&leases, "locks", "list")
		if len(leases) != 2 || leases[0].Key != "order/1" || leases[0].Holder != "worker 7" || !leases[0].Held || leases[0].RemainingMS <= 0 || leases[1].Hex != "ff00" {
			o.Errorf("got %+v", leases)
		}
		o.json(&leases, "locks", "list", "--begin", "order/")
		if len(leases) != 1 {
			o.Errorf("got %+v", leases)
		}
		if out := o.ok("locks", "queues"); !strings.Contains(out, "has shared") || !strings.Contains(out, "has 2 of 3") {
			o.Errorf("got %s", out)
		}

		why := []string{"--by", "ada", "--reason", "ticket 7"}
		release := func(args ...string) []string {
			return append(append([]string{"locks", "release", "--yes"}, why...), args...)
		}
		o.misused("required", "locks", "release", "--key", "order/1")
		o.misused("--key-hex", release("--key-hex", "xyz")...)
		o.misused("--kind", release("--key", "order/1", "--kind", "other", "--token", "1")...)
		o.misused("--token", release("--key", "a line", "--kind", "fair")...)
		for _, args := range [][]string{{"--key", "not there"}, {"--key", "order/1", "--token", "1"}} {
			o.fails("nothing was released", release(args...)...)
			if code, out, _ := o.run(release(append(args, "-json")...)...); code != exitFailed || out != `{"released":false}`+"\n" {
				o.Errorf("%v: status %d, %q", args, code, out)
			}
		}
		for _, args := range [][]string{
			{"--key", "order/1"},
			{"--key-hex", "ff00"},
			{"--key", "a line", "--kind", "fair", "--token", strconv.FormatInt(place.Token(), 10)},
			{"--key", "permits", "--kind", "semaphore", "--token", strconv.FormatInt(permits.Token(), 10)},
		} {
			if out := o.ok(release(args...)...); out != "released\n" {
				o.Errorf("%v: got %q", args, out)
			}
		}
		if err := held.Release(o.Ctx); !errors.Is(err, sqllock.ErrLost) {
			o.Errorf("its holder is told %v", err)
		}
		o.json(&leases, "locks", "list", "--all", "--begin", "order")
		if len(leases) != 1 || leases[0].Held || leases[0].ForcedBy != "ada" || leases[0].Reason != "ticket 7" || leases[0].ForcedAt == nil {
			o.Errorf("got %+v", leases)
		}
	})
}

// refunds is a program whose provider returns a T and cannot be reached.
func refunds[T any](o operator, store *idempotency.Store[*sql.Tx]) *staged.Runner[int, T, *sql.Tx] {
	o.Helper()
	runner, err := staged.New(store, staged.Workflow[int, T, *sql.Tx]{
		Name: "refund",
		Run: func(ctx context.Context, r *staged.Run[*sql.Tx], _ int) (T, error) {
			return staged.Call(ctx, r, staged.ExternalCall[T]{Step: "pay"}, func(context.Context, string) (none T, err error) {
				return none, errors.New("the line is dead")
			})
		},
	})
	if err != nil {
		o.Fatal(err)
	}
	return runner
}

func TestOps(t *testing.T) {
	onEveryEngine(t, func(o operator) {
		store, err := idempotency.New(o.Ctx, o.DB)
		if err != nil {
			o.Fatal(err)
		}
		runner := refunds[int](o, store)
		op := func(key string) idempotency.Op { return idempotency.Op{Owner: "shop", Name: "refund", Key: key} }
		for _, key := range []string{"1", "2"} {
			if _, err := runner.Do(o.Ctx, op(key), 1250); err == nil {
				o.Fatal("it was to fail")
			}
		}
		var list []operation
		o.json(&list, "ops", "list")
		if len(list) != 2 || list[0].State != "unknown" || list[0].Step != "pay" || list[0].Owner != "shop" {
			o.Fatalf("got %+v", list)
		}
		o.json(&list, "ops", "list", "--owner", "another")
		if len(list) != 0 {
			o.Errorf("got %+v", list)
		}
		o.json(&list, "ops", "list", "--limit", "1")
		first := list[0].ID
		o.json(&list, "ops", "list", "--after", first)
		if len(list) != 1 || list[0].ID == first {
			o.Errorf("got %+v behind %s", list, first)
		}
		if out := o.ok("ops", "list"); !strings.Contains(out, "the line is dead") {
			o.Errorf("got %s", out)
		}

		ref := func(key string) []string { return []string{"--owner", "shop", "--name", "refund", "--key", key} }
		with := func(command, key string, more ...string) []string {
			return append(append([]string{"ops", command}, ref(key)...), more...)
		}
		why := []string{"--by", "ada", "--reason", "asked the provider"}
		var one operation
		o.json(&one, with("show", "1")...)
		if len(one.Steps) != 1 || one.Steps[0].ProviderKey == "" || one.Key != "1" {
			o.Errorf("got %+v", one)
		}
		o.fails("no such operation", with("show", "3")...)
		o.misused("--result", with("resolve", "1", append(why, "--as", "step-done")...)...)
		o.misused("--as", with("resolve", "1", append(why, "--as", "nonsense")...)...)
		o.misused("--code", with("resolve", "1", append(why, "--as", "rejected")...)...)
		o.misused("required", with("resolve", "1", "--as", "resume")...)
		o.fails("set", with("resolve", "1", append(why, "--as", "resume")...)...)
		for _, as := range []string{"step-done", "succeeded"} {
			o.misused("--result: is not what the function returns: give int", with("resolve", "1", append(why, "--yes", "--as", as, "--result", `"text"`)...)...)
		}
		if out := o.ok(with("show", "1")...); !strings.Contains(out, "result is int") {
			o.Errorf("got %s", out)
		}
		if out := o.ok(with("resolve", "1", append(why, "--as", "step-done", "--result", "1250")...)...); out != "waiting\n" {
			o.Errorf("got %q", out)
		}
		if r, err := runner.Do(o.Ctx, op("1"), 1250); err != nil || r.Value != 1250 {
			o.Errorf("it goes on with %v, %v", r, err)
		}
		unsure := append(slices.Clone(why), "--as", "rejected", "--code", "fraud", "--message", "no")
		o.misused("None of its steps runs any more", with("resolve", "2", unsure...)...)
		if out := o.ok(with("resolve", "2", append(unsure, "--yes")...)...); out != "rejected\n" {
			o.Errorf("got %q", out)
		}
		var rejection *idempotency.Rejection
		if _, err := runner.Do(o.Ctx, op("2"), 1250); !errors.As(err, &rejection) || rejection.Code != "fraud" {
			o.Errorf("its callers are told %v", err)
		}
		if out := o.ok(with("show", "2")...); !strings.Contains(out, "by ada") || !strings.Contains(out, "asked the provider") {
			o.Errorf("got %s", out)
		}
		if out := o.ok(with("erase", "1", why...)...); out != "succeeded and expired\n" {
			o.Errorf("got %q", out)
		}
		if _, err := runner.Do(o.Ctx, op("1"), 1250); !errors.Is(err, idempotency.ErrExpired) {
			o.Errorf("its callers are told %v", err)
		}

		// A new result replaces one that a later version of the program cannot read.
		if _, err := runner.Do(o.Ctx, op("3"), 1250); !errors.Is(err, idempotency.ErrUnknown) {
			o.Error(err)
		}
		o.ok(with("resolve", "3", append(why, "--as", "step-done", "--result", "1250")...)...)
		later := refunds[string](o, store)
		if _, err := later.Do(o.Ctx, op("3"), 1250); !errors.Is(err, idempotency.ErrUnknown) {
			o.Errorf("it goes on with %v", err)
		}
		if out := o.ok(with("show", "3")...); !strings.Contains(out, "cannot be read") {
			o.Errorf("got %s", out)
		}
		o.misused("give string", with("resolve", "3", append(why, "--as", "step-done", "--result", "1250")...)...)
		if out := o.ok(with("resolve", "3", append(why, "--as", "step-done", "--result", `"1250"`)...)...); out != "waiting\n" {
			o.Errorf("got %q", out)
		}
		if r, err := later.Do(o.Ctx, op("3"), 1250); err != nil || r.Value != "1250" {
			o.Errorf("corrected, it goes on with %v, %v", r, err)
		}

		// A record made by Do.
		r, err := idempotency.Do(o.Ctx, store, idempotency.Op{Owner: "shop", Name: "refund", Key: "r", Request: 1}, func(context.Context, *sql.Tx) (string, error) { return "done", nil })
		if err != nil || r.Value != "done" {
			o.Fatal(r, err)
		}
		o.json(&list, "ops", "list", "--records", "--state", "succeeded,rejected")
		if len(list) != 1 || list[0].Staged || list[0].Key != "r" {
			o.Errorf("got %+v", list)
		}
		o.fails("only what is unknown", with("resolve", "r", append(why, "--as", "free")...)...)
		for _, s := range append(slices.Clone(states), "in progress") {
			o.ok("ops", "list", "--state", s)
		}
		o.misused("--state", "ops", "list", "--state", "lost")

		for _, said := range []string{"cancelled\n", "cancelled before\n"} {
			if out := o.ok(with("cancel", "never", why...)...); out != said {
				o.Errorf("got %q, want %q", out, said)
			}
		}
		if _, err := runner.Do(o.Ctx, op("never"), 1250); !errors.As(err, &rejection) || rejection.Code != idempotency.CodeVoided {
			o.Errorf("its callers are told %v", err)
		}
		o.fails("too late to void: the operation is succeeded and expired", with("cancel", "1", why...)...)
	})
}

func TestReap(t *testing.T) {
	onEveryEngine(t, func(o operator) {
		store := o.Store(idempotency.Options{ResultTTL: 50 * time.Millisecond, KeyTTL: 50 * time.Millisecond})
		for _, key := range []string{"1", "2", "3"} {
			if _, err := o.Do(store, conformance.Op(key)); err != nil {
				o.Fatal(err)
			}
		}
		time.Sleep(100 * time.Millisecond) // twice their life
		var r reaped
		o.json(&r, "reap", "--dry-run")
		if !r.DryRun || r.Rows < 3 {
			o.Errorf("got %+v", r)
		}
		if n := o.Int(`SELECT COUNT(*) FROM holdfast_records`); n != 3 {
			o.Errorf("the dry run left %d", n)
		}
		o.json(&r, "reap", "--batch", "2", "--pace", "0.1")
		if r.DryRun || r.Rows < 3 || len(r.Tasks) == 0 {
			o.Errorf("got %+v", r)
		}
		if n := o.Int(`SELECT COUNT(*) FROM holdfast_records`); n != 0 {
			o.Errorf("%d are left", n)
		}
		var passes []pass
		o.json(&passes, "reap", "--history")
		if len(passes) != 1 || passes[0].Rows != r.Rows || len(passes[0].Tasks) != len(r.Tasks) || passes[0].Holder == "" || passes[0].Ended.Before(passes[0].Began) {
			o.Errorf("got %+v", passes)
		}
		if out := o.ok("reap", "--history", "--limit", "1"); !strings.Contains(out, "keys:3") {
			o.Errorf("got %s", out)
		}
		if out := o.ok("reap"); !strings.Contains(out, "cleared 0 rows") {
			o.Errorf("got %q", out)
		}
		o.misused("--batch: ", "reap", "--batch", "2001")

		o.Must(`CREATE TABLE sessions (id BIGINT NOT NULL PRIMARY KEY, until BIGINT)`)
		o.Must(`INSERT INTO sessions VALUES (1, $1), (2, $2), (3, NULL)`, o.Now()/1000-3_600_000, o.Now()/1000-60_000)
		for want, table := range map[string]string{
			"TABLE:KEY": "sessions:id:until", "UNIT": "sessions:id:until:days", "GRACE": "sessions:id:until:ms:long", "CREATE INDEX": "sessions:id:until:ms",
		} {
			o.misused(want, "reap", "--table", table)
		}
		o.json(&r, "reap", "--scan", "--table", "sessions:id:until:ms:30m")
		if n := o.Int(`SELECT COUNT(*) FROM sessions`); n != 2 || r.Rows != 1 || r.Tasks[conformance.SweepTasks].Task != "sessions" {
			o.Errorf("%d are left, %+v", n, r)
		}

		// A table whose row cannot be deleted does not hide what the pass did.
		o.Must(`INSERT INTO sessions VALUES (4, $1)`, o.Now()/1000-3_600_000)
		kept := `FOR EACH ROW SIGNAL SQLSTATE '45000'`
		switch o.Engine {
		case dbtest.SQLite:
			kept = `BEGIN SELECT RAISE(ABORT, 'kept'); END`
		case dbtest.Postgres:
			o.Must(`CREATE FUNCTION kept() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION ''kept''; END'`)
			kept = `FOR EACH ROW EXECUTE FUNCTION kept()`
		}
		o.Must(`CREATE TRIGGER kept BEFORE DELETE ON sessions ` + kept)
		_, err := o.Do(store, conformance.Op("4"))
		o.Check(err)
		time.Sleep(100 * time.Millisecond) // twice its life
		var partial strings.Builder
		code := run(o.Ctx, []string{"reap", "--scan", "--table", "sessions:id:until:ms:30m", "-json", "-dsn", o.DSN}, &partial, io.Discard)
		if err := json.Unmarshal([]byte(partial.String()), &r); code != exitFailed || err != nil || r.Rows == 0 {
			o.Errorf("status %d, %v: %s", code, err, partial.String())
		}

		ctx, cancel := context.WithTimeout(o.Ctx, time.Minute)
		defer cancel()
		out, errs := until{enough: cancel}, strings.Builder{}
		run(ctx, []string{"reap", "--every", "10ms", "-json", "-dsn", o.DSN}, &out, &errs)
		if n := strings.Count(out.String(), "\n"); n < 2 {
			o.Errorf("%d passes: %s %s", n, out.String(), errs.String())
		}
	})
}

// until is an output that calls enough after two lines.
type until struct {
	strings.Builder
	enough func()
}

func (u *until) Write(b []byte) (int, error) {
	n, err := u.Builder.Write(b)
	if strings.Count(u.String(), "\n") >= 2 {
		u.enough()
	}
	return n, err
}

func TestDoctor(t *testing.T) {
	onEveryEngine(t, func(o operator) {
		o.Must(`CREATE TABLE loose (k INTEGER)`)
		var found []finding
		code, out, _ := o.run("doctor", "-json")
		if err := json.Unmarshal([]byte(out), &found); err != nil || code != exitOK && code != exitBroken {
			o.Errorf("status %d, %s", code, out)
		}
		for _, f := range found {
			// Tests of other packages change these server settings for a moment.
			planted := f.Check == "sync_binlog" || f.Check == "innodb_flush_log_at_trx_commit" || f.Check == "replication"
			if f.Severity == "broken" && !planted {
				o.Errorf("got %+v", f)
			}
		}
		code, out, err := o.run("doctor", "--table", "loose:k")
		if code != exitBroken || !strings.Contains(out, "broken: table loose: ") || !strings.Contains(err, "broken") {
			o.Errorf("status %d, %q, %q", code, out, err)
		}
		o.misused("--table", "doctor", "--table", "loose")

		// On each engine, a setting that breaks a promise or makes Open fail.
		wrong := map[dbtest.Engine][2]string{
			dbtest.Postgres: {"&synchronous_commit=off", "synchronous_commit"}, dbtest.SQLite: {"?_pragma=synchronous(0)", "synchronous"},
			dbtest.MySQL: {"?autocommit=0", "autocommit"}, dbtest.MariaDB: {"?autocommit=0", "autocommit"},
		}[o.Engine]
		code, out, _ = command(o.T, "doctor", "-json", "-dsn", o.DSN+wrong[0])
		if err := json.Unmarshal([]byte(out), &found); err != nil || code != exitBroken {
			o.Errorf("status %d, %s", code, out)
		}
		if !slices.ContainsFunc(found, func(f finding) bool { return f.Check == wrong[1] && f.Severity == "broken" && f.Advice != "" }) {
			o.Errorf("%s is not in %s", wrong[1], out)
		}
	})
}
