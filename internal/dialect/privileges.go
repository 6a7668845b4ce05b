package dialect

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/holdfast-go/holdfast/internal/core"
)

// Role is what an account of the database is for.
type Role string

// The roles.
const (
	RoleApp      Role = "app"
	RoleReaper   Role = "reaper"
	RoleOperator Role = "operator"
	RoleReader   Role = "reader"
	RoleMigrator Role = "migrator"
)

// Roles lists the roles.
var Roles = []Role{RoleApp, RoleReaper, RoleOperator, RoleReader, RoleMigrator}

// MigrationsTable holds how far the migrations got. It is not one of Tables, because a program may
// apply the SQL in another way.
const MigrationsTable = "migrations"

// rights says what the statements of each role need on each table: S, I, U and D are SELECT, INSERT,
// UPDATE and DELETE. Columns after a colon are the only ones that UPDATE changes. L means that rows are
// locked, and not changed. A is INSERT without the column that the database sets. A role may not do what is not here.
var rights = map[string]struct{ app, reaper, operator, reader string }{
	"schema":          {"S", "S", "S", "S"},
	"records":         {"SIUD", "SUD", "SUD", "S"},
	"locks":           {"SIU", "SDL", "SU", "S"},
	"floor":           {"SL", "SU:token", "SU:token,store", "S"},
	"registers":       {"SIU", "", "S", "S"},
	"waiters":         {"SIUD", "SDL", "SD", "S"},
	"tickets":         {"SIUD", "SDL", "SD", "S"},
	"staged":          {"SIUD", "SUD", "SU", "S"},
	"steps":           {"SIUD", "SUD", "SU", "S"},
	"interventions":   {"S", "S", "SI", "S"},
	"sweeps":          {"", "SID", "S", "S"},
	"provider_events": {"SID", "SUD", "SU", "S"},
	"outbox":          {"SIUD", "", "SU", "S"},
	"outbox_keys":     {"SIUD", "", "S", "S"},
	"similar":         {"SIU", "SDL", "SD", "S"},
	"limits":          {"SIU", "", "SD", "S"},
	"limit_entries":   {"SIU", "SDL", "SD", "S"},
	"proposals":       {"", "", "SID", "S"},
	"servers":         {"SI", "SI", "SI", "S"},
	"audit":           {"S", "", "SA", "S"},
	MigrationsTable:   {"S", "S", "S", "S"},
}

// lockColumns is a column of each table whose rows a role locks and may not change otherwise: an engine
// that wants UPDATE for a lock gets it for that column, which decides nothing.
var lockColumns = map[string]string{"floor": "id", "locks": "holder", "waiters": "holder", "tickets": "holder", "similar": "op_key", "limit_entries": "created_at"}

// Right is a privilege on one table. If Columns are set, it is for these columns only.
type Right struct {
	Privilege string
	Columns   []string
}

// Privileges is how an engine grants, and how it tells what was granted.
type Privileges struct {
	// None says why there is nothing to grant. Empty: there is.
	None string
	// LockNeedsUpdate: a lock on rows takes UPDATE on one column.
	LockNeedsUpdate bool
	// WholeTables: the engine does not check grants on columns.
	WholeTables bool
	// NeedsSchema: grants name the schema.
	NeedsSchema bool
	// Account returns an account as a statement has it.
	Account func(account string) string
	// Usage returns what a role needs besides, for the quoted schema. Migrator returns what the role that
	// runs the migrations needs, for the quoted schema and tables.
	Usage    func(schema, to string) []string
	Migrator func(schema string, tables []string, to string) []string
	// Table begins the name of a table in a grant.
	Table string
	// Held reads what the session's role may do with tables of a schema ("" = the current one). All
	// names are without quotes.
	Held func(ctx context.Context, q core.Querier, schema string, tables []string) (Held, error)
}

// Held is what a role may do: for each table the privileges, in upper case. A privilege on some columns
// has a " SOME" after it. The table "" has what is not on one table.
type Held map[string]map[string]bool

// Add adds a privilege.
func (h Held) Add(table, privilege string) {
	if h[table] == nil {
		h[table] = map[string]bool{}
	}
	h[table][privilege] = true
}

// Rights returns what a role needs on a table. ok is false for a table that has no row.
func (d *Dialect) Rights(role Role, table string) (list []Right, ok bool) {
	row, ok := rights[table]
	cell := map[Role]string{RoleApp: row.app, RoleReaper: row.reaper, RoleOperator: row.operator, RoleReader: row.reader}[role]
	letters, columns, only := strings.Cut(cell, ":")
	for _, letter := range letters {
		switch letter {
		case 'S':
			list = append(list, Right{Privilege: "SELECT"})
		case 'I':
			list = append(list, Right{Privilege: "INSERT"})
		case 'A':
			r := Right{Privilege: "INSERT"}
			if d.Audit.SetsSession {
				r.Columns = AuditColumns
			}
			list = append(list, r)
		case 'U':
			r := Right{Privilege: "UPDATE"}
			if only && !d.Privileges.WholeTables {
				r.Columns = strings.Split(columns, ",")
			}
			list = append(list, r)
		case 'D':
			list = append(list, Right{Privilege: "DELETE"})
		case 'L':
			if d.Privileges.LockNeedsUpdate {
				list = append(list, Right{"UPDATE", []string{lockColumns[table]}})
			}
		}
	}
	return list, ok
}

// right is the right as a statement has it.
func (d *Dialect) right(r Right) string {
	if r.Columns == nil {
		return r.Privilege
	}
	return r.Privilege + " (" + strings.Join(d.Idents(r.Columns), ", ") + ")"
}

// GrantedTables lists the tables that grants are for: Tables, and MigrationsTable.
func GrantedTables() []string { return append(slices.Clone(Tables), MigrationsTable) }

// Grants returns the statements that give a role its rights. table returns the quoted name of a table.
func (d *Dialect) Grants(role Role, schema string, table func(name string) string, account string) []string {
	p := &d.Privileges
	to := p.Account(account)
	if role == RoleMigrator {
		var tables []string
		for _, t := range GrantedTables() {
			tables = append(tables, table(t))
		}
		return p.Migrator(schema, tables, to)
	}
	var list []string
	if p.Usage != nil {
		list = p.Usage(schema, to)
	}
	for _, t := range GrantedTables() {
		held, _ := d.Rights(role, t)
		if len(held) == 0 {
			continue
		}
		texts := make([]string, len(held))
		for i, r := range held {
			texts[i] = d.right(r)
		}
		list = append(list, `GRANT `+strings.Join(texts, ", ")+` ON `+p.Table+table(t)+` TO `+to)
	}
	return list
}

// HeldOn returns what the session's role may do with Holdfast's tables, and their names without quotes.
// table returns the quoted name of a table.
func (d *Dialect) HeldOn(ctx context.Context, q core.Querier, table func(name string) string) (held Held, names map[string]string, err error) {
	names = map[string]string{}
	var schema string
	tables := make([]string, 0, len(Tables))
	for _, t := range Tables {
		schema, names[t] = d.Bare(table(t))
		tables = append(tables, names[t])
	}
	held, err = d.Privileges.Held(ctx, q, schema, tables)
	return held, names, err
}

// Bare returns the schema ("" for none) and the name of a quoted table without quotes.
func (d *Dialect) Bare(quoted string) (schema, table string) {
	unquote := func(s string) string { return strings.Trim(s, string(d.QuoteRune)) }
	if i := strings.LastIndex(quoted, "."); i >= 0 {
		return unquote(quoted[:i]), unquote(quoted[i+1:])
	}
	return "", unquote(quoted)
}

// Missing returns what a role lacks for its statements, as "INSERT on table". names has the full name of
// each table.
func (d *Dialect) Missing(role Role, held Held, names map[string]string) (list []string) {
	for _, t := range Tables {
		need, _ := d.Rights(role, t)
		var lacks []string
		for _, r := range need {
			if has := held[names[t]]; !has[r.Privilege] && (r.Columns == nil || !has[r.Privilege+" SOME"]) {
				lacks = append(lacks, d.right(r))
			}
		}
		if len(lacks) > 0 {
			list = append(list, strings.Join(lacks, ", ")+" on "+names[t])
		}
	}
	return list
}

// Excess returns what a role may do beyond what its statements need.
func (d *Dialect) Excess(role Role, held Held, names map[string]string) (list []string) {
	for _, t := range append([]string{""}, Tables...) {
		allowed := map[string]bool{}
		need, _ := d.Rights(role, t)
		for _, r := range need {
			allowed[r.Privilege] = allowed[r.Privilege] || r.Columns == nil
			allowed[r.Privilege+" SOME"] = true
		}
		more := slices.DeleteFunc(slices.Sorted(maps.Keys(held[names[t]])), func(p string) bool {
			whole, some := strings.CutSuffix(p, " SOME")
			return allowed[p] || some && held[names[t]][whole]
		})
		switch {
		case len(more) == 0:
		case t == "":
			list = append(list, strings.Join(more, ", "))
		default:
			list = append(list, strings.Join(more, ", ")+" on "+names[t])
		}
	}
	return list
}

// Asks returns statements that change nothing, and that fail with class Denied if the account lacks a
// right of the role to change rows of a table: the key is the right. A plan takes the rights of its
// statement.
func (d *Dialect) Asks(role Role, name, table string) map[string]string {
	asks := map[string]string{}
	need, _ := d.Rights(role, name)
	for _, r := range need {
		switch {
		case r.Privilege == "DELETE":
			asks[d.right(r)] = `EXPLAIN DELETE FROM ` + table + ` WHERE 1 = 0`
		case r.Privilege == "UPDATE" && r.Columns != nil:
			column := d.Ident(r.Columns[0])
			asks[d.right(r)] = `EXPLAIN UPDATE ` + table + ` SET ` + column + ` = ` + column + ` WHERE 1 = 0`
		case r.Privilege == "UPDATE" && name != "floor":
			asks[d.right(r)] = `EXPLAIN UPDATE ` + table + ` SET owner = owner WHERE 1 = 0`
		}
	}
	return asks
}
