package mariadb

import (
	"github.com/holdfast-go/holdfast/internal/dialect"
	"github.com/holdfast-go/holdfast/internal/dialect/mysql"
)

var doctor = mysql.Doctor(
	mysql.Blocked{
		Blocker: `CAST(b.trx_mysql_thread_id AS CHAR), COALESCE(p.user, ''), COALESCE(p.host, ''), COALESCE(p.command, IF(b.trx_mysql_thread_id = 0, ` + mysql.WithoutSession + `, '')), COALESCE(TIMESTAMPDIFF(MICROSECOND, b.trx_started, NOW(6)), 0)`,
		From: `information_schema.innodb_lock_waits w
JOIN information_schema.innodb_trx r ON r.trx_id = w.requesting_trx_id JOIN information_schema.innodb_trx b ON b.trx_id = w.blocking_trx_id
JOIN information_schema.processlist s ON s.id = r.trx_mysql_thread_id
LEFT JOIN information_schema.processlist p ON p.id = b.trx_mysql_thread_id`,
		Waiter: `r.trx_mysql_thread_id`, Waited: `COALESCE(TIMESTAMPDIFF(MICROSECOND, r.trx_wait_started, NOW(6)), 0)`, Database: `s.db`,
		Needs: "PROCESS",
	},
	mysql.Isolation("tx_isolation"),
	mysql.Encryption("information_schema.session_status"),
	mysql.Replication(`SELECT variable_value FROM information_schema.global_status WHERE variable_name = 'SLAVES_RUNNING'`),
	dialect.Value("idle transactions of MariaDB", `SELECT CAST(@@SESSION.idle_transaction_timeout AS CHAR)`, dialect.Warning, "set idle_transaction_timeout to less than your callers' patience, such as 30",
		dialect.Is("a transaction may idle for ever: a process that is stopped in one keeps its rows locked", "0")),
	cluster, component,
	dialect.Value("Galera dirty reads", `SELECT `+wsrep("wsrep_dirty_reads"), dialect.Broken, "take wsrep_dirty_reads out of the DSN or the server's settings",
		dialect.Is("a node that has lost its cluster goes on answering reads: what it says may be long out of date", "ON")),
	dialect.Value("Galera retry", `SELECT CASE WHEN `+wsrep("wsrep_provider")+` IN ('', 'none') THEN '' ELSE `+wsrep("wsrep_retry_autocommit")+` END`, dialect.Notice, "set wsrep_retry_autocommit = 1, the default, or more",
		dialect.Is("a single statement that another node got ahead of is not run again by the server: Holdfast's are run again by Holdfast, yours fail with 1213", "0")),
	dialect.Value("Galera sync wait", `SELECT CASE WHEN `+wsrep("wsrep_provider")+` IN ('', 'none') OR `+wsrep("wsrep_sync_wait")+` & 7 = 7 THEN '' ELSE `+wsrep("wsrep_sync_wait")+` END`, dialect.Notice,
		"set wsrep_sync_wait = 7 in the DSN, or begin your transactions with Guard, DoTx or InTx, if your connections may lead to several nodes", func(value string) string {
			if value == "" {
				return ""
			}
			return "wsrep_sync_wait is " + value + ": your own statements may not see what was just committed on another node; Holdfast's wait for it"
		}),
)

// cluster reports a Galera node, because the doctor cannot query the other nodes from here.
var cluster = dialect.Probe{
	Name: "Galera", Query: `SELECT ` + wsrep("wsrep_provider") + `, ` + status("wsrep_cluster_size") + `, ` + status("wsrep_incoming_addresses"), Columns: 3,
	Judge: func(row []string) (dialect.Severity, string, string) {
		if row[0] == "" || row[0] == "none" {
			return 0, "", ""
		}
		return dialect.Warning, "this is one of " + row[1] + " nodes of a Galera cluster (" + row[2] + "): row locks end at their node, and are refused without holdfast.Options{SingleWriter: true}; each node has a clock of its own, by which leases expire, and only this one's was looked at",
			"run the doctor on each node, for its check clock; give sqllock.Options.Margin more than the clocks differ by, or send all writers to one node; what must not happen twice belongs behind Guard (docs/howto/clusters.md)"
	},
}

// component reports a node outside the primary component of its cluster.
var component = dialect.Probe{
	Name: "Galera component", Query: `SELECT ` + wsrep("wsrep_provider") + `, ` + status("wsrep_cluster_status") + `, ` + status("wsrep_ready"), Columns: 3,
	Judge: func(row []string) (dialect.Severity, string, string) {
		if row[0] == "" || row[0] == "none" || row[1] == "Primary" && row[2] == "ON" {
			return 0, "", ""
		}
		return dialect.Broken, "this node is not in the primary component of its cluster (" + row[1] + ", ready " + row[2] + "), or still joining: it refuses statements (1047), though SELECT 1 works",
			"connect to another node; where there is none, bootstrap the cluster from the node that has most"
	},
}

func status(name string) string {
	return `COALESCE((SELECT variable_value FROM information_schema.global_status WHERE variable_name = '` + name + `'), '')`
}
