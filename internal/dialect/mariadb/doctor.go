package mariadb

import (
	"github.com/holdfast-go/holdfast/internal/dialect"
	"github.com/holdfast-go/holdfast/internal/dialect/mysql"
)

var doctor = mysql.Doctor(
	mysql.Isolation("tx_isolation"),
	mysql.Replication(`SELECT variable_value FROM information_schema.global_status WHERE variable_name = 'SLAVES_RUNNING'`),
	dialect.Value("idle transactions of MariaDB", `SELECT CAST(@@SESSION.idle_transaction_timeout AS CHAR)`, dialect.Warning, "set idle_transaction_timeout to less than your callers' patience, such as 30",
		dialect.Is("a transaction may idle for ever: a process that is stopped in one keeps its rows locked", "0")),
	dialect.Value("Galera", `SELECT COUNT(*) FROM information_schema.global_status WHERE variable_name = 'WSREP_READY' AND variable_value = 'ON'`, dialect.Warning,
		"send all writers to one node; leases, records and versioned updates are certified at COMMIT on any node, row locks are not",
		dialect.Is("this is a node of a Galera cluster: row locks (FOR UPDATE, LockTx) hold on their own node only", "1")),
)
