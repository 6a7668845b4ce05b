package migrations_test

import (
	"database/sql"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/audit"
	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/auditlog"
	"github.com/holdfast-go/holdfast/internal/dialect"
	"github.com/holdfast-go/holdfast/internal/test/conformance"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
	"github.com/holdfast-go/holdfast/migrations"
	"github.com/holdfast-go/holdfast/sqllock"
)

// attacker is an account in a role, used by an attacker who sends any SQL.
type attacker struct {
	*conformance.Env[*sql.Tx]
	role string
	pool *sql.DB
}

// may reports whether the server lets the account run a statement, which changes no row. The server may
// refuse the statement for another reason.
func (a *attacker) may(statement string) bool {
	_, err := a.pool.ExecContext(a.Ctx, statement)
	return err == nil || access.Of(a.DB).Dialect.Classify(err) != dialect.Denied && !strings.Contains(err.Error(), "must be owner") && !strings.Contains(strings.ToLower(err.Error()), "denied")
}

// TestAttacker walks all roles, tables, columns and functions: an account with the printed grants of a role
// may do what the list of the rights says, and nothing else.
func TestAttacker(t *testing.T) {
	t.Parallel()
	conformance.Run(t, conformance.SQL(), func(e *conformance.Env[*sql.Tx]) {
		if e.Engine == dbtest.SQLite || e.Engine == dbtest.Vitess {
			return // they have no accounts
		}
		functions := functionCalls(e)
		roles := []string{"app", "reaper", "operator", "reader"}
		urls := map[string]string{}
		for _, role := range roles {
			urls[role] = e.As(role, role)
		}
		client := e.As("client")
		if len(functions) > 0 {
			roles = append(roles, "client")
			urls["client"] = client
			grantFunctions(e, account(client))
		}
		for _, role := range roles {
			a := &attacker{e, role, dbtest.OpenSQL(e, urls[role])}
			for _, table := range dialect.GrantedTables() {
				a.table(table)
			}
			for call, function := range functions {
				if got := a.may(call); got != (role == "client" && slices.Contains(forClients, function)) {
					e.Errorf("%s: %s: allowed is %t", role, call, got)
				}
			}
		}
	})
}

// table tries every statement on a table, and every column of it.
func (a *attacker) table(name string) {
	d, at := access.Of(a.DB).Dialect, "holdfast_"+name
	whole, some := map[string]bool{}, map[string][]string{}
	if a.role != "client" {
		held, _ := d.Rights(dialect.Role(a.role), name)
		for _, r := range held {
			whole[r.Privilege] = whole[r.Privilege] || r.Columns == nil
			some[r.Privilege] = append(some[r.Privilege], r.Columns...)
		}
	}
	want := func(statement string, allowed bool) {
		if got := a.may(statement); got != allowed {
			a.Errorf("%s: %s: allowed is %t, want %t", a.role, statement, got, allowed)
		}
	}
	want(`SELECT 1 FROM `+at+` WHERE 1 = 0`, whole["SELECT"])
	want(`DELETE FROM `+at+` WHERE 1 = 0`, whole["DELETE"])
	for column, generated := range a.columns(at) {
		if generated {
			continue
		}
		c := d.Ident(column)
		want(`UPDATE `+at+` SET `+c+` = NULL WHERE 1 = 0`, whole["UPDATE"] || slices.Contains(some["UPDATE"], column))
		want(`INSERT INTO `+at+` (`+c+`) SELECT NULL FROM (SELECT 1 AS one) AS o WHERE 1 = 0`, whole["INSERT"] || slices.Contains(some["INSERT"], column))
	}
	for _, ddl := range []string{
		`TRUNCATE TABLE ` + at, `ALTER TABLE ` + at + ` ADD COLUMN evil INT`, `CREATE INDEX evil ON ` + at + ` (` + d.Ident(slices.Sorted(maps.Keys(a.columns(at)))[0]) + `)`, `DROP TABLE ` + at,
	} {
		want(ddl, false)
	}
}

// columns returns the columns of a table, and which of them the server computes.
func (a *attacker) columns(table string) map[string]bool {
	a.Helper()
	query := `SELECT column_name, COALESCE(generation_expression, '') <> '' FROM information_schema.columns WHERE table_schema = DATABASE() AND table_name = '` + table + `'`
	if a.Engine == dbtest.Postgres {
		query = `SELECT attname::text, attgenerated <> '' FROM pg_attribute WHERE attrelid = '` + table + `'::regclass AND attnum > 0 AND NOT attisdropped`
	}
	rows, err := a.SQL.QueryContext(a.Ctx, query)
	a.Check(err)
	defer func() { _ = rows.Close() }()
	all := map[string]bool{}
	for rows.Next() {
		var name string
		var generated bool
		a.Check(rows.Scan(&name, &generated))
		all[name] = generated
	}
	a.Check(rows.Err())
	return all
}

// TestAuditIsNotForged plays an account that wants another one's name in the audit, or no audit at all.
func TestAuditIsNotForged(t *testing.T) {
	t.Parallel()
	conformance.Run(t, conformance.SQL(), func(e *conformance.Env[*sql.Tx]) {
		d := access.Of(e.DB).Dialect
		forge := func(pool *sql.DB, seq int64, session string) error {
			row := auditlog.Row{Seq: seq, At: 1, Actor: "olga", Session: session, Action: "erase", Kind: "record", Owner: "anna", Reason: "asked", Confirmed: "ben", Subject: []byte{}}
			sum := row.Sum(auditlog.Hash{})
			columns, values := `chain, seq, happened_at, actor, action, kind, owner, namespace, subject, reason, confirmed_by, before_state, after_state, hash`, []any{"", row.Seq, row.At, row.Actor, row.Action, row.Kind, row.Owner, "", []byte{}, row.Reason, row.Confirmed, "", "", sum[:]}
			if session != "" || !d.Audit.SetsSession {
				columns, values = columns+`, session_name`, append(values, session)
			}
			_, err := pool.ExecContext(e.Ctx, e.Rebind(`INSERT INTO holdfast_audit (`+columns+`) VALUES (`+dialect.Params(len(values))+`)`), values...)
			return err
		}
		if e.Engine != dbtest.SQLite && e.Engine != dbtest.Vitess {
			denied := func(what string, err error) {
				if d.Classify(err) != dialect.Denied {
					e.Errorf("%s: %v", what, err)
				}
			}
			for _, role := range []string{"app", "reaper", "reader"} {
				denied(role+" writes the audit", forge(dbtest.OpenSQL(e, e.As(role, role)), 1, ""))
			}
			if d.Audit.SetsSession {
				denied("the operator names another session", forge(dbtest.OpenSQL(e, e.As("operator", "operator")), 1, "ben@db"))
			}
		}
		// The sequence ends in a row of an account that may write it: interventions go on behind the chain.
		locks := e.LockerOn(e.DB, sqllock.Options{Holder: "olga"})
		intervene := func() error {
			lease, err := locks.Acquire(e.Ctx, "key")
			e.Check(err)
			_, err = locks.ForceRelease(e.Ctx, "key", 0, holdfast.Actor{By: "test", Reason: "asked"})
			_ = lease.Release(e.Ctx)
			return err
		}
		e.Check(intervene())
		e.Check(forge(e.SQL, 1<<63-1, ""))
		for range 2 {
			if err := intervene(); err != nil {
				e.Errorf("after a row at the end of the sequence: %v", err)
			}
		}
		if n := e.Int(`SELECT COUNT(*) FROM holdfast_audit WHERE seq <= 3`); n != 3 {
			e.Errorf("%d rows in the chain, want 3", n)
		}
		if _, err := audit.Verify(e.Ctx, e.DB); !errors.Is(err, audit.ErrBroken) {
			e.Errorf("verify: %v", err)
		}
	})
}

// functionCalls makes the functions, and returns a call of each.
func functionCalls(e *conformance.Env[*sql.Tx]) map[string]string {
	e.Helper()
	var query string
	switch e.Engine {
	case dbtest.Postgres:
		query = `SELECT proname::text, 'SELECT ' || oid::regproc || '(' || COALESCE((SELECT string_agg('NULL::' || format_type(a, NULL), ', ') FROM unnest(proargtypes) a), '') || ')', oid::text
FROM pg_proc WHERE pronamespace = current_schema()::regnamespace AND prorettype <> 'trigger'::regtype`
	case dbtest.MySQL, dbtest.MariaDB:
		query = `SELECT specific_name, CONCAT('CALL ', specific_name, '(', GROUP_CONCAT(IF(parameter_mode = 'IN', 'NULL', '@out') ORDER BY ordinal_position), ')'), ''
FROM information_schema.parameters WHERE specific_schema = DATABASE() GROUP BY specific_name`
	default:
		return nil
	}
	e.Check(migrations.FunctionsUp(e.Ctx, e.SQL))
	rows, err := e.SQL.QueryContext(e.Ctx, query)
	e.Check(err)
	defer func() { _ = rows.Close() }()
	all := map[string]string{}
	for rows.Next() {
		var name, call, id string
		e.Check(rows.Scan(&name, &call, &id))
		all[call] = strings.TrimPrefix(name, "holdfast_")
	}
	e.Check(rows.Err())
	if len(all) < 13 {
		e.Errorf("%d functions", len(all))
	}
	return all
}

var forClients = []string{"claim", "finish", "void", "lookup", "acquire", "renew", "release", "guard"}

func grantFunctions(e *conformance.Env[*sql.Tx], account string) {
	e.Helper()
	var b strings.Builder
	e.Check(migrations.PrintFunctionGrants(&b, holdfast.Engine(e.Engine), account, holdfast.Options{Schema: e.Schema()}))
	for q := range strings.SplitSeq(strings.TrimSuffix(b.String(), ";\n"), ";\n") {
		e.Must(q)
	}
}
