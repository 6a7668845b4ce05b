package prove_test

import (
	"bytes"
	"context"
	"database/sql"
	"fmt"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/prove"
	"github.com/holdfast-go/holdfast/internal/dialect/postgres"
	"github.com/holdfast-go/holdfast/internal/dsn"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
	"github.com/holdfast-go/holdfast/internal/test/faultproxy"
)

// planted runs on an engine that lacks a behaviour. It fails unless the promises and checks in
// failing fail and the report contains found.
func planted(t *testing.T, o prove.Options, found string, failing ...string) prove.Report {
	t.Helper()
	dbtest.NotUnderRace(t, "TestPass does all that this does")
	o.Duration = prove.MaxDuration // so that the machine's speed decides no result
	report, err := prove.Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	text := report.Text()
	got := verdicts(report)
	for _, name := range failing {
		if got[name] != prove.Fail {
			t.Errorf("%s: %q, want fail", name, got[name])
		}
	}
	if report.Verdict != prove.Fail || !strings.HasPrefix(text, "FAIL: ") || !strings.Contains(text, found) {
		t.Errorf("%s does not say %q", report.Verdict, found)
	}
	if t.Failed() {
		t.Log(text)
	}
	return report
}

// edited returns the URL of a proxy that changes the bytes of each request with edit.
func edited(t *testing.T, databaseURL string, edit func(request []byte)) string {
	t.Helper()
	at := address.FindStringSubmatchIndex(databaseURL)
	proxy, err := faultproxy.New(databaseURL[at[2]:at[3]])
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(proxy.Close)
	proxy.Edit(edit)
	return databaseURL[:at[2]] + proxy.Addr() + databaseURL[at[3]:]
}

var address = regexp.MustCompile(`@(?:tcp\()?([^/?()]+)`)

// without removes every match of pattern from each statement.
func without(pattern string) func(request []byte) {
	match := regexp.MustCompile(pattern)
	return func(request []byte) {
		for _, at := range match.FindAllIndex(request, -1) {
			for i := at[0]; i < at[1]; i++ {
				request[i] = ' '
			}
		}
	}
}

// instead replaces each old with the result of text, padded with blanks.
func instead(old string, text func() string) func(request []byte) {
	if old == "" {
		panic("instead of nothing")
	}
	return func(request []byte) {
		for from := 0; ; {
			at := bytes.Index(request[from:], []byte(old))
			if at < 0 {
				return
			}
			from += at + copy(request[from+at:], fmt.Appendf(nil, "%-*s", len(old), text()))
		}
	}
}

// eachServer runs f on each engine that is reached over a network.
func eachServer(t *testing.T, f func(t *testing.T, e dbtest.Engine)) {
	t.Helper()
	dbtest.Each(t, func(t *testing.T, e dbtest.Engine) {
		if e != dbtest.SQLite {
			f(t, e)
		}
	})
}

// skips reports whether Holdfast relies on e's SKIP LOCKED.
func skips(e dbtest.Engine) bool { return e != dbtest.TiDB }

// TestNoRowLocks uses an engine that accepts FOR UPDATE and locks nothing.
func TestNoRowLocks(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, e dbtest.Engine) {
		broken := edited(t, dbtest.DSN(t, e), without(`FOR (NO KEY )?(UPDATE|SHARE)( OF \w+)?|LOCK IN SHARE MODE|SKIP LOCKED|NOWAIT`))
		failing := []string{"row lock", "guard", "G2"}
		if skips(e) {
			failing = append(failing, "skip locked", "G1")
		}
		planted(t, prove.Options{Pool: pools(broken)}, "was not made to wait: the engine does not lock rows", failing...)
	})
}

// TestNoSkipLocked uses an engine that locks but waits although the statement says SKIP
// LOCKED.
func TestNoSkipLocked(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, e dbtest.Engine) {
		if !skips(e) {
			return
		}
		broken := edited(t, dbtest.DSN(t, e), without(`SKIP LOCKED`))
		planted(t, prove.Options{Pool: pools(broken)}.Only("skip locked"),
			"SKIP LOCKED waited for rows that another session had locked", "skip locked", "G1", "G2")
	})
}

// TestTwoWriters uses an address whose connections lead to two databases in turn.
func TestTwoWriters(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, e dbtest.Engine) {
		if e == dbtest.Vitess {
			return // the names of its keyspaces are too short to be found in a statement
		}
		one, two := dbtest.DSN(t, e), dbtest.DSN(t, e)
		turns := &turns{urls: []string{one, two}}
		if e != dbtest.SQLite { // these engines qualify names with the schema name that the first connection reports
			turns.urls[1] = edited(t, two, instead(ownName.FindString(one), func() string { return ownName.FindString(two) }))
		}
		other := dbtest.OpenSQL(t, two)
		o := prove.Options{Pool: func(dial prove.Dial) (*sql.DB, error) {
			if dial != nil {
				return dsn.OpenThrough(one, dial)
			}
			return sql.OpenDB(turns), nil
		}}.OnReady(func(ctx context.Context, prefix string) error {
			err := prove.MakeTables(ctx, other, prefix)
			turns.on.Store(true)
			return err
		})
		o.Progress = func(check string) {
			if check == "clock" { // the last check; the end of the run follows
				turns.on.Store(false)
			}
		}
		planted(t, o, "a second writer is behind this address", "one database", "claim race", "lease race", "G1", "G2", "G3", "G4", "G5", "G7")
	})
}

// ownName matches the schema or database that a test's URL names.
var ownName = regexp.MustCompile(`hf_[a-z0-9]{16}`)

// TestTwoServers uses an address whose connections lead to servers that report different
// identities.
func TestTwoServers(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, e dbtest.Engine) {
		name := map[dbtest.Engine][2]string{
			dbtest.Postgres: {`pg_postmaster_start_time()`, `clock_timestamp()`}, dbtest.MySQL: {`@@server_uuid`, `UUID()`}, dbtest.MariaDB: {`@@server_id`, `RAND()`},
			dbtest.TiDB: {`@@hostname`, `RAND()`}, dbtest.Vitess: {`@@server_uuid`, `UUID()`},
		}[e]
		broken := edited(t, dbtest.DSN(t, e), instead(name[0], func() string { return name[1] }))
		planted(t, prove.Options{Pool: pools(broken)}.Only("one database"), "lead to two servers", "one database", "G1", "G4")
	})
}

// TestLaterRefused checks a connection that is opened later and refused.
func TestLaterRefused(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, e dbtest.Engine) {
		if e == dbtest.Postgres {
			return // it has no URL setting that Holdfast refuses
		}
		databaseURL := dbtest.DSN(t, e)
		var ready atomic.Bool
		o := prove.Options{Pool: func(dial prove.Dial) (*sql.DB, error) {
			if ready.Load() {
				return pools(dbtest.With(databaseURL, "autocommit=0"))(dial)
			}
			return pools(databaseURL)(dial)
		}}.Only("claim race").OnReady(func(context.Context, string) error {
			ready.Store(true)
			return nil
		})
		o.Progress = func(string) {}
		report, err := prove.Run(t.Context(), o)
		if verdicts(report)["claim race"] != prove.Fail || !strings.Contains(report.Text(), "a later connection of this address was refused") {
			t.Errorf("got %v, %s", err, report.Text())
		}
	})
}

// TestReplica sends reads outside of transactions to a replica that lags.
func TestReplica(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, e dbtest.Engine) {
		databaseURL := dbtest.DSN(t, e)
		if e != dbtest.Postgres { // one round trip, and no prepared statement
			databaseURL = dbtest.With(databaseURL, "interpolateParams=true")
		}
		splitter := newSplitter(t, e, databaseURL)
		o := prove.Options{Pool: func(dial prove.Dial) (*sql.DB, error) {
			if dial != nil {
				return dsn.OpenThrough(databaseURL, dial)
			}
			return sql.OpenDB(splitter), nil
		}}.OnReady(func(context.Context, string) error {
			splitter.on.Store(true)
			return nil
		})
		o.Progress = func(check string) {
			if check == "clock" {
				splitter.stop()
			}
		}
		planted(t, o, "a replica or a second writer is behind this address", "one database", "G1", "G2", "G3", "G4", "G5", "G7")
	})
}

// clocks are the expressions for the clock in Holdfast's statements, by Engine.Like.
var clocks = map[dbtest.Engine]string{
	dbtest.Postgres: postgres.Dialect.Now,
	dbtest.MySQL:    `TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6))`,
}

// TestClock uses a clock that stands still, one that goes back, and one with a resolution of a
// hundredth of a second.
func TestClock(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, e dbtest.Engine) {
		var ticks atomic.Int64
		number := func(us int64) string {
			if e == dbtest.Postgres {
				return fmt.Sprintf("(%d::bigint)", us)
			}
			return fmt.Sprint(us)
		}
		start := time.Now().UnixMicro()
		for what, c := range map[string]struct {
			found string
			now   func() string
		}{
			"stands":  {"the database's clock went forward by 0s", func() string { return number(start) }},
			"goes":    {"the database's clock went back", func() string { return number(start - ticks.Add(10_000)) }},
			"leaps":   {"the database's clock went", func() string { return number(start + ticks.Add(100_000)) }},
			"is slow": {"the database's clock went", func() string { return number(start + (time.Now().UnixMicro()-start)/2) }},
			"is coarse": {"the database's clock shows steps of 10ms", func() string {
				if e == dbtest.Postgres { // the driver sends the statement only once
					return `(date_part('epoch',clock_timestamp())*100)::int8*10000`
				}
				return number(time.Now().UnixMicro() / 10_000 * 10_000)
			}},
		} {
			broken := edited(t, dbtest.DSN(t, e), instead(clocks[e.Like()], c.now))
			report := planted(t, prove.Options{Pool: pools(broken)}.Only("clock"), c.found, "clock", "G1", "G3")
			if t.Failed() {
				t.Fatalf("a clock that %s: %s", what, report.Text())
			}
		}
	})
}

// TestTokensAgain uses a clock that stands still, and a floor that the reaper cannot raise.
func TestTokensAgain(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, e dbtest.Engine) {
		now := fmt.Sprint(time.Now().UnixMicro())
		if e == dbtest.Postgres {
			now = "(" + now + "::bigint)"
		}
		stand, low := instead(clocks[e.Like()], func() string { return now }), instead("id = 1 AND token <", func() string { return "id = 9 AND token <" })
		broken := edited(t, dbtest.DSN(t, e), func(request []byte) { stand(request); low(request) })
		planted(t, prove.Options{Pool: pools(broken)}.Only("tokens"), "was granted after token", "tokens", "G3")
	})
}

// TestTornTransaction uses an engine that commits each statement after a deadlock, in a
// session where no setting prevents that.
func TestTornTransaction(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, e dbtest.Engine) {
		if e == dbtest.Postgres {
			return // PostgreSQL refuses every statement after an error
		}
		broken := edited(t, dbtest.DSN(t, e), instead("autocommit = 0", func() string { return "autocommit = 1" }))
		planted(t, prove.Options{Pool: pools(broken)}.Only("lost transaction"), "a key has 2 effects", "lost transaction", "G4")
	})
}

// TestNoUniqueKey uses records without their primary key, as after a bad restore. Holdfast may
// refuse connections that are opened later because of it.
func TestNoUniqueKey(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, e dbtest.Engine) {
		if e == dbtest.Postgres || e == dbtest.TiDB {
			return // the statement fails without the key; the key cannot be dropped
		}
		databaseURL, prefix := dbtest.DSN(t, e), ""
		pool := dbtest.OpenSQL(t, databaseURL)
		o := prove.Options{Pool: pools(databaseURL)}.Only("isolation", "claim race", "lost commit").Overlap(10 * time.Second).
			OnReady(func(_ context.Context, p string) error { prefix = p; return nil })
		o.Progress = func(check string) {
			if check == "claim race" { // the sessions of the run are open
				// Without any index each finish would lock the other's row, and a deadlock may
				// leave one of the two in every round.
				if _, err := pool.ExecContext(t.Context(), `ALTER TABLE `+prefix+`records DROP PRIMARY KEY, ADD KEY (owner, key_hash, attempt)`); err != nil {
					t.Error(err)
				}
			}
		}
		planted(t, o, "sessions executed one key", "claim race", "lost commit", "G4", "G6")
	})
}

// TestForgottenKeys uses a database in which another program deletes the record.
func TestForgottenKeys(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, e dbtest.Engine) {
		databaseURL := dbtest.DSN(t, e)
		pool := dbtest.OpenSQL(t, databaseURL)
		var prefix string
		ctx, stop := context.WithCancel(t.Context())
		var deleting sync.WaitGroup
		o := prove.Options{Pool: pools(databaseURL)}.Only("expired result").OnReady(func(_ context.Context, p string) error { prefix = p; return nil })
		o.Progress = func(string) {
			deleting.Go(func() {
				for ctx.Err() == nil {
					if done, err := pool.ExecContext(ctx, `DELETE FROM `+prefix+`records`); err == nil {
						if n, _ := done.RowsAffected(); n > 0 {
							return
						}
					}
				}
			})
		}
		defer deleting.Wait()
		defer stop()
		planted(t, o, "a key whose result has expired was executed again", "expired result", "G5")
	})
}

// TestLostUpdates uses an engine that accepts an older version than the requested one.
func TestLostUpdates(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, e dbtest.Engine) {
		edits := []func([]byte){instead(`AND "version" = `, func() string { return `AND "version" >=` }), instead("AND `version` = ", func() string { return "AND `version` >=" })}
		broken := edited(t, dbtest.DSN(t, e), func(request []byte) { edits[0](request); edits[1](request) })
		planted(t, prove.Options{Pool: pools(broken)}.Only("lost update"), "sessions updated one version of a row", "lost update", "G7")
	})
}

// TestFoldedKeys uses a server that treats two different keys as equal.
func TestFoldedKeys(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, e dbtest.Engine) {
		broken := edited(t, dbtest.DSN(t, e), instead("TWIN", func() string { return "twin" }))
		planted(t, prove.Options{Pool: pools(broken)}.Only("twin keys"), `"TWIN"`, "twin keys", "G8")
	})
}

// TestDirtyReads checks that sessions that see uncommitted data are refused or fail.
func TestDirtyReads(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, e dbtest.Engine) {
		if e == dbtest.Postgres || e == dbtest.TiDB {
			return // it has no such level
		}
		name := "transaction_isolation"
		if e == dbtest.MariaDB {
			name = "tx_isolation"
		}
		dirty := dbtest.With(dbtest.DSN(t, e), name+"="+url.QueryEscape("'READ-UNCOMMITTED'"))
		report, err := prove.Run(t.Context(), prove.Options{Pool: pools(dirty)}.Only("isolation", "uncommitted result"))
		if err != nil || report.Verdict != prove.Fail || report.Refused == "" && verdicts(report)["isolation"] != prove.Fail {
			t.Errorf("got %v, %s", err, report.Text())
		}
	})
}

// TestLeftBehind checks that a run that cannot drop its tables reports this, with their names.
func TestLeftBehind(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, e dbtest.Engine) {
		databaseURL := dbtest.DSN(t, e)
		prefix, down := "", false
		o := prove.Options{Pool: func(dial prove.Dial) (*sql.DB, error) {
			if down {
				return nil, context.DeadlineExceeded
			}
			return pools(databaseURL)(dial)
		}}.OnReady(func(_ context.Context, p string) error {
			prefix, down = p, true
			return nil
		})
		report, err := prove.Run(t.Context(), o)
		if err == nil || prefix == "" || !strings.Contains(err.Error(), prefix) {
			t.Errorf("got %v of %q", err, prefix)
		}
		for name, v := range verdicts(report) {
			if v == prove.Pass || v == prove.Fail {
				t.Errorf("without a connection: %s: %s", name, v)
			}
		}
	})
}
