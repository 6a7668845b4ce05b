package sqlite

import (
	"strings"

	"github.com/holdfast-go/holdfast/internal/dialect"
)

var rows = dialect.Rows{
	Insert: func(table string, columns, key []string) string {
		return `INSERT INTO ` + table + ` (` + strings.Join(columns, ", ") + `) VALUES (` + dialect.Params(len(columns)) +
			`) ON CONFLICT (` + strings.Join(key, ", ") + `) DO NOTHING`
	},
	Verdict: dialect.ByAffected,
	Tuples:  `VALUES `,

	// $1, the schema, is always empty here. An INTEGER PRIMARY KEY is the row
	// id: never NULL, whatever it says.
	Columns: `SELECT c.name, UPPER(c.type), COALESCE((SELECT x.coll FROM pragma_index_list($2) l, pragma_index_xinfo(l.name) x
  WHERE l."unique" = 1 AND x.name = c.name AND x.key = 1 AND x.coll <> 'BINARY' LIMIT 1), ''),
 CASE WHEN c."notnull" = 1 OR (c.pk = 1 AND UPPER(c.type) = 'INTEGER') THEN 1 ELSE 0 END
FROM pragma_table_info($2) c WHERE $1 = ''`,
	Uniques: `SELECT l.name, COALESCE(x.name, ''), CASE WHEN l.partial = 0 AND x.name IS NOT NULL THEN 1 ELSE 0 END
FROM pragma_index_list($2) l, pragma_index_xinfo(l.name) x WHERE $1 = '' AND l."unique" = 1 AND x.key = 1
UNION ALL
SELECT 'rowid', c.name, 1 FROM pragma_table_info($2) c WHERE c.pk = 1 AND UPPER(c.type) = 'INTEGER'
 AND (SELECT COUNT(*) FROM pragma_table_info($2) WHERE pk > 0) = 1`,
	Leads: `SELECT l.name, COALESCE(x.name, ''), CASE WHEN l.partial = 0 OR UPPER(m.sql) LIKE '%IS NOT NULL' THEN 1 ELSE 0 END
FROM pragma_index_list($2) l JOIN pragma_index_xinfo(l.name) x LEFT JOIN sqlite_master m ON m.type = 'index' AND m.name = l.name
WHERE $1 = '' AND x.seqno = 0`,
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
