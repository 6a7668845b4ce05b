// Package dbtest gives a test a separate database on each available engine. SQLite is always
// available, a server if its DSN variable is set, as `make test` does.
package dbtest

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
)

// Engine names a database system that the tests run on.
type Engine string

// The engines, with their names in HOLDFAST_TEST_REQUIRE.
const (
	Postgres Engine = "postgres"
	MySQL    Engine = "mysql"
	MariaDB  Engine = "mariadb"
	SQLite   Engine = "sqlite"
	// TiDB and Vitess run only where their variables name a server: see make scaleout.
	TiDB   Engine = "tidb"
	Vitess Engine = "vitess"
)

// scaleOut are the engines past one machine, which `make test` does not start.
var scaleOut = []Engine{TiDB, Vitess}

// Kin returns the engine whose entry in a test's list is also e's: MySQL for TiDB and Vitess.
func (e Engine) Kin() Engine {
	if slices.Contains(scaleOut, e) {
		return e.Like()
	}
	return e
}

// Like returns the engine whose SQL e speaks: MySQL for all but PostgreSQL and SQLite.
func (e Engine) Like() Engine {
	if e == MariaDB || slices.Contains(scaleOut, e) {
		return MySQL
	}
	return e
}

// Sessions is the table of the sessions of a MySQL or MariaDB server, for a FROM clause: id, db, command,
// state and info. MySQL's information_schema.PROCESSLIST fails with error 3854 while any session, of any
// test, runs a statement that is not text, and MariaDB has no other.
func (e Engine) Sessions() string {
	from := "information_schema.PROCESSLIST"
	columns := "ID AS id, DB AS db, COMMAND AS command, STATE AS state, INFO AS info"
	if e == MySQL {
		from, columns = "performance_schema.threads", regexp.MustCompile(`\b[A-Z]+ AS`).ReplaceAllString(columns, "PROCESSLIST_$0")
	}
	return "(SELECT " + columns + " FROM " + from + ") sessions"
}

const (
	requireVariable = "HOLDFAST_TEST_REQUIRE"
	chosenVariable  = "HOLDFAST_TEST_ENGINES" // a list as well: other engines do not run
)

var allEngines = [...]Engine{Postgres, MySQL, MariaDB, SQLite, TiDB, Vitess}

// variable returns the environment variable with the DSN of e's server.
func (e Engine) variable() string {
	return "HOLDFAST_TEST_" + strings.ToUpper(string(e)) + "_DSN"
}

// available reports whether a test can run on e.
func (e Engine) available() bool {
	return e == SQLite || os.Getenv(e.variable()) != ""
}

// missing returns the reason why e did not run.
func (e Engine) missing() string {
	return fmt.Sprintf("%s did not run: %s is not set; `make test` sets it up", e, e.variable())
}

// chosen reports whether HOLDFAST_TEST_ENGINES lists e, or is not set.
func (e Engine) chosen() bool {
	list := os.Getenv(chosenVariable)
	engines, err := parseEngines(chosenVariable, list)
	return list == "" || err != nil || slices.Contains(engines, e)
}

// Engines lists the engines that are available and chosen.
func Engines() []Engine {
	var engines []Engine
	for _, e := range allEngines {
		if e.available() && e.chosen() {
			engines = append(engines, e)
		}
	}
	return engines
}

// Each runs f as a parallel subtest on every available engine, or on those that
// HOLDFAST_TEST_ENGINES lists. If HOLDFAST_TEST_REQUIRE names an engine that is not available,
// the test fails.
func Each(t *testing.T, f func(t *testing.T, e Engine)) {
	t.Helper()
	required, err := parseEngines(requireVariable, os.Getenv(requireVariable))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := parseEngines(chosenVariable, os.Getenv(chosenVariable)); err != nil {
		t.Fatal(err)
	}
	for _, e := range allEngines {
		switch {
		case !e.chosen():
		case e.available():
			t.Run(string(e), func(t *testing.T) {
				t.Parallel()
				f(t, e)
			})
		case slices.Contains(required, e):
			t.Errorf("%s requires it: %s", requireVariable, e.missing())
		case !slices.Contains(scaleOut, e):
			logOnce(t, e.missing())
		}
	}
}

// parseEngines reads a variable's comma-separated list of engines.
func parseEngines(variable, list string) ([]Engine, error) {
	var engines []Engine
	for name := range strings.SplitSeq(list, ",") {
		e := Engine(strings.TrimSpace(name))
		switch {
		case e == "":
		case !slices.Contains(allEngines[:], e):
			return nil, fmt.Errorf("%s: unknown engine %q (known: %v)", variable, e, allEngines)
		default:
			engines = append(engines, e)
		}
	}
	return engines, nil
}

// What some engines cannot do, and why.
const (
	OneStatement    = "one statement: a single write is several statements, or concerns one key"
	Triggers        = "triggers: there are none"
	Kill            = "KILL: it ends the server (https://github.com/pingcap/tidb/issues/63956), or is none of MySQL's sessions"
	SetTimestamp    = "SET timestamp: the router does not parse it"
	Users           = "CREATE USER: the router does not parse it"
	ReadOnlySession = "read-only sessions: the setting is left out, or refused"
	AnySchemaName   = "any schema name: the router reads a target in it"
)

var incapable = map[Engine][]string{
	TiDB:   {OneStatement, Triggers, Kill, ReadOnlySession},
	Vitess: {OneStatement, Triggers, Kill, SetTimestamp, Users, ReadOnlySession, AnySchemaName},
}

// Has reports whether e can do what a part of a test needs.
func Has(e Engine, what string) bool { return !slices.Contains(incapable[e], what) }

// Needs skips a test of what e cannot do.
func Needs(tb testing.TB, e Engine, what string) {
	tb.Helper()
	if slices.Contains(incapable[e], what) {
		name, why, _ := strings.Cut(what, ": ")
		tb.Skipf("capability %q: %s", name, why)
	}
}

var logged sync.Map

// logOnce logs a line in the first test of the process that calls it.
func logOnce(tb testing.TB, line string) {
	tb.Helper()
	if _, before := logged.LoadOrStore(line, true); !before {
		tb.Log(line)
	}
}
