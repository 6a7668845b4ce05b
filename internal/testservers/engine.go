//go:build unix

package main

import (
	"fmt"
	"slices"
	"strings"
)

// engine names a database system, as HOLDFAST_TEST_REQUIRE does.
type engine string

const (
	postgres engine = "postgres"
	mysql    engine = "mysql"
	mariadb  engine = "mariadb"
	sqlite   engine = "sqlite" // runs inside the tests; never started here
)

var (
	serverEngines = []engine{postgres, mysql, mariadb}
	allEngines    = append(slices.Clone(serverEngines), sqlite)
)

// variable is the environment variable that holds the DSN of e.
func (e engine) variable() string {
	return "HOLDFAST_TEST_" + strings.ToUpper(string(e)) + "_DSN"
}

// dsn is the URL of a server of this engine on the loopback interface.
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

// shortVersion cuts a server's version down to its numbers:
// "10.11.14-MariaDB-0+deb12u2" is "10.11.14".
func shortVersion(version string) string {
	version = strings.TrimSpace(version)
	if end := strings.IndexFunc(version, func(r rune) bool { return r != '.' && (r < '0' || r > '9') }); end > 0 {
		return version[:end]
	}
	return version
}
