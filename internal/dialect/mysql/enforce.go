package mysql

import (
	"strconv"

	"github.com/holdfast-go/holdfast/internal/dialect"
)

// refused and unfenced are the error numbers that the triggers raise. No server uses them. They are
// below 32768, because PyMySQL reads a number of 16 bits with a sign.
const (
	refused  = 30100
	unfenced = 30101
)

var enforce = dialect.Enforce{
	Versions: func(v dialect.Versioned) []dialect.Trigger {
		// The condition is NEW <=> OLD for a UUID, and NOT (NEW <=> OLD + 1) otherwise.
		differs := v.Differs(ident(v.Column), " <=> ", " <=> ")
		if !v.UUID {
			differs = `NOT (` + differs + `)`
		}
		v.Update = true
		v.Body = `IF ` + differs + ` THEN ` + signal(refused, v.Message()) + `; END IF`
		return []dialect.Trigger{v.Trigger}
	},
	Fence:   fence,
	Install: func(t dialect.Trigger) []string { return []string{`CREATE TRIGGER ` + On(t)} },
	Remove: func(t dialect.Trigger) []string {
		return []string{`DROP TRIGGER IF EXISTS ` + prefix(t.Schema) + ident(t.Name)}
	},
	Find: `SELECT 1, CONCAT(action_timing, ' ', event_manipulation), COALESCE(action_statement, '')
FROM information_schema.triggers
WHERE event_object_schema = COALESCE(NULLIF($1, ''), DATABASE()) AND event_object_table = $2 AND trigger_name = $3`,
	Shape:     func(t dialect.Trigger) string { return `AFTER ` + t.Events() },
	Procedure: procedure,
	Types:     types,
	// By default, a statement waits for a table's metadata lock for up to a year.
	BoundBefore: `SET @holdfast_ddl_wait = @@SESSION.lock_wait_timeout, SESSION lock_wait_timeout = 1`,
	BoundAfter:  `SET SESSION lock_wait_timeout = @holdfast_ddl_wait`,
	Denied: func(err error) string {
		switch dialect.MySQLNumber(err) {
		case 1419:
			return "binary logging is on, and then a trigger takes the privilege SUPER, or log_bin_trust_function_creators = 1 on the server (SET GLOBAL, or in its configuration): set that, or have an administrator run what EnforceSQL returns"
		case 1142, 1044, 1227:
			return "this user may not make the trigger: GRANT TRIGGER on the table, or have an administrator run what EnforceSQL returns"
		}
		return ""
	},
}

// On returns the trigger's definition, without CREATE TRIGGER.
func On(t dialect.Trigger) string {
	return prefix(t.Schema) + ident(t.Name) + ` AFTER ` + t.Events() + ` ON ` + prefix(t.Schema) + ident(t.Table) + ` FOR EACH ROW ` + t.Body
}

// signal is the statement that raises an error.
func signal(number int, message string) string {
	return `SIGNAL SQLSTATE '45000' SET MYSQL_ERRNO = ` + strconv.Itoa(number) + `, MESSAGE_TEXT = '` + message + `'`
}

func ident(name string) string { return dialect.QuoteIdent("`", name) }

func prefix(schema string) string {
	if schema == "" {
		return ""
	}
	return ident(schema) + "."
}
