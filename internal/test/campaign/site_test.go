//go:build unix

package campaign

import (
	"database/sql"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
	"github.com/holdfast-go/holdfast/internal/test/faultproxy"
	"github.com/holdfast-go/holdfast/internal/test/vdso"
	"github.com/holdfast-go/holdfast/migrations"
)

// A site is the environment of a campaign: a database, and a way to it for each client.
type site struct {
	t      *testing.T
	engine dbtest.Engine
	url    string
	own    *dbtest.CrashServer // nil if the server is shared and must not be killed
	clock  string              // the file with the offset of the server's clock, for libfaketime; empty without
	vdso   bool                // the server's clock is moved in its memory
	audit  *sql.DB
	bank   *bank
	ways   []*way

	replication *replication // nil without a standby
}

// A way is how one client connects to the database.
type way struct {
	what   string
	url    string
	native bool
	pool   int

	connector, disconnect bool
	proxy                 *faultproxy.Proxy // nil for SQLite
}

// newSite makes a site, and logs which faults are not possible here.
func newSite(t *testing.T, e dbtest.Engine, epochs int) *site {
	t.Helper()
	s := &site{t: t, engine: e, bank: openBank(t)}
	if e != dbtest.SQLite {
		s.ownServer()
	}
	if s.own == nil {
		s.url = dbtest.DSN(t, e)
	}
	s.audit = dbtest.OpenSQL(t, s.url)
	s.audit.SetMaxIdleConns(1)
	s.tables(epochs)
	for i := range 4 {
		s.ways = append(s.ways, s.way(i))
		t.Logf("%s: client %d: %s", e, i, s.ways[i].what)
	}
	possible := s.faults()
	for _, k := range kinds {
		if !slices.Contains(possible, k) {
			t.Logf("%s: this fault is not possible here: %s", e, k)
		}
	}
	return s
}

// ownServer starts a server whose clock can be moved, if the machine has everything for that.
func (s *site) ownServer() {
	dir, err := os.MkdirTemp("", "holdfast-campaign-")
	if err == nil {
		err = os.Chmod(dir, 0o755)
	}
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = os.RemoveAll(dir) })
	var env []string
	libs, _ := filepath.Glob("/usr/lib/*/faketime/libfaketimeMT.so.1")
	switch {
	case s.engine == dbtest.MySQL: // under libfaketime MySQL 9.7 takes minutes to start
	case len(libs) > 0:
		s.clock = filepath.Join(dir, "clock")
		env = []string{
			"LD_PRELOAD=" + libs[0], "FAKETIME_TIMESTAMP_FILE=" + s.clock, "NO_FAKE_STAT=1",
			"FAKETIME_DONT_FAKE_MONOTONIC=1", "DONT_FAKE_MONOTONIC=1", "FAKETIME_NO_CACHE=1",
		}
		s.moveClock(0)
	case os.Getenv("HOLDFAST_TEST_REQUIRE_FAKETIME") != "":
		s.t.Fatal("HOLDFAST_TEST_REQUIRE_FAKETIME is set and libfaketime was not found: apt-get install faketime")
	default:
		s.t.Logf("%s: the server's clock is not moved: libfaketime was not found (apt-get install faketime)", s.engine)
	}
	s.own, err = dbtest.NewCrashServer(s.t, s.engine, env...)
	if err != nil {
		s.clock = ""
		s.t.Logf("%s: on the shared server, which is not killed, and its clock not moved: %v", s.engine, err)
		return
	}
	s.url = s.own.URL
	if s.engine == dbtest.Postgres {
		s.replicate()
	}
	if s.own.InDocker {
		s.clock = "" // there is no libfaketime
		err := s.own.CanMoveClock()
		if s.vdso = err == nil; !s.vdso {
			s.t.Logf("%s: the server's clock is not moved: %v", s.engine, err)
		}
	}
	s.t.Logf("%s: %s", s.engine, s.own.How)
}

func (s *site) canMoveClock() bool { return s.clock != "" || s.vdso }

// reach bounds how far the server's clock moves. Without libfaketime a wait until a time of the moved
// clock takes as much longer.
func (s *site) reach(by time.Duration) time.Duration {
	const most = 10 * time.Second
	if s.vdso {
		return max(-most, min(by, most))
	}
	return by
}

// moveClock sets the server's clock to the machine's clock plus by.
func (s *site) moveClock(by time.Duration) {
	if s.vdso {
		if err := s.own.MoveClock(by); err != nil {
			s.t.Error(err)
		}
		return
	}
	next := s.clock + ".next"
	err := os.WriteFile(next, fmt.Appendf(nil, "%+.6fs\n", by.Seconds()), 0o600)
	if err == nil {
		err = os.Chmod(next, 0o644)
	}
	if err == nil {
		err = os.Rename(next, s.clock) // atomically
	}
	if err != nil {
		s.t.Error(err)
	}
}

var address = regexp.MustCompile(`@(tcp\()?([^/?()]+)`)

func (s *site) way(i int) *way {
	w := &way{what: "usual pool", url: s.url, pool: 6}
	param := ""
	if i == 0 && s.engine == dbtest.Postgres || i == 3 && s.engine != dbtest.Postgres {
		w.what, w.connector = "usual pool, with the adapter's connector", true
	}
	if i == 2 && s.engine != dbtest.SQLite {
		w.disconnect, w.pool = true, 10
	}
	switch {
	case i == 1:
		w.what, w.pool = "pool of one", 1
	case s.engine == dbtest.SQLite:
		return w
	case i == 2 && s.engine == dbtest.Postgres:
		w.what, w.native = "pgx's own pool, leases end with the connection", true
	case i == 2:
		w.what, param = "usual pool, parameters interpolated, leases end with the connection", "interpolateParams=true"
	case i == 3 && s.engine == dbtest.Postgres && hasBouncer():
		w.what, w.url, param = "PgBouncer, in transaction mode", dbtest.PgBouncer(s.t, s.url, "transaction"), "default_query_exec_mode=exec"
	case i == 3 && s.engine == dbtest.Postgres:
		w.what = "usual pool, as PgBouncer was not found (apt-get install pgbouncer)"
	}
	if s.engine == dbtest.SQLite {
		return w
	}
	at := address.FindStringSubmatchIndex(w.url)
	proxy, err := faultproxy.New(w.url[at[4]:at[5]])
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(proxy.Close)
	s.replication.reaches(w.url[at[4]:at[5]], proxy, s.own)
	w.proxy = proxy
	w.url = w.url[:at[4]] + proxy.Addr() + w.url[at[5]:]
	if param != "" {
		w.url = dbtest.With(w.url, param)
	}
	return w
}

func hasBouncer() bool {
	_, err := exec.LookPath("pgbouncer")
	_, there := os.Stat("/usr/sbin/pgbouncer")
	return err == nil || there == nil || os.Getenv("HOLDFAST_TEST_REQUIRE_PGBOUNCER") != ""
}

// faults returns the kinds that are possible here.
func (s *site) faults() (some []kind) {
	for _, k := range kinds {
		possible := true
		switch k {
		case cut, hole, slow, lostCommit, lostReply, lostRequest:
			possible = s.engine != dbtest.SQLite // it has no connection
		case failover:
			possible = s.replication != nil
		case noSpace:
			possible = s.canFillDisk()
		case noRoom:
			possible = s.own != nil
		case server:
			possible = s.own != nil || s.engine == dbtest.SQLite
		case clock:
			possible = s.canMoveClock()
		case clientClock:
			possible = vdso.Possible
		case lock:
			possible = s.engine == dbtest.SQLite
		}
		if possible {
			some = append(some, k)
		}
	}
	return some
}

// jobs returns the jobs that are possible here.
func (s *site) jobs() (all []job) {
	for _, j := range jobs {
		if j.job != foreign || hasFunctions(s.engine) {
			all = append(all, j.job)
		}
	}
	return all
}

// hasFunctions reports whether an engine has functions for other languages.
func hasFunctions(e dbtest.Engine) bool { return e != dbtest.SQLite }

// sql replaces $1 by the placeholder of the engine's drivers.
func (s *site) sql(query string) string {
	return core.Compile("", query, s.engine != dbtest.Postgres).Text
}

// tables creates the tables that the clients write to.
func (s *site) tables(epochs int) {
	s.t.Helper()
	if err := migrations.Up(s.t.Context(), s.audit); err != nil {
		s.t.Fatal(err)
	}
	if hasFunctions(s.engine) {
		if err := migrations.FunctionsUp(s.t.Context(), s.audit); err != nil {
			s.t.Fatal(err)
		}
	}
	name, text, filler := "VARBINARY(64)", "VARBINARY(64)", "LONGTEXT"
	switch s.engine {
	case dbtest.Postgres:
		name, text, filler = "bytea", "TEXT", "TEXT"
	case dbtest.SQLite:
		name, text, filler = "BLOB", "TEXT", "TEXT"
	}
	statements := []string{
		`CREATE TABLE campaign_orders (name ` + name + ` NOT NULL PRIMARY KEY, balance BIGINT NOT NULL, seq BIGINT NOT NULL)`,
		`CREATE TABLE campaign_ledger (name ` + name + ` NOT NULL, amount BIGINT NOT NULL, id VARCHAR(40) NOT NULL, epoch BIGINT NOT NULL)`,
		`CREATE TABLE campaign_commits (name ` + name + ` NOT NULL, seq BIGINT NOT NULL, token BIGINT NOT NULL, epoch BIGINT NOT NULL)`,
		`CREATE TABLE campaign_effects (name ` + name + ` NOT NULL, id VARCHAR(40) NOT NULL, epoch BIGINT NOT NULL)`,
		`CREATE TABLE campaign_payouts (payout_no ` + text + ` NOT NULL UNIQUE, amount BIGINT NOT NULL, who VARCHAR(40) NOT NULL, epoch BIGINT NOT NULL)`,
		`CREATE TABLE campaign_bookings (name ` + name + ` NOT NULL, kind VARCHAR(10) NOT NULL, epoch BIGINT NOT NULL)`,
		`CREATE TABLE campaign_taken (name ` + text + ` NOT NULL, id VARCHAR(64) NOT NULL, amount BIGINT NOT NULL, epoch BIGINT NOT NULL)`,
		`CREATE TABLE campaign_posts (id VARCHAR(40) NOT NULL, name ` + name + ` NOT NULL, epoch BIGINT NOT NULL)`,
		`CREATE TABLE campaign_ticks (tick VARCHAR(20) NOT NULL, who VARCHAR(40) NOT NULL, epoch BIGINT NOT NULL)`,
		`CREATE TABLE campaign_handles (name ` + name + ` NOT NULL, token BIGINT NOT NULL, id VARCHAR(40) NOT NULL, handle VARCHAR(2048) NOT NULL, epoch BIGINT NOT NULL)`,
		`CREATE TABLE campaign_filler (text ` + filler + `)`,
		`CREATE INDEX campaign_handles_name ON campaign_handles (name, token)`,
		`CREATE TABLE campaign_claims (name ` + name + ` NOT NULL PRIMARY KEY, id VARCHAR(40) NOT NULL)`,
	}
	for _, table := range []string{"ledger", "commits", "effects", "payouts", "bookings", "taken", "posts", "ticks", "handles"} {
		statements = append(statements, `CREATE INDEX campaign_`+table+`_epoch ON campaign_`+table+` (epoch)`)
	}
	for _, q := range statements {
		if _, err := s.audit.ExecContext(s.t.Context(), q); err != nil {
			s.t.Fatalf("%s: %v", q, err)
		}
	}
	names := []string{always}
	for e := range epochs {
		for _, what := range []string{"lease", "fair", "account", "handle"} {
			for n := range leaseKeys {
				names = append(names, keyOf(e, what, n))
			}
		}
	}
	tx, err := s.audit.BeginTx(s.t.Context(), nil)
	if err != nil {
		s.t.Fatal(err)
	}
	for _, n := range names {
		if _, err := tx.ExecContext(s.t.Context(), s.sql(`INSERT INTO campaign_orders (name, balance, seq) VALUES ($1, 0, 0)`), []byte(n)); err != nil {
			s.t.Fatal(err)
		}
	}
	if err := tx.Commit(); err != nil {
		s.t.Fatal(err)
	}
}
