package postgres

import (
	"strings"

	"github.com/holdfast-go/holdfast/internal/dialect"
)

var rows = dialect.BusinessRows{
	Insert: func(table string, columns, key []string) string {
		return `INSERT INTO ` + table + ` (` + strings.Join(columns, ", ") + `) VALUES (` + dialect.Params(len(columns)) +
			`) ON CONFLICT (` + strings.Join(key, ", ") + `) DO NOTHING`
	},
	Verdict: dialect.ByAffected,

	Columns: `SELECT a.attname::text, CASE WHEN t.typtype = 'd' THEN 'domain' ELSE t.typname::text END,
 CASE WHEN c.oid IS NULL OR c.collisdeterministic THEN '' ELSE c.collname::text END,
 CASE WHEN t.typname = 'varchar' AND a.atttypmod > 4 THEN (a.atttypmod - 4)::text ELSE '' END, CASE WHEN a.attnotnull THEN 1 ELSE 0 END
FROM pg_attribute a
JOIN pg_class r ON r.oid = a.attrelid
JOIN pg_namespace n ON n.oid = r.relnamespace
JOIN pg_type t ON t.oid = a.atttypid
LEFT JOIN pg_collation c ON c.oid = a.attcollation
WHERE n.nspname = COALESCE(NULLIF($1::text, ''), current_schema()) AND r.relname = $2::text AND a.attnum > 0 AND NOT a.attisdropped`,
	// These indexes do not enforce a claim: one on an expression, a partial one, and that of a
	// deferrable constraint.
	Uniques: `SELECT i.indexrelid::regclass::text, a.attname::text,
 CASE WHEN i.indpred IS NULL AND i.indexprs IS NULL AND i.indimmediate AND i.indisvalid THEN 1 ELSE 0 END
FROM pg_index i
JOIN pg_class r ON r.oid = i.indrelid
JOIN pg_namespace n ON n.oid = r.relnamespace
JOIN generate_series(0, 31) AS k(n) ON k.n < i.indnkeyatts
JOIN pg_attribute a ON a.attrelid = r.oid AND a.attnum = i.indkey[k.n]
WHERE i.indisunique AND n.nspname = COALESCE(NULLIF($1::text, ''), current_schema()) AND r.relname = $2::text
ORDER BY 1`,
	Leads: `SELECT i.indexrelid::regclass::text, a.attname::text,
 CASE WHEN i.indpred IS NULL OR pg_get_expr(i.indpred, i.indrelid) = '(' || quote_ident(a.attname) || ' IS NOT NULL)' THEN 1 ELSE 0 END
FROM pg_index i
JOIN pg_class r ON r.oid = i.indrelid
JOIN pg_namespace n ON n.oid = r.relnamespace
JOIN pg_class x ON x.oid = i.indexrelid
JOIN pg_am m ON m.oid = x.relam
JOIN pg_attribute a ON a.attrelid = r.oid AND a.attnum = i.indkey[0]
WHERE i.indisvalid AND m.amname = 'btree' AND n.nspname = COALESCE(NULLIF($1::text, ''), current_schema()) AND r.relname = $2::text`,
	Form:    dialect.AnyForm,
	Version: dialect.VersionOf,
	Exact: func(typ, collation string) (bool, string) {
		if collation != "" {
			return false, "its collation " + collation + " is not deterministic and folds different texts"
		}
		switch typ {
		case "text", "varchar", "bytea", "uuid", "int2", "int4", "int8", "numeric", "date", "timestamp", "timestamptz", "bool":
			return true, ""
		case "bpchar":
			return false, "char(n) ignores trailing blanks: use varchar or text"
		case "citext":
			return false, "citext folds case: use text"
		}
		return false, "type " + typ + " is not one whose equality is known to be exact: use text, varchar, bytea, uuid, an integer, numeric or a date"
	},
}
