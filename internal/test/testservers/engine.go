//go:build unix

package main

import (
	"fmt"
	"iter"
	"slices"
	"strings"
)

// engine names a database system, as in HOLDFAST_TEST_REQUIRE.
type engine string

const (
	postgres engine = "postgres"
	mysql    engine = "mysql"
	mariadb  engine = "mariadb"
	sqlite   engine = "sqlite" // runs inside the tests; testservers never starts it
)

var (
	serverEngines = []engine{postgres, mysql, mariadb}
	allEngines    = append(slices.Clone(serverEngines), sqlite)
)

// variable returns the environment variable that holds the DSN of e.
func (e engine) variable() string {
	return "HOLDFAST_TEST_" + strings.ToUpper(string(e)) + "_DSN"
}

// dsn returns the URL of a server of this engine on the loopback interface.
func (e engine) dsn(user, password, address, database string) string {
	if e == postgres {
		return fmt.Sprintf("postgres://%s:%s@%s/%s?sslmode=disable", user, password, address, database)
	}
	return fmt.Sprintf("mysql://%s:%s@tcp(%s)/%s", user, password, address, database)
}

// parseEngines reads a comma-separated list of engines, each one of known.
func parseEngines(list string, known []engine) ([]engine, error) {
	var engines []engine
	for name := range strings.SplitSeq(list, ",") {
		e := engine(strings.TrimSpace(name))
		switch {
		case e == "":
		case !slices.Contains(known, e):
			return nil, fmt.Errorf("unknown engine %q (known: %v)", e, known)
		case !slices.Contains(engines, e):
			engines = append(engines, e)
		}
	}
	return engines, nil
}

// filter yields the engines that keep accepts.
func filter(engines []engine, keep func(engine) bool) iter.Seq[engine] {
	return func(yield func(engine) bool) {
		for _, e := range engines {
			if keep(e) && !yield(e) {
				return
			}
		}
	}
}

func joinEngines(engines []engine) string {
	names := make([]string, len(engines))
	for i, e := range engines {
		names[i] = string(e)
	}
	return strings.Join(names, ",")
}

// shortVersion reduces a server's version to its numbers: "10.11.14-MariaDB-0+deb12u2" becomes
// "10.11.14".
func shortVersion(version string) string {
	version = strings.TrimSpace(version)
	if end := strings.IndexFunc(version, func(r rune) bool { return r != '.' && (r < '0' || r > '9') }); end > 0 {
		return version[:end]
	}
	return version
}
