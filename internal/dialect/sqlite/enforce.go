package sqlite

import (
	"strings"

	"github.com/holdfast-go/holdfast/internal/dialect"
)

var enforce = dialect.Enforce{
	// The catalog stores the whole statement.
	Body: func(t dialect.Enforced) string {
		return `CREATE TRIGGER ` + t.Trigger + ` AFTER UPDATE ON ` + quote(t.Name) + ` WHEN ` + t.Differs(" IS NOT ", " IS ") +
			` BEGIN SELECT RAISE(ABORT, '` + t.Message() + `'); END`
	},
	Install: func(_ dialect.Enforced, body string) []string { return []string{body} },
	Remove:  func(t dialect.Enforced) []string { return []string{`DROP TRIGGER IF EXISTS ` + t.Trigger} },
	Find: `SELECT 1, sql FROM sqlite_master
WHERE $1 IN ('', 'main') AND type = 'trigger' AND lower(tbl_name) = lower($2) AND name = $3`,
	Denied: func(error) string { return "" },
}

// quote quotes the name of a table. In CREATE TRIGGER, SQLite accepts it only without a
// schema.
func quote(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }
