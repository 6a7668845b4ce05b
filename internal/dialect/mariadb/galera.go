package mariadb

import (
	"errors"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/internal/dialect"
)

// wsrep reads a variable that servers built without replication do not have.
func wsrep(variable string) string {
	return `COALESCE((SELECT variable_value FROM information_schema.session_variables WHERE variable_name = '` + variable + `'), '')`
}

// isGalera judges the row of Settings.
func isGalera(row []string) bool { return row[4] != "" && row[4] != "none" }

// checkSettings adds to MySQL's what a node of Galera's has to have.
func checkSettings(common func(row []string) error) func(row []string) error {
	return func(row []string) error {
		if isGalera(row) && row[3] != "ON" {
			return errors.New("the session has wsrep_on off, and this is a node of a Galera cluster: what it writes stays on this node; take wsrep_on out of the DSN or the server's settings")
		}
		return common(row)
	}
}

// galera makes d the dialect of a node of a Galera cluster. A transaction runs
// on its node alone, and the cluster decides at COMMIT whether another one wrote
// the same rows first: then it is a deadlock (1213), there or at any statement
// before. Locks do not reach the other nodes, and what they have committed may
// not have arrived.
func galera(d *dialect.Dialect, row []string) {
	if !isGalera(row) {
		return
	}
	d.Capabilities.MultiPrimary = true
	// Reads, updates and inserts first wait for what was committed before; in a
	// transaction, its BEGIN does. A lock's row is otherwise seen as it was.
	d.Prefix = `SET STATEMENT wsrep_sync_wait = 7 FOR `
	setting := &d.Fence.Setting
	before := setting.Before
	setting.Before = func(lockTimeout time.Duration) string {
		return before(lockTimeout) + `, @holdfast_sync_wait = @@SESSION.wsrep_sync_wait, SESSION wsrep_sync_wait = 7`
	}
	setting.After += `, SESSION wsrep_sync_wait = @holdfast_sync_wait`

	// Of two transactions on two nodes that write a row one is refused, so a
	// guard writes. A later expiry by a microsecond harms nobody, as the holder
	// reckons with an earlier one. Read first, for the write would make the
	// transaction's snapshot as new as itself.
	share := func(guard string) string { return strings.Replace(guard, " LOCK IN SHARE MODE", " FOR UPDATE", 1) }
	d.Leases.Guard, d.Claims.Guard = share(d.Leases.Guard), share(d.Claims.Guard)
	d.Leases.GuardWrite = `UPDATE {locks} SET expires_at = expires_at + 1 WHERE name = $1 AND token = $2`
	d.Claims.GuardWrite = `UPDATE {claims} SET expires_at = expires_at + 1 WHERE name = $1 AND token = $2`
}
