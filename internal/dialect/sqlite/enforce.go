package sqlite

import (
	"strings"

	"github.com/holdfast-go/holdfast/internal/dialect"
)

// The catalog stores the whole statement of a trigger, which is its body here.
var enforce = dialect.Enforce{
	Versions: func(v dialect.Versioned) []dialect.Trigger {
		v.Update = true
		v.Body = create(v.Trigger) + ` WHEN ` + v.Differs(ident(v.Column), " IS NOT ", " IS ") +
			` BEGIN SELECT RAISE(ABORT, '` + v.Message() + `'); END`
		return []dialect.Trigger{v.Trigger}
	},
	Fence:   fence,
	Install: func(t dialect.Trigger) []string { return []string{t.Body} },
	Remove:  func(t dialect.Trigger) []string { return []string{`DROP TRIGGER IF EXISTS ` + ident(t.Name)} },
	Find: `SELECT 1, '', sql FROM sqlite_master
WHERE $1 IN ('', 'main') AND type = 'trigger' AND lower(tbl_name) = lower($2) AND name = $3`,
	Shape:  func(dialect.Trigger) string { return "" },
	Denied: func(error) string { return "" },
}

// create begins the statement. SQLite accepts the name of the table only without a schema.
func create(t dialect.Trigger) string {
	return `CREATE TRIGGER ` + ident(t.Name) + ` AFTER ` + t.Events() + ` ON ` + ident(t.Table)
}

func ident(name string) string { return dialect.QuoteIdent(`"`, name) }

func literal(text string) string { return `'` + strings.ReplaceAll(text, `'`, `''`) + `'` }
