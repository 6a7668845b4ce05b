package postgres

import (
	"strconv"
	"strings"

	"github.com/holdfast-go/holdfast/internal/dialect"
)

// refused and unfenced are the SQLSTATEs that the triggers raise. Their class is used by no server.
const (
	refused  = "HF001"
	unfenced = "HF002"
)

// pinned is the search path of functions: no other object is found under a name of pg_catalog.
const pinned = `pg_catalog, pg_temp`

var enforce = dialect.Enforce{
	Versions: func(v dialect.Versioned) []dialect.Trigger {
		v.Update = true
		v.Body = `
BEGIN
 IF ` + v.Differs(ident(v.Column), " IS DISTINCT FROM ", " IS NOT DISTINCT FROM ") + ` THEN
  ` + raise(refused, v.Message()) + `
 END IF;
 RETURN NULL;
END`
		return []dialect.Trigger{v.Trigger}
	},
	Fence: fence,
	// CREATE OR REPLACE TRIGGER is of PostgreSQL 14. All statements are one transaction. Only the
	// trigger's creator needs EXECUTE: without the REVOKE, others could have the function read
	// locks for a table of theirs.
	Install: func(t dialect.Trigger) []string {
		function, definer := prefix(t.Schema)+ident(t.Name)+`()`, ``
		if t.Definer {
			definer = ` SECURITY DEFINER`
		}
		statements := []string{`CREATE OR REPLACE FUNCTION ` + function + ` RETURNS trigger LANGUAGE plpgsql` + definer + ` SET search_path = ` + pinned + ` AS ` + quote(t.Body)}
		if t.Definer {
			statements = append(statements, `REVOKE ALL ON FUNCTION `+function+` FROM PUBLIC`)
		}
		return append(statements, `CREATE TRIGGER `+ident(t.Name)+` AFTER `+t.Events()+` ON `+on(t)+` FOR EACH ROW EXECUTE FUNCTION `+function)
	},
	Remove: func(t dialect.Trigger) []string {
		return []string{
			`DROP TRIGGER IF EXISTS ` + ident(t.Name) + ` ON ` + on(t),
			`DROP FUNCTION IF EXISTS ` + prefix(t.Schema) + ident(t.Name) + `()`,
		}
	},
	Find: `SELECT CASE WHEN t.tgenabled IN ('O', 'A') THEN 1 ELSE 0 END,
 CASE WHEN t.tgqual IS NULL AND t.tgattr::text = '' AND NOT t.tgdeferrable THEN '' ELSE 'conditional ' END
 || t.tgtype::text || CASE WHEN p.prosecdef THEN ' definer' ELSE '' END || ' ' || COALESCE(array_to_string(p.proconfig, ';'), ''), p.prosrc
FROM pg_trigger t
JOIN pg_proc p ON p.oid = t.tgfoid
JOIN pg_class r ON r.oid = t.tgrelid
JOIN pg_namespace n ON n.oid = r.relnamespace
WHERE n.nspname = COALESCE(NULLIF($1::text, ''), current_schema()) AND r.relname = $2::text AND t.tgname = $3::text`,
	// The bits of tgtype: 1 row, 4 INSERT, 8 DELETE, 16 UPDATE; none for AFTER.
	Shape: func(t dialect.Trigger) string {
		shape := 1
		for bit, has := range map[int]bool{4: t.Insert, 8: t.Delete, 16: t.Update} {
			if has {
				shape |= bit
			}
		}
		text := strconv.Itoa(shape)
		if t.Definer {
			text += " definer"
		}
		return text + " search_path=" + pinned
	},
	Procedure: procedure,
	Denied: func(err error) string {
		if dialect.SQLState(err) == "42501" {
			return "this user may not make the trigger: it takes the table's owner, or TRIGGER on the table and CREATE on its schema"
		}
		return ""
	},
}

func raise(state, message string) string {
	return `RAISE EXCEPTION USING ERRCODE = '` + state + `', MESSAGE = '` + message + `', SCHEMA = TG_TABLE_SCHEMA, TABLE = TG_TABLE_NAME;`
}

func ident(name string) string { return dialect.QuoteIdent(`"`, name) }

func prefix(schema string) string {
	if schema == "" {
		return ""
	}
	return ident(schema) + "."
}

func on(t dialect.Trigger) string { return prefix(t.Schema) + ident(t.Table) }

// quote returns text as a string literal that is valid for any standard_conforming_strings.
func quote(text string) string {
	return "E'" + strings.NewReplacer(`\`, `\\`, `'`, `''`).Replace(text) + "'"
}
