package postgres

import (
	"strings"

	"github.com/holdfast-go/holdfast/internal/dialect"
)

// refused is the SQLSTATE that the triggers raise. Its class is used by no server.
const refused = "HF001"

var enforce = dialect.Enforce{
	Body: func(t dialect.Enforced) string {
		return `
BEGIN
 IF ` + t.Differs(" IS DISTINCT FROM ", " IS NOT DISTINCT FROM ") + ` THEN
  RAISE EXCEPTION USING ERRCODE = '` + refused + `', MESSAGE = '` + t.Message() + `', SCHEMA = TG_TABLE_SCHEMA, TABLE = TG_TABLE_NAME;
 END IF;
 RETURN NULL;
END`
	},
	// CREATE OR REPLACE TRIGGER is of PostgreSQL 14. All statements are one transaction.
	Install: func(t dialect.Enforced, body string) []string {
		function := t.Prefix + t.Trigger + `()`
		return []string{
			`CREATE OR REPLACE FUNCTION ` + function + ` RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog AS ` + quote(body),
			`CREATE TRIGGER ` + t.Trigger + ` AFTER UPDATE ON ` + t.Table + ` FOR EACH ROW EXECUTE FUNCTION ` + function,
		}
	},
	Remove: func(t dialect.Enforced) []string {
		return []string{
			`DROP TRIGGER IF EXISTS ` + t.Trigger + ` ON ` + t.Table,
			`DROP FUNCTION IF EXISTS ` + t.Prefix + t.Trigger + `()`,
		}
	},
	// tgtype 17 means AFTER UPDATE FOR EACH ROW.
	Find: `SELECT CASE WHEN t.tgenabled NOT IN ('O', 'A') THEN 0
 WHEN t.tgtype = 17 AND t.tgqual IS NULL AND t.tgattr::text = '' AND NOT t.tgdeferrable THEN 1 ELSE 2 END, p.prosrc
FROM pg_trigger t
JOIN pg_proc p ON p.oid = t.tgfoid
JOIN pg_class r ON r.oid = t.tgrelid
JOIN pg_namespace n ON n.oid = r.relnamespace
WHERE n.nspname = COALESCE(NULLIF($1::text, ''), current_schema()) AND r.relname = $2::text AND t.tgname = $3::text`,
	Denied: func(err error) string {
		if dialect.SQLState(err) == "42501" {
			return "this user may not make the trigger: it takes the table's owner, or TRIGGER on the table and CREATE on its schema"
		}
		return ""
	},
}

// quote returns text as a string literal that is valid for any standard_conforming_strings.
func quote(text string) string {
	return "E'" + strings.NewReplacer(`\`, `\\`, `'`, `''`).Replace(text) + "'"
}
