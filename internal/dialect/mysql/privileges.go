package mysql

import (
	"context"
	"regexp"
	"strings"

	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/dialect"
)

var privileges = dialect.Privileges{
	Account: Account,
	// The role may make, change and drop these tables, and no others. GRANT takes the name of a
	// table that is not there yet if CREATE is among the privileges.
	Migrator: func(_ string, tables []string, to string) (list []string) {
		for _, t := range tables {
			list = append(list, `GRANT SELECT, INSERT, UPDATE, DELETE, CREATE, ALTER, INDEX, DROP ON `+t+` TO `+to)
		}
		return list
	},
	Held: held,
}

// Account quotes an account: user@host, or user for any host.
func Account(account string) string {
	user, host, ok := strings.Cut(account, "@")
	if !ok {
		return ident(user)
	}
	return ident(user) + "@" + ident(host)
}

// grantLine is a line of SHOW GRANTS: the privileges, the database and the table.
var grantLine = regexp.MustCompile("^(GRANT|REVOKE) (.+) ON (?:TABLE )?(`(?:[^`]|``)*`|\\*)\\.(`(?:[^`]|``)*`|\\*) (?:TO|FROM) ")

// held reads SHOW GRANTS, because information_schema tells nothing of roles.
func held(ctx context.Context, q core.Querier, schema string, tables []string) (dialect.Held, error) {
	if schema == "" {
		if _, err := (core.Stmt{Name: "privileges.database", Text: `SELECT COALESCE(DATABASE(), '')`}).QueryRow(ctx, q, []any{&schema}); err != nil {
			return nil, err
		}
	}
	var roles string
	if _, err := (core.Stmt{Name: "privileges.roles", Text: `SELECT COALESCE(CURRENT_ROLE(), 'NONE')`}).QueryRow(ctx, q, []any{&roles}); err != nil {
		return nil, err
	}
	text := `SHOW GRANTS`
	if strings.HasPrefix(roles, "`") { // MySQL lists active roles, quoted; MariaDB has one, and shows its grants itself
		text = `SHOW GRANTS FOR CURRENT_USER() USING ` + roles
	}
	rows, err := (core.Stmt{Name: "privileges", Text: text}).Query(ctx, q)
	if err != nil {
		return nil, err
	}
	lines, err := core.Collect(rows, core.Value[string])
	if err != nil {
		return nil, err
	}
	all := dialect.Held{}
	for _, line := range lines {
		addGrants(all, line, schema, tables)
	}
	return all, nil
}

// everything is what ALL PRIVILEGES says of a table.
var everything = []string{"SELECT", "INSERT", "UPDATE", "DELETE", "CREATE", "DROP", "ALTER", "INDEX", "TRIGGER"}

func addGrants(all dialect.Held, line, schema string, tables []string) {
	m := grantLine.FindStringSubmatch(line)
	if len(m) == 0 || m[1] == "REVOKE" {
		return
	}
	database, table := unquote(m[3]), unquote(m[4])
	if m[3] != "*" && database != schema && (m[4] != "*" || !like(database, schema)) {
		return
	}
	for _, p := range split(m[2]) {
		name, _, some := strings.Cut(p, " (")
		names := []string{name}
		switch {
		case some:
			names[0] += " SOME"
		case name == "ALL PRIVILEGES" || name == "ALL":
			names = everything
		}
		for _, t := range tables {
			for _, n := range names {
				if (m[4] == "*" || table == t) && contains(n) {
					all.Add(t, n)
				}
			}
		}
		if m[3] == "*" && (name == "ALL PRIVILEGES" || name == "SUPER") {
			all.Add("", name+" on *.*")
		}
	}
}

// contains reports whether a privilege is one on tables that the check knows.
func contains(privilege string) bool {
	for _, p := range everything {
		if privilege == p || privilege == p+" SOME" {
			return true
		}
	}
	return false
}

// split cuts a list of privileges at the commas outside of parentheses.
func split(list string) (parts []string) {
	depth, from := 0, 0
	for i, c := range list {
		switch {
		case c == '(':
			depth++
		case c == ')':
			depth--
		case c == ',' && depth == 0:
			parts = append(parts, strings.TrimSpace(list[from:i]))
			from = i + 1
		}
	}
	return append(parts, strings.TrimSpace(list[from:]))
}

func unquote(name string) string {
	return strings.ReplaceAll(strings.Trim(name, "`"), "``", "`")
}

// like reports whether a database's name matches the pattern of a grant: % and _ stand for any text and
// any character, unless a backslash precedes them.
func like(pattern, name string) bool {
	var b strings.Builder
	b.WriteString("^")
	escaped := false
	for _, c := range pattern {
		switch {
		case !escaped && c == '\\':
			escaped = true
			continue
		case !escaped && c == '%':
			b.WriteString(".*")
		case !escaped && c == '_':
			b.WriteString(".")
		default:
			b.WriteString(regexp.QuoteMeta(string(c)))
		}
		escaped = false
	}
	ok, err := regexp.MatchString(b.String()+"$", name)
	return ok && err == nil
}
