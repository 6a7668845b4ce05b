package mysql

import (
	"strconv"

	"github.com/holdfast-go/holdfast/internal/dialect"
)

// refused is the error number that the triggers raise. No server uses it.
const refused = 45100

var enforce = dialect.Enforce{
	Body: func(t dialect.Enforced) string {
		// The condition is NEW <=> OLD for a UUID, and NOT (NEW <=> OLD + 1) otherwise.
		differs := t.Differs(" <=> ", " <=> ")
		if !t.UUID {
			differs = `NOT (` + differs + `)`
		}
		return `IF ` + differs + ` THEN SIGNAL SQLSTATE '45000' SET MYSQL_ERRNO = ` + strconv.Itoa(refused) +
			`, MESSAGE_TEXT = '` + t.Message() + `'; END IF`
	},
	Install: func(t dialect.Enforced, body string) []string { return []string{`CREATE TRIGGER ` + On(t, body)} },
	Remove: func(t dialect.Enforced) []string {
		return []string{`DROP TRIGGER IF EXISTS ` + t.Prefix + t.Trigger}
	},
	Find: `SELECT CASE WHEN event_manipulation = 'UPDATE' AND action_timing = 'AFTER' THEN 1 ELSE 2 END, action_statement
FROM information_schema.triggers
WHERE event_object_schema = COALESCE(NULLIF($1, ''), DATABASE()) AND event_object_table = $2 AND trigger_name = $3`,
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
func On(t dialect.Enforced, body string) string {
	return t.Prefix + t.Trigger + ` AFTER UPDATE ON ` + t.Table + ` FOR EACH ROW ` + body
}
