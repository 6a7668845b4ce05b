package postgres

import (
	"strconv"
	"strings"

	"github.com/holdfast-go/holdfast/internal/dialect"
)

// procedure is a function, whose parameters have the names of the columns. The body names them by
// number, so that no column is taken for one.
func procedure(p dialect.Procedure) []string {
	table, name := prefix(p.Schema)+ident(p.Table), prefix(p.Schema)+ident(p.Name)
	returns, result := table+`.`+ident(p.Version.Name)+`%TYPE`, `$`+strconv.Itoa(len(p.Key)+1)+` + 1`
	if p.UUID {
		result = `$` + strconv.Itoa(len(p.Key)+2)
	}
	parameters := make([]string, 0, len(p.Key)+len(p.Set)+2)
	for i, c := range p.Parameters() {
		as := c.Name
		if p.UUID && i == len(p.Key)+1 {
			as = "new_" + as
		}
		parameters = append(parameters, ident(as)+` `+table+`.`+ident(c.Name)+`%TYPE`)
	}
	body := `
#variable_conflict use_column
BEGIN
 ` + p.Update(table, ident, func(n int) string { return `$` + strconv.Itoa(n) }) + `;
 IF NOT FOUND THEN
  RAISE EXCEPTION USING ERRCODE = '` + refused + `', MESSAGE = '` + dialect.NotThatVersion + `';
 END IF;
 RETURN ` + result + `;
END`
	statements := []string{
		`DROP FUNCTION IF EXISTS ` + name,
		`CREATE FUNCTION ` + name + `(` + strings.Join(parameters, ", ") + `) RETURNS ` + returns +
			` LANGUAGE plpgsql SECURITY DEFINER SET search_path = ` + pinned + ` AS ` + quote(body),
		`REVOKE ALL ON FUNCTION ` + name + ` FROM PUBLIC`,
		`REVOKE ALL ON TABLE ` + table + ` FROM PUBLIC`,
	}
	for _, r := range p.Roles {
		role := ident(r)
		statements = append(statements,
			`GRANT USAGE ON SCHEMA `+ident(p.Schema)+` TO `+role,
			`REVOKE ALL ON TABLE `+table+` FROM `+role,
			`GRANT SELECT, INSERT ON TABLE `+table+` TO `+role,
			`GRANT EXECUTE ON FUNCTION `+name+` TO `+role)
	}
	return statements
}
