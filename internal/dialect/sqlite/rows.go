package sqlite

import (
	"math"
	"strings"

	"github.com/holdfast-go/holdfast/internal/dialect"
)

var rows = dialect.BusinessRows{
	Insert: func(table string, columns, key []string) string {
		return `INSERT INTO ` + table + ` (` + strings.Join(columns, ", ") + `) VALUES (` + dialect.Params(len(columns)) +
			`) ON CONFLICT (` + strings.Join(key, ", ") + `) DO NOTHING`
	},
	Verdict: dialect.ByAffected,
	Tuples:  `VALUES `,

	// An INTEGER PRIMARY KEY is the row id, so it is never NULL, even without NOT NULL.
	Columns: `SELECT c.name, UPPER(c.type), COALESCE((SELECT x.coll FROM pragma_index_list($2, $1) l, pragma_index_xinfo(l.name, $1) x
  WHERE l."unique" = 1 AND x.name = c.name AND x.key = 1 AND x.coll <> 'BINARY' LIMIT 1), ''), '',
 CASE WHEN c."notnull" = 1 OR (c.pk = 1 AND UPPER(c.type) = 'INTEGER') THEN 1 ELSE 0 END
FROM pragma_table_info($2, $1) c`,
	Uniques: `SELECT l.name, COALESCE(x.name, ''), CASE WHEN l.partial = 0 AND x.name IS NOT NULL THEN 1 ELSE 0 END
FROM pragma_index_list($2, $1) l, pragma_index_xinfo(l.name, $1) x WHERE l."unique" = 1 AND x.key = 1
UNION ALL
SELECT 'rowid', c.name, 1 FROM pragma_table_info($2, $1) c WHERE c.pk = 1 AND UPPER(c.type) = 'INTEGER'
 AND (SELECT COUNT(*) FROM pragma_table_info($2, $1) WHERE pk > 0) = 1`,
	Leads: `SELECT l.name, COALESCE(x.name, ''), CASE WHEN l.partial = 0 OR UPPER(m.sql) LIKE '%IS NOT NULL' THEN 1 ELSE 0 END
FROM pragma_index_list($2, $1) l JOIN pragma_index_xinfo(l.name, $1) x LEFT JOIN sqlite_master m ON m.type = 'index' AND m.name = l.name
WHERE x.seqno = 0`,
	// See https://www.sqlite.org/datatype3.html
	Version: func(typ string) dialect.VersionType {
		switch {
		case strings.Contains(typ, "int"):
			return dialect.VersionType{Last: math.MaxInt64}
		case strings.Contains(typ, "char"), strings.Contains(typ, "text"):
			return dialect.VersionType{Text: true}
		}
		return dialect.VersionType{Bytes: strings.Contains(typ, "blob")}
	},
	Form: func(typ string) dialect.Form {
		switch {
		case strings.Contains(typ, "INT"):
			return dialect.FormAny
		case strings.Contains(typ, "BLOB"):
			return dialect.FormBytes
		}
		return dialect.FormText
	},
	Exact: func(typ, collation string) (bool, string) {
		if collation != "" {
			return false, "its unique index compares with " + collation + ", which folds different texts: use BINARY"
		}
		// By the rules of https://www.sqlite.org/datatype3.html#determination_of_column_affinity
		switch {
		case strings.Contains(typ, "INT"), strings.Contains(typ, "CHAR"), strings.Contains(typ, "TEXT"), strings.Contains(typ, "BLOB"):
			return true, ""
		}
		return false, "a column declared " + typ + " may turn text into a number ('007' becomes 7): declare it TEXT, BLOB or INTEGER"
	},
}
