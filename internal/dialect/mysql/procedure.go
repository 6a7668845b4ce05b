package mysql

import (
	"strconv"
	"strings"

	"github.com/holdfast-go/holdfast/internal/dialect"
)

// types are the columns' types. A text parameter has the column's collation, so that a comparison
// is that of the column.
const types = `SELECT column_name, CONCAT(column_type, COALESCE(CONCAT(' CHARACTER SET ', character_set_name, ' COLLATE ', collation_name), ''))
FROM information_schema.columns WHERE table_schema = COALESCE(NULLIF($1, ''), DATABASE()) AND table_name = $2`

// procedure names its parameters p1, p2 and so on, and qualifies each column, because a parameter
// hides a column of its name.
func procedure(p dialect.Procedure) []string {
	table, name := prefix(p.Schema)+ident(p.Table), prefix(p.Schema)+ident(p.Name)
	parameter := func(n int) string { return `p` + strconv.Itoa(n) }
	var parameters []string
	for i, c := range p.Parameters() {
		parameters = append(parameters, `IN `+parameter(i+1)+` `+c.Type)
	}
	statements := []string{
		`DROP PROCEDURE IF EXISTS ` + name,
		`CREATE PROCEDURE ` + name + `(` + strings.Join(parameters, ", ") + `) MODIFIES SQL DATA SQL SECURITY DEFINER
BEGIN
 ` + p.Update(table+` t`, func(name string) string { return `t.` + ident(name) }, parameter) + `;
 IF ROW_COUNT() = 0 THEN ` + signal(refused, dialect.NotThatVersion) + `; END IF;
END`,
	}
	for _, r := range p.Roles {
		to := account(r)
		statements = append(statements,
			// A privilege can be revoked only where it was granted.
			`GRANT SELECT, INSERT, UPDATE, DELETE ON `+table+` TO `+to,
			`REVOKE UPDATE, DELETE ON `+table+` FROM `+to,
			`GRANT EXECUTE ON PROCEDURE `+name+` TO `+to)
	}
	return statements
}

// account quotes name@host. Without a host it is that of every host.
func account(name string) string {
	host := "%"
	if i := strings.LastIndex(name, "@"); i >= 0 {
		name, host = name[:i], name[i+1:]
	}
	return ident(name) + "@" + ident(host)
}
