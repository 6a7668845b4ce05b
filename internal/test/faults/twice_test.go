package faults_test

import (
	"database/sql"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jmoiron/sqlx"

	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
	"github.com/holdfast-go/holdfast/internal/test/faultproxy"
)

// Rule: whichever request of an operation is lost, or loses its reply, the operation has its
// effect once, and an error other than "unknown" left none.
func TestNothingRunsTwice(t *testing.T) {
	t.Parallel()
	everyMode(t, nothingRunsTwice[*sql.Tx], nothingRunsTwice[pgx.Tx], nothingRunsTwice[*sqlx.Tx])
}

func nothingRunsTwice[Tx any](w *world[Tx]) {
	for _, a := range w.asks(idempotency.DefaultWait) {
		if a.name == "row" && !w.usual {
			continue // the same requests, except for their text
		}
		for n := 1; ; n++ {
			// The reply, then the request, alternating between the endings.
			hit := loseNth(w, a, w.proxy.LoseReply(faultproxy.Nth(n), faultproxy.Ending(n%2)), fmt.Sprint("reply ", n))
			hit = loseNth(w, a, w.proxy.LoseRequest(faultproxy.Nth(n), faultproxy.Ending((n+1)%2)), fmt.Sprint("request ", n)) || hit
			if !hit {
				if n < 5 {
					w.Fatalf("%s: only %d requests were seen", a.name, n-1)
				}
				break
			}
		}
	}
	naiveRerun(w)
}

// loseNth runs an operation under a fault; it returns false if the operation ended before the
// fault struck.
func loseNth[Tx any](w *world[Tx], a ask, f *faultproxy.Fault, what string) bool {
	w.Helper()
	defer f.Disarm()
	key := w.key(a.name + " " + what)
	w.insist(a, key)
	return f.Fired()
}

// Rule: a write in autocommit mode carries a parameter on pgx. The naive form has none: when its
// reply is lost, pgx 5.9.0 to 5.12.0 report it as safe to retry, and database/sql silently runs
// it again. (Holdfast writes in transactions, which begin with a statement that nothing depends
// on.)
func TestNaiveWriteWithoutParameterRunsTwice(t *testing.T) {
	t.Parallel()
	naive := func(w *world[*sql.Tx]) {
		if w.Engine != dbtest.Postgres {
			return // go-sql-driver never reports a statement that was sent as safe to retry
		}
		db := dbtest.OpenSQL(w.T, w.DSN)
		lose := func(match faultproxy.Match, key, query string, args ...any) (int, error) {
			if _, err := db.ExecContext(w.Ctx, query, args...); err != nil { // prepared, if the mode prepares statements
				w.Fatal(err)
			}
			w.Must(`DELETE FROM effects WHERE k = $1`, []byte(key))
			f := w.proxy.LoseReply(match, faultproxy.Reset)
			_, err := db.ExecContext(w.Ctx, query, args...)
			w.struck(f, err)
			return w.Effects(key), err
		}
		bare := w.key("bare")
		if n, err := lose(faultproxy.Contains("insert"), bare, `INSERT INTO effects (k, who) VALUES ('`+bare+`', '')`); n == 1 {
			w.Fatalf("the naive form should have failed on %s: %d effects, %v", pgxVersion(), n, err)
		}
		bound := w.key("bound")
		n, err := lose(faultproxy.Nth(1), bound, `INSERT INTO effects (k, who) VALUES ($1, '')`, []byte(bound))
		if strings.Contains(w.Name(), "simple_protocol") {
			w.Logf("%s, simple protocol, a bound parameter: %d effects, %v", pgxVersion(), n, err)
		} else if n != 1 || err == nil || pgconn.SafeToRetry(err) {
			w.Errorf("%s, a bound parameter: %d effects, %v", pgxVersion(), n, err)
		}
	}
	everyMode(t, naive, func(*world[pgx.Tx]) {}, func(*world[*sqlx.Tx]) {})
}

// pgxVersion returns the version in go.mod; a test binary does not know its modules.
func pgxVersion() string {
	mod, err := os.ReadFile("../../../go.mod")
	if err != nil {
		return err.Error()
	}
	return string(regexp.MustCompile(`jackc/pgx/v5 v\S+`).Find(mod))
}

// Rule: an unknown commit is resolved by claiming again, which waits for the transaction in
// doubt. The naive form reads: it finds no effect, and the commit happens after that.
func TestNaiveReadAfterLostCommit(t *testing.T) {
	t.Parallel()
	everyMode(t, commitInFlight[*sql.Tx], commitInFlight[pgx.Tx], commitInFlight[*sqlx.Tx])
}

func commitInFlight[Tx any](w *world[Tx]) {
	key := w.key("naive")
	f := w.proxy.Hold(faultproxy.Commit, faultproxy.Close)
	_ = w.bareUnder(f, key)
	before := w.Effects(key)
	if err := f.Deliver(); err != nil {
		w.Fatal(err)
	}
	if after := w.Effects(key); before == after {
		w.Fatalf("the naive form should have failed: it read %d effects, and there are %d", before, after)
	}

	for _, a := range w.asks(idempotency.DefaultWait) {
		key := w.key(a.name)
		w.ran.Store(0)
		f := w.proxy.Hold(faultproxy.Commit, faultproxy.Close)
		answer := make(chan error, 1)
		var outcome idempotency.Outcome
		go func() {
			var err error
			outcome, err = a.do(w.Ctx, key)
			answer <- err
		}()
		<-f.Struck()
		select {
		case err := <-answer:
			w.Errorf("%s: answered %v, %v while the commit was in flight", a.name, outcome, err)
		case <-time.After(300 * time.Millisecond):
			if err := f.Deliver(); err != nil {
				w.Error(err)
			}
			if err := <-answer; err != nil || outcome != idempotency.Replayed {
				w.Errorf("%s: %v, %v", a.name, outcome, err)
			}
		}
		w.WantOnce(key)
		if n := w.ran.Load(); n != 1 {
			w.Errorf("%s: the function ran %d times", a.name, n)
		}
	}
}
