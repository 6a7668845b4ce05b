package conformance

import (
	"regexp"
	"strings"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
)

// WantBlocker checks that the error of a wait that is over names that session only. call waits,
// while that session has the lock, and returns those whom its error names, with the error. It waits
// again if the machine was too busy to look in time.
func (e *Env[Tx]) WantBlocker(what, session string, call func() ([]holdfast.Blocker, error)) {
	e.Helper()
	e.Eventually(what+": its error names who blocks", func() bool {
		found, err := call()
		switch {
		case err == nil:
			e.Fatalf("%s: it got what another session has", what)
		case !e.DB.Capabilities().NamesBlockers:
			if len(found) > 0 || strings.Contains(err.Error(), "blocked by") {
				e.Errorf("%s: the engine does not tell, and the error names %+v: %v", what, found, err)
			}
			return true
		case e.entered && e.InnoDB(): // the grants of a role are for Holdfast's tables, and not for those that tell
			return true
		case len(found) == 0:
			e.Logf("%s: %v", what, err)
			return false
		}
		if b := found[0]; len(found) != 1 || b.Session != session || b.User == "" || b.State == "" || b.Open <= 0 {
			e.Errorf("%s: got %+v, want session %s", what, found, session)
		}
		if !strings.Contains(err.Error(), "blocked by session "+session+" (") {
			e.Errorf("%s: %v", what, err)
		}
		return true
	})
}

// Role makes a user of the server that may read and write all tables of the test, and has no other
// rights. It returns its name, and a pool of it.
func (e *Env[Tx]) Role() (name string, pool Pool[Tx], drop func()) {
	e.Helper()
	dbtest.Needs(e, e.Engine, dbtest.Users)
	name = regexp.MustCompile(`hf_[a-z0-9]+`).FindString(e.DSN) + "_r"
	end := `DROP USER ` + name
	if e.Engine == dbtest.Postgres {
		end = `DROP OWNED BY ` + name + `; DROP ROLE ` + name
		e.Must(`CREATE ROLE ` + name + ` LOGIN PASSWORD 'pw'`)
		e.Must(`GRANT USAGE ON SCHEMA "` + e.Schema() + `" TO ` + name)
		e.Must(`GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA "` + e.Schema() + `" TO ` + name)
	} else {
		e.Must(`CREATE USER ` + name + ` IDENTIFIED BY 'pw'`)
		for _, table := range e.tableNames() {
			e.Must(`GRANT SELECT, INSERT, UPDATE, DELETE ON ` + e.Schema() + `.` + table + ` TO ` + name)
		}
	}
	pool = e.Handle.Open(e.T, regexp.MustCompile(`//[^@]*@`).ReplaceAllString(e.DSN, "//"+name+":pw@"))
	return name, pool, func() {
		pool.Close()
		e.Must(end)
	}
}

// tableNames returns the tables of the test's database.
func (e *Env[Tx]) tableNames() (names []string) {
	e.Helper()
	schema := map[bool]string{true: `current_schema()`, false: `DATABASE()`}[e.Engine == dbtest.Postgres]
	rows, err := e.SQL.QueryContext(e.Ctx, `SELECT table_name FROM information_schema.tables WHERE table_schema = `+schema)
	if err != nil {
		e.Fatal(err)
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			e.Fatal(err)
		}
		names = append(names, name)
	}
	if err := rows.Err(); err != nil {
		e.Fatal(err)
	}
	return names
}
