package conformance

import (
	"database/sql"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jmoiron/sqlx"

	"github.com/holdfast-go/holdfast/internal/test/dbtest"
	"github.com/holdfast-go/holdfast/internal/test/race"
)

// Suite is one suite, with an instance for each handle's transaction type.
type Suite struct {
	SQL  func(t *testing.T, h Handle[*sql.Tx])
	SQLX func(t *testing.T, h Handle[*sqlx.Tx])
	Pgx  func(t *testing.T, h Handle[pgx.Tx])
}

// mode is a handle with parameters in its DSN.
type mode struct {
	name    string
	handle  handleKind
	param   string
	engines []dbtest.Engine // nil: all engines that the handle supports
	where   runs
	brief   bool            // runs with -short and under the race detector too
	nightly []dbtest.Engine // runs there in make nightly only: each day it runs on another server, with the same driver
}

type handleKind int

const (
	ofSQL handleKind = iota
	ofConnector
	ofSQLX
	ofPgx
)

type runs int

const (
	inHandles runs = iota // in Handles and in Modes
	inModes               // in Modes
	byName                // only where a test names it
)

var (
	innoDB   = []dbtest.Engine{dbtest.MySQL, dbtest.MariaDB}
	mariaDB  = []dbtest.Engine{dbtest.MariaDB}
	postgres = []dbtest.Engine{dbtest.Postgres}
	sqlite   = []dbtest.Engine{dbtest.SQLite}
)

// modes are the ways in which the suites connect to a database: add a new one here. They differ
// in the wire protocol and in the meaning of "affected rows", not in shared memory. So the race
// detector runs one mode of each kind. Not every pair of a handle and a protocol
// runs: sqlx adds nothing to what database/sql sends, so it runs in the protocols that are not the
// drivers' defaults. Nor does every protocol run on both servers of one driver each day.
var modes = []mode{
	{name: "SQL", handle: ofSQL, brief: true},
	{name: "Connector", handle: ofConnector, where: byName},
	{name: "ConnectorInterpolated", handle: ofConnector, param: "interpolateParams=true", engines: innoDB, where: byName, nightly: mariaDB},
	{name: "SQLX", handle: ofSQLX, engines: sqlite, nightly: sqlite},
	{name: "SQLXInterpolatedFoundRows", handle: ofSQLX, param: "interpolateParams=true&clientFoundRows=true", engines: innoDB, nightly: mariaDB},
	{name: "SQLXExec", handle: ofSQLX, param: "default_query_exec_mode=exec", engines: postgres},
	{name: "Pgx", handle: ofPgx, brief: true},
	{name: "PgxSimpleProtocol", handle: ofPgx, param: "default_query_exec_mode=simple_protocol", engines: postgres, where: inModes},
	{name: "MySQLFoundRows", handle: ofSQL, param: "clientFoundRows=true", engines: innoDB, where: byName, brief: true},
	{name: "MySQLInterpolated", handle: ofSQL, param: "interpolateParams=true", engines: innoDB, where: byName},
}

// ExecModes returns the values of pgx's default_query_exec_mode, its default first.
func ExecModes() []string {
	return []string{"cache_statement", "simple_protocol", "cache_describe", "describe_exec", "exec"}
}

// Handles runs a suite on each kind of handle.
func Handles(t *testing.T, s Suite) {
	t.Helper()
	s.run(t, func(m mode) bool { return m.where == inHandles })
}

// Modes runs a suite in each mode that changes the wire protocol, and in the modes that more
// names.
func Modes(t *testing.T, s Suite, more ...string) {
	t.Helper()
	s.run(t, func(m mode) bool { return m.where != byName || slices.Contains(more, m.name) })
	areModes(t, more)
}

// InModes runs a suite in the modes that names lists.
func InModes(t *testing.T, s Suite, names ...string) {
	t.Helper()
	s.run(t, func(m mode) bool { return slices.Contains(names, m.name) })
	areModes(t, names)
}

func areModes(t *testing.T, names []string) {
	t.Helper()
	for _, name := range names {
		if !slices.ContainsFunc(modes, func(m mode) bool { return m.name == name }) {
			t.Errorf("no mode has the name %q", name)
		}
	}
}

func (s Suite) run(t *testing.T, chosen func(mode) bool) {
	t.Helper()
	for _, m := range modes {
		if !chosen(m) || (race.Enabled || testing.Short()) && !m.brief {
			continue
		}
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			switch m.handle {
			case ofSQL:
				s.SQL(t, in(SQL(), m))
			case ofConnector:
				s.SQL(t, in(Connected(), m))
			case ofSQLX:
				s.SQLX(t, in(SQLX(), m))
			case ofPgx:
				s.Pgx(t, in(Pgx(), m))
			}
		})
	}
}

func in[Tx any](h Handle[Tx], m mode) Handle[Tx] {
	if len(m.nightly) > 0 && !dbtest.Nightly() {
		m.engines = slices.DeleteFunc(slices.Clone(m.engines), func(e dbtest.Engine) bool { return slices.Contains(m.nightly, e) })
	}
	switch {
	case m.param == "" && m.engines == nil:
		return h
	case m.param == "":
		return Only(h, m.engines...)
	}
	return With(h, m.param, m.engines...)
}
