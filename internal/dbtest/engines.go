// Package dbtest gives a test a database of its own on each engine that is
// available: SQLite always, a server where its DSN variable is set, as
// `make test` does.
package dbtest

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
)

// Engine names a database system that the tests run on.
type Engine string

// The engines, as HOLDFAST_TEST_REQUIRE names them.
const (
	Postgres Engine = "postgres"
	MySQL    Engine = "mysql"
	MariaDB  Engine = "mariadb"
	SQLite   Engine = "sqlite"
)

const requireVariable = "HOLDFAST_TEST_REQUIRE"

var allEngines = [...]Engine{Postgres, MySQL, MariaDB, SQLite}

// variable is the environment variable that holds the DSN of e's server.
func (e Engine) variable() string {
	return "HOLDFAST_TEST_" + strings.ToUpper(string(e)) + "_DSN"
}

// available tells whether a test can run on e.
func (e Engine) available() bool {
	return e == SQLite || os.Getenv(e.variable()) != ""
}

// missing says why e did not run.
func (e Engine) missing() string {
	return fmt.Sprintf("%s did not run: %s is not set; `make test` sets it up", e, e.variable())
}

// Engines lists the engines that are available.
func Engines() []Engine {
	var engines []Engine
	for _, e := range allEngines {
		if e.available() {
			engines = append(engines, e)
		}
	}
	return engines
}

// Each runs f as a parallel subtest on every available engine. An engine that
// HOLDFAST_TEST_REQUIRE names and that is not available fails the test.
func Each(t *testing.T, f func(t *testing.T, e Engine)) {
	t.Helper()
	required, err := parseRequired(os.Getenv(requireVariable))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range allEngines {
		switch {
		case e.available():
			t.Run(string(e), func(t *testing.T) {
				t.Parallel()
				f(t, e)
			})
		case slices.Contains(required, e):
			t.Errorf("%s requires it: %s", requireVariable, e.missing())
		default:
			logOnce(t, e.missing())
		}
	}
}

// parseRequired reads a comma-separated list of engines.
func parseRequired(list string) ([]Engine, error) {
	var engines []Engine
	for name := range strings.SplitSeq(list, ",") {
		e := Engine(strings.TrimSpace(name))
		switch {
		case e == "":
		case !slices.Contains(allEngines[:], e):
			return nil, fmt.Errorf("%s: unknown engine %q (known: %v)", requireVariable, e, allEngines)
		default:
			engines = append(engines, e)
		}
	}
	return engines, nil
}

var logged sync.Map

// logOnce logs a line in the first test of the process that comes to it.
func logOnce(tb testing.TB, line string) {
	tb.Helper()
	if _, before := logged.LoadOrStore(line, true); !before {
		tb.Log(line)
	}
}
