package optimistic

import (
	"database/sql"
	"errors"
	"regexp"
	"strings"

	"github.com/google/uuid"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/dialect"
	"github.com/holdfast-go/holdfast/internal/test/conformance"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
	"github.com/holdfast-go/holdfast/optimistic"
)

// exec runs a statement unchanged: $1 and ? are a part of it.
func (e *env[Tx]) exec(query string) error {
	_, err := e.SQL.ExecContext(e.Ctx, query)
	return err
}

// procedureOn runs the statements of a procedure. It returns false on an engine that has none, if
// the error says so.
func (e *env[Tx]) procedureOn(statements []string, err error) bool {
	e.Helper()
	if e.Engine == dbtest.SQLite {
		if !errors.Is(err, optimistic.ErrNotEnforced) || !strings.Contains(err.Error(), "sqlite has no procedures") {
			e.Errorf("got %v", err)
		}
		return false
	}
	e.Check(err)
	for range 2 { // they may run again
		for _, s := range statements {
			if err := e.exec(s); err != nil {
				e.Fatalf("%s: %v", s, err)
			}
		}
	}
	return true
}

// procedureIsTheOnlyWay checks that a role can read, insert, and update through the procedure alone.
// With the trigger but without the procedure it could add 1 to any version.
func procedureIsTheOnlyWay[Tx any](e *env[Tx]) {
	dbtest.Needs(e, e.Engine, dbtest.Triggers)
	accounts := e.Accounts("a", "b")
	user := regexp.MustCompile(`hf_[a-z0-9]+`).FindString(e.DSN + "hf_sqlite")
	user = user[:min(len(user), 28)] + "_p"
	statements, err := accounts.ProcedureSQL(e.Ctx, optimistic.ProcedureOptions{Roles: []string{user}, Columns: []string{"cents", "owner"}})
	switch e.Engine {
	case dbtest.SQLite:
	case dbtest.Postgres:
		e.Must(`CREATE ROLE ` + user + ` LOGIN PASSWORD 'pw'`)
		defer e.Must(`DROP OWNED BY ` + user + `; DROP ROLE ` + user)
		e.Must(`GRANT ALL ON accounts TO PUBLIC`)
		e.Must(`GRANT UPDATE (cents) ON accounts TO ` + user)
	default:
		e.Must(`CREATE USER ` + user + ` IDENTIFIED BY 'pw'`)
		defer e.Must(`DROP USER ` + user)
		e.Must(`GRANT UPDATE ON ` + e.Schema() + `.accounts TO ` + user)
	}
	if !e.procedureOn(statements, err) {
		return
	}
	e.Check(accounts.Enforce(e.Ctx))
	plain := dbtest.OpenSQL(e, regexp.MustCompile(`//[^@]*@`).ReplaceAllString(e.DSN, "//"+user+":pw@"))
	as := func(query string, args ...any) error {
		_, err := plain.ExecContext(e.Ctx, e.Rebind(query), args...)
		return err
	}
	denied := func(what string, err error) {
		e.Helper()
		if access.Of(e.DB).Dialect.Classify(err) != dialect.Denied {
			e.Errorf("%s: %v", what, err)
		}
	}
	call := `SELECT update_accounts($1, $2, $3, $4)`
	if e.InnoDB() {
		call = `CALL update_accounts($1, $2, $3, $4)`
	}
	a := e.TextKey("a")
	denied("UPDATE", as(`UPDATE accounts SET cents = 5, version = version + 1`))
	denied("DELETE", as(`DELETE FROM accounts`))
	denied("TRUNCATE", as(`TRUNCATE TABLE accounts`))
	upsert := map[bool]string{true: ` ON DUPLICATE KEY UPDATE cents = 666, version = version + 1`, false: ` ON CONFLICT (account_no) DO UPDATE SET cents = 666, version = accounts.version + 1`}[e.InnoDB()]
	denied("an upsert", as(`INSERT INTO accounts (account_no, owner, cents, version) VALUES ($1, 'x', 1, 1)`+upsert, a))
	if e.InnoDB() {
		denied("REPLACE", as(`REPLACE INTO accounts (account_no, owner, cents, version) VALUES ($1, 'x', 1, 1)`, a))
	}
	if err := as(`INSERT INTO accounts (account_no, owner, cents, version) VALUES ($1, 'x', 1, 1)`, e.TextKey("c")); err != nil {
		e.Errorf("INSERT: %v", err)
	}
	if err := as(call, a, 1, 500, "Ada"); err != nil {
		e.Errorf("the procedure: %v", err)
	}
	e.WantAccount(conformance.Account{No: "a", Owner: "Ada", Cents: 500, Version: 2})
	for what, version := range map[string]any{"a stale version": 1, "a later one": 3, "NULL": nil, "0": 0} {
		e.wantRefused(what, as(call, a, version, 666, "Eve"))
	}
	e.wantRefused("a row that is missing", as(call, e.TextKey("none"), 1, 666, "Eve"))
	e.wantRefused("another key", as(call, e.TextKey("A"), 2, 666, "Eve"))
	e.WantAccount(conformance.Account{No: "a", Owner: "Ada", Cents: 500, Version: 2})
	e.WantAccount(conformance.Account{No: "b", Version: 1})

	// In a transaction that rolls back, and for the same values.
	tx, err := plain.BeginTx(e.Ctx, nil)
	e.Check(err)
	if _, err := tx.ExecContext(e.Ctx, e.Rebind(call), a, 2, 1, "x"); err != nil {
		e.Error(err)
	}
	e.Check(tx.Rollback())
	if err := as(call, a, 2, 500, "Ada"); err != nil {
		e.Errorf("the same values: %v", err)
	}
	e.WantAccount(conformance.Account{No: "a", Owner: "Ada", Cents: 500, Version: 3})
	if e.Engine == dbtest.Postgres {
		var next int
		err := plain.QueryRowContext(e.Ctx, `SELECT update_accounts(version => 3, owner => 'Bob', account_no => 'a', cents => 7)`).Scan(&next)
		if err != nil || next != 4 {
			e.Errorf("by name: %d, %v", next, err)
		}
		// The caller's search path and tables change nothing.
		if err := as(`CREATE TEMPORARY TABLE accounts (account_no text, owner text, cents bigint, version bigint)`); err != nil {
			e.Error(err)
		}
		e.Must(`CREATE ROLE ` + user + `2`)
		defer e.Must(`DROP ROLE ` + user + `2`)
		if n := e.Int(`SELECT CASE WHEN has_function_privilege('` + user + `2', p.oid, 'EXECUTE') OR has_table_privilege('` + user + `2', 'accounts', 'SELECT, UPDATE') THEN 1 ELSE 0 END FROM pg_proc p WHERE p.proname = 'update_accounts' AND p.pronamespace = current_schema()::regnamespace`); n != 0 {
			e.Error("PUBLIC kept a privilege")
		}
		e.WantAccount(conformance.Account{No: "a", Owner: "Bob", Cents: 7, Version: 4})
	}
}

// procedureOfUUIDs checks that the caller gives the new version, and that it must differ. Names are
// quoted everywhere.
func procedureOfUUIDs[Tx any](e *env[Tx]) {
	dbtest.Needs(e, e.Engine, dbtest.Triggers)
	table, value := "or\"der's `x` \\ $1 ?", "p1"
	quote := func(name string) string { return access.Of(e.DB).Dialect.Ident(name) }
	id := map[dbtest.Engine]string{dbtest.Postgres: "uuid", dbtest.MySQL: "BINARY(16)", dbtest.MariaDB: "UUID", dbtest.SQLite: "TEXT"}[e.Engine]
	type row struct {
		No string    `db:"no"`
		N  int64     `db:"p1"` // as a parameter's name on MySQL
		V  uuid.UUID `db:"version"`
	}
	e.Check(e.exec(`CREATE TABLE ` + quote(table) + ` (no ` + e.Text() + ` NOT NULL PRIMARY KEY, ` + quote(value) + ` BIGINT NOT NULL, version ` + id + ` NOT NULL)`))
	rows, err := optimistic.New[row](e.Ctx, e.DB, holdfast.TableSpec{Table: table, Key: []string{"no"}})
	e.Check(err)
	first, err := rows.Insert(e.Ctx, row{No: "a"})
	e.Check(err)
	if !e.procedureOn(rows.ProcedureSQL(e.Ctx, optimistic.ProcedureOptions{Name: "set \"it` '$1"})) {
		return
	}
	next := uuid.New()
	bind := func(v uuid.UUID) any {
		if e.Engine == dbtest.MySQL {
			return v[:]
		}
		return v.String()
	}
	call := func(v, next uuid.UUID, n int) error {
		statement := map[bool]string{true: `CALL `, false: `SELECT `}[e.InnoDB()] + quote("set \"it` '$1") + map[bool]string{true: `(?, ?, ?, ?)`, false: `($1, $2, $3, $4)`}[e.InnoDB()]
		_, err := e.SQL.ExecContext(e.Ctx, statement, e.TextKey("a"), bind(v), bind(next), n)
		return err
	}
	e.wantRefused("the same version", call(first.V, first.V, 666))
	e.wantRefused("another version", call(next, uuid.New(), 666))
	if err := call(first.V, next, 5); err != nil {
		e.Error(err)
	}
	e.wantRefused("a stale version", call(first.V, uuid.New(), 666))
	if there, err := rows.Get(e.Ctx, first); err != nil || there.N != 5 || there.V != next {
		e.Errorf("%+v, %v", there, err)
	}
}

// procedureInput checks the arguments, and that the types of parameters are those of the columns.
func procedureInput[Tx any](e *env[Tx]) {
	dbtest.Needs(e, e.Engine, dbtest.Triggers)
	accounts := e.Accounts()
	if e.Engine != dbtest.SQLite {
		for what, o := range map[string]optimistic.ProcedureOptions{
			"no such column":    {Columns: []string{"none"}},
			"the key":           {Columns: []string{"account_no"}},
			"the version":       {Columns: []string{"version"}},
			"a long name":       {Name: strings.Repeat("n", 100)},
			"NUL":               {Name: "a\x00"},
			"a role with NUL":   {Roles: []string{"a\x00"}},
			"a role of no name": {Roles: []string{""}},
		} {
			if _, err := accounts.ProcedureSQL(e.Ctx, o); !errors.Is(err, holdfast.ErrInvalid) {
				e.Errorf("%s: %v", what, err)
			}
		}
	}
	// Texts that the connection's collation takes for the same are different keys; long and exact
	// numbers arrive unchanged.
	type row struct {
		No      string         `db:"no"`
		Amount  string         `db:"amount"`
		Note    sql.NullString `db:"note"`
		Version int64          `db:"version"`
	}
	text, decimal := "VARCHAR(40)", "DECIMAL(30, 10)"
	if e.InnoDB() {
		text += " CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"
	}
	e.Must(`CREATE TABLE typed (no ` + text + ` NOT NULL PRIMARY KEY, amount ` + decimal + ` NOT NULL, note ` + text + `, version INT NOT NULL)`)
	e.Must(`INSERT INTO typed VALUES ('a', 0, NULL, 1), ('A', 0, NULL, 1)`)
	typed, err := optimistic.New[row](e.Ctx, e.DB, holdfast.TableSpec{Table: "typed", Key: []string{"no"}})
	e.Check(err)
	if !e.procedureOn(typed.ProcedureSQL(e.Ctx, optimistic.ProcedureOptions{})) {
		return
	}
	e.Must(map[bool]string{true: `CALL `, false: `SELECT `}[e.InnoDB()] + `update_typed('a', 1, 12345678901234567890.0123456789, NULL)`)
	got, err := typed.Get(e.Ctx, row{No: "a"})
	if err != nil || got != (row{No: "a", Amount: "12345678901234567890.0123456789", Version: 2}) {
		e.Errorf("%+v, %v", got, err)
	}
	if other, err := typed.Get(e.Ctx, row{No: "A"}); err != nil || other.Version != 1 {
		e.Errorf("%+v, %v", other, err)
	}
}
