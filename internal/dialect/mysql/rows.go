package mysql

import (
	"strings"

	"github.com/holdfast-go/holdfast/internal/dialect"
)

var rows = Rows(exact)

// Rows returns the SQL that MySQL and MariaDB share. exact depends on their collations.
func Rows(exact func(typ, collation string) (bool, string)) dialect.BusinessRows {
	return dialect.BusinessRows{
		// The success of a plain insert proves that the claim won. An upsert with an insert id
		// or a row count does not prove it: a trigger of the table can hide the insert id,
		// clientFoundRows can hide the count, and the upsert fires the table's UPDATE
		// triggers. The cost of the plain insert is a shared lock on the existing row.
		Insert: func(table string, columns, _ []string) string {
			return `INSERT INTO ` + table + ` (` + strings.Join(columns, ", ") + `) VALUES (` + dialect.Params(len(columns)) + `)`
		},
		Verdict:    dialect.ByDuplicate,
		LockClause: ` LOCK IN SHARE MODE`,
		Columns: `SELECT column_name, data_type, COALESCE(collation_name, ''),
 CASE WHEN data_type IN ('varchar', 'varbinary') THEN CAST(character_maximum_length AS CHAR) ELSE '' END, CASE WHEN is_nullable = 'NO' THEN 1 ELSE 0 END
FROM information_schema.columns WHERE table_schema = COALESCE(NULLIF($1, ''), DATABASE()) AND table_name = $2`,
		Uniques: `SELECT index_name, COALESCE(column_name, ''), CASE WHEN sub_part IS NULL THEN 1 ELSE 0 END
FROM information_schema.statistics
WHERE non_unique = 0 AND table_schema = COALESCE(NULLIF($1, ''), DATABASE()) AND table_name = $2
ORDER BY index_name, seq_in_index`,
		Leads: `SELECT index_name, COALESCE(column_name, ''), 1
FROM information_schema.statistics
WHERE seq_in_index = 1 AND index_type = 'BTREE' AND table_schema = COALESCE(NULLIF($1, ''), DATABASE()) AND table_name = $2`,
		Exact:   exact,
		Form:    dialect.AnyForm,
		Version: dialect.VersionOf,
	}
}

func exact(typ, collation string) (bool, string) {
	return Exact(typ, collation, collation == "utf8mb4_0900_bin", "utf8mb4_0900_bin")
}

// Exact judges a column's type. nopad says that its collation compares bytes and keeps
// trailing blanks. use names a collation that does.
func Exact(typ, collation string, nopad bool, use string) (bool, string) {
	switch strings.ToLower(typ) {
	case "varbinary", "tinyint", "smallint", "mediumint", "int", "bigint", "decimal", "date", "datetime", "timestamp", "uuid":
		return true, ""
	case "binary":
		return false, "BINARY(n) pads with zero bytes, so that 'a' and 'a\\0' are equal: use VARBINARY"
	case "varchar":
		if nopad {
			return true, ""
		}
		return false, "collation " + collation + " takes different texts for equal: use VARBINARY or COLLATE " + use
	case "char":
		return false, "CHAR(n) ignores trailing blanks: use VARBINARY"
	}
	return false, "type " + typ + " is not one whose equality is known to be exact: use VARBINARY, VARCHAR COLLATE " + use + ", an integer, DECIMAL or a date"
}
