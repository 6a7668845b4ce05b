package mysql

import (
	"slices"
	"strconv"

	"github.com/holdfast-go/holdfast/internal/dialect"
)

// Blocked is dialect.Doctor.Blocked and Blockers, and the privileges that they need. Blocker is the columns
// of the session that blocks, and From those who wait and the sessions that block them; Waiter, Waited and
// Database are columns of the waiting session.
type Blocked struct{ Blocker, From, Waiter, Waited, Database, Needs string }

func (b *Blocked) all() string {
	return `SELECT DISTINCT CAST(` + b.Waiter + ` AS CHAR), ` + b.Waited + `, ` + b.Blocker + ` FROM ` + b.From + `
WHERE ` + b.Database + ` = DATABASE() ORDER BY 2 DESC, 1, 3 LIMIT ?`
}

func (b *Blocked) of() string {
	return `SELECT DISTINCT ` + b.Blocker + ` FROM ` + b.From + ` WHERE ` + b.Waiter + ` = $1 ORDER BY 5 DESC, 1 LIMIT 10`
}

// WithoutSession is what a blocker does that has no session.
const WithoutSession = `'no session: probably a prepared XA transaction'`

// Doctor returns the probes of MySQL and MariaDB, followed by the given ones, which differ
// between the two.
func Doctor(blocked Blocked, probes ...dialect.Probe) dialect.Doctor {
	return dialect.Doctor{
		Blocked: blocked.all(), Blockers: blocked.of(), BlockedNeeds: blocked.Needs,
		Sizes: `SELECT table_name, COALESCE(table_rows, 0), COALESCE(data_length + index_length, 0) FROM information_schema.tables
WHERE table_schema = COALESCE(NULLIF($1, ''), DATABASE()) AND table_name IN ({names}) ORDER BY 3 DESC, 1`,
		Session: `SELECT CAST(CONNECTION_ID() AS CHAR)`,
		Indexes: `SELECT DISTINCT index_name FROM information_schema.statistics WHERE table_schema = COALESCE(NULLIF($1, ''), DATABASE()) AND table_name = $2`,
		Probes: slices.Concat([]dialect.Probe{
			dialect.Value("innodb_flush_log_at_trx_commit", `SELECT CAST(@@GLOBAL.innodb_flush_log_at_trx_commit AS CHAR)`, dialect.Broken, "set innodb_flush_log_at_trx_commit = 1",
				dialect.Not("1", "innodb_flush_log_at_trx_commit is not 1: a commit is acknowledged before it is durable, so a crash of the server may forget a record that a client was told of")),
			{
				Name: "sync_binlog", Query: `SELECT CAST(@@GLOBAL.log_bin + 0 AS CHAR), CAST(@@GLOBAL.sync_binlog AS CHAR)`, Columns: 2,
				Judge: func(row []string) (dialect.Severity, string, string) {
					if row[0] == "0" || row[1] == "1" {
						return 0, "", ""
					}
					return dialect.Broken, "the binary log is not written through at each commit: after a crash of the machine replicas and backups may lack commits, or the server roll some back", "set sync_binlog = 1"
				},
			},
			IdleTransactions,
		}, probes),
	}
}

// Encryption is the probe of the session's encryption, with the table of its status.
func Encryption(status string) dialect.Probe {
	return dialect.Encryption(`SELECT COALESCE((SELECT variable_value FROM ` + status + ` WHERE variable_name = 'Ssl_cipher'), ''), SUBSTRING_INDEX(USER(), '@', -1)`)
}

// IdleTransactions is the probe of how long a session may idle in a transaction.
var IdleTransactions = dialect.Probe{
	Name: "idle transactions", Query: `SELECT CAST(@@SESSION.wait_timeout AS CHAR)`, Columns: 1,
	Judge: func(row []string) (dialect.Severity, string, string) {
		seconds, err := strconv.Atoi(row[0])
		if err == nil && seconds <= 600 {
			return 0, "", ""
		}
		return dialect.Warning, "a session may idle for " + row[0] + " s, in a transaction too: a process that is stopped in one keeps its rows locked", "set wait_timeout to less than your callers' patience, and SetConnMaxIdleTime of the pool below it"
	},
}

// Isolation returns the probe of the isolation level. variable is the server's name for it.
func Isolation(variable string) dialect.Probe {
	return dialect.Value("isolation", `SELECT @@SESSION.`+variable, dialect.Notice,
		"read rows again after they were locked, with FOR UPDATE, or begin such transactions at READ COMMITTED",
		dialect.Is("transactions begin at REPEATABLE READ or above: plain reads come from a snapshot that may be older than a lock which the transaction has just got", "REPEATABLE-READ", "SERIALIZABLE"))
}

// Replication returns the probe that judges the number of sources of this server outside of a
// group.
func Replication(query string) dialect.Probe {
	p := dialect.Value("replication", query, dialect.Broken, "connect to the primary, and set super_read_only (MariaDB: read_only) on replicas",
		func(n string) string {
			if n == "0" {
				return ""
			}
			return "this server applies what another one has written, so it is a replica, and it takes writes: a key may be claimed on both, and what is written here is lost or stops the replication"
		})
	p.Privileged = true
	return p
}

var doctor = Doctor(
	// The lock of a row that was inserted has the thread of the first one that waited for it, and only
	// the lock of the table that of the transaction. innodb_trx would have it, and fails on a
	// statement whose text is not UTF-8 (3854). A session may have locked several tables, and the age of its
	// transaction changes from row to row.
	Blocked{
		Blocker: `CAST(COALESCE(b.processlist_id, 0) AS CHAR), COALESCE(b.processlist_user, ''), COALESCE(b.processlist_host, ''), IF(b.processlist_id IS NULL, ` + WithoutSession + `, COALESCE(b.processlist_command, '')), COALESCE(CAST(t.timer_wait DIV 1000000 AS SIGNED), 0)`,
		From: `(SELECT DISTINCT requesting_thread_id, blocking_engine_transaction_id FROM performance_schema.data_lock_waits) w
JOIN (SELECT DISTINCT engine_transaction_id, thread_id FROM performance_schema.data_locks WHERE lock_type = 'TABLE') l ON l.engine_transaction_id = w.blocking_engine_transaction_id
JOIN performance_schema.threads r ON r.thread_id = w.requesting_thread_id LEFT JOIN performance_schema.threads b ON b.thread_id = l.thread_id
LEFT JOIN performance_schema.events_transactions_current t ON t.thread_id = b.thread_id AND t.state = 'ACTIVE'`,
		Waiter: `r.processlist_id`, Waited: `COALESCE(r.processlist_time, 0) * 1000000`, Database: `r.processlist_db`,
		Needs: "SELECT on performance_schema",
	},
	Isolation("transaction_isolation"),
	Encryption("performance_schema.session_status"),
	// A primary may have channels of group replication, so they do not count.
	Replication(`SELECT CAST(COUNT(*) AS CHAR) FROM performance_schema.replication_connection_status WHERE service_state <> 'OFF' AND LEFT(channel_name, 18) <> 'group_replication_'`),
)
