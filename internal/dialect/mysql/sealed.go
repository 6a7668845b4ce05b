package mysql

import (
	"strings"

	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/dialect"
)

// survives lists the errors after which the transaction surely goes on: only the statement was undone, or
// it did not run. After 1205 it depends on innodb_rollback_on_timeout, so it is not listed.
func survives(err error) bool {
	switch dialect.MySQLNumber(err) {
	case 1062, 1586, // duplicates
		1451, 1452, 1216, 1217, // foreign keys
		3819, 4025, 1644, // CHECK (MySQL, MariaDB), SIGNAL
		1048, 1264, 1265, 1292, 1364, 1366, 1406, 1690, // values
		3572,                   // NOWAIT
		1054, 1064, 1136, 1146, // names and syntax
		1142, 1143, 1370: // privileges
		return true
	}
	return false
}

// ends reports whether a statement may commit or roll back, implicitly too, or turn on autocommit. A CALL
// may, because a procedure can; triggers and functions cannot.
func ends(query string) bool {
	verb, rest := core.Verb(query)
	switch verb {
	case "SELECT", "INSERT", "UPDATE", "DELETE", "REPLACE", "WITH", "VALUES", "TABLE", "SHOW", "EXPLAIN", "DESCRIBE", "DESC", "DO", "SAVEPOINT":
	case "RELEASE":
		if next, _ := core.Verb(rest); next != "SAVEPOINT" {
			return true
		}
	case "ROLLBACK":
		next, rest := core.Verb(rest)
		if next == "WORK" {
			next, _ = core.Verb(rest)
		}
		if next != "TO" {
			return true
		}
	default:
		return true
	}
	return strings.Contains(query, "/*!") || strings.Contains(query, "/*M!") || !core.OneStatement(query)
}
