package mariadb

import (
	"time"

	"github.com/holdfast-go/holdfast/internal/dialect"
	"github.com/holdfast-go/holdfast/internal/dialect/mysql"
)

// wsrep returns SQL that reads a variable, or ” on servers built without replication, which
// lack the variable.
func wsrep(variable string) string {
	return `COALESCE((SELECT variable_value FROM information_schema.session_variables WHERE variable_name = '` + variable + `'), '')`
}

// isGalera reports whether the server is a node of a Galera cluster.
func isGalera(f dialect.Facts) bool {
	return f["wsrep_provider"] != "" && f["wsrep_provider"] != "none"
}

// galera turns d into the dialect of a Galera node. A transaction runs on its node alone. At
// COMMIT the cluster decides whether another transaction wrote the same rows first. If so, the
// transaction fails with a deadlock (1213), at COMMIT or at an earlier statement. Locks do not
// reach the other nodes, and data that they committed may not have arrived yet.
func galera(d *dialect.Dialect, f dialect.Facts) {
	if !isGalera(f) {
		return
	}
	d.Capabilities.MultiPrimary, d.Capabilities.SharedGuards = true, false
	// Reads, updates and inserts wait until the data committed before them has arrived. In a
	// transaction, BEGIN waits. Otherwise a statement could see an old row of a lock.
	d.Prefix = `SET STATEMENT wsrep_sync_wait = 7 FOR `
	d.Fence.Kept, d.Fence.Survives, d.Fence.Ends = dialect.Setting{}, nil, nil // BEGIN waits for what the cluster has committed
	setting := &d.Fence.Setting
	before := setting.Before
	setting.Before = func(lockTimeout time.Duration) string {
		return before(lockTimeout) + `, @holdfast_sync_wait = @@SESSION.wsrep_sync_wait, SESSION wsrep_sync_wait = 7`
	}
	setting.After += `, SESSION wsrep_sync_wait = @holdfast_sync_wait`

	mysql.GuardByWrite(d)
}
