// Package tidb is the dialect of TiDB. It is the dialect of MySQL with changes: TiDB skips no locked
// row, has no shared row lock, and no triggers.
package tidb

import (
	"database/sql"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/internal/dialect"
	"github.com/holdfast-go/holdfast/internal/dialect/mysql"
)

// Dialect is the dialect of TiDB.
var Dialect = func() dialect.Dialect {
	d := mysql.Plain(mysql.Dialect, true)
	d.Name = "tidb"
	d.Single = mysql.Single
	// There is no READ UNCOMMITTED.
	d.Capabilities.DetectsInProgress = false
	d.Records.PeekBefore = ""
	d.Sweep.Isolation = sql.LevelDefault
	d.Capabilities.Triggers, d.Capabilities.SharedGuards, d.Capabilities.NamesBlockers = false, false, false
	// FOR UPDATE SKIP LOCKED returns a locked row, and does not lock it.
	d.RowLocks.OneByOne = true
	// The snapshot of REPEATABLE READ is that of BEGIN, so it is older than every lock that was
	// waited for. The setting is for the next transaction only; a level that the caller asks for
	// replaces it.
	before := d.Fence.Setting.Before
	d.Fence.Setting.Before = func(lockTimeout time.Duration) string {
		return before(lockTimeout) + `, SESSION tx_isolation_one_shot = 'READ-COMMITTED'`
	}
	d.Audit = dialect.Audit{} // the table's key refuses a second row
	d.Doctor = doctor
	d.Prove = prove(d.Prove)
	d.Leases.Wake, d.Leases.Liveness = dialect.Wake{}, dialect.Liveness{} // named locks are not those of a MySQL server
	d.Privileges.WholeTables = true                                       // grants on columns are not checked
	d.Admission = admission
	d.Classify = classify
	d.RolledBack = rolledBack
	return d
}()

// classify adds TiDB's own errors: https://docs.pingcap.com/tidb/stable/error-codes.
func classify(err error) dialect.Class {
	switch dialect.MySQLNumber(err) {
	case 8002, 8022, 8028, 8141, 8147, 9007: // write conflicts, a changed schema, a failed assertion: the transaction was rolled back
		return dialect.Retry
	case 9004: // resolve lock timeout
		return dialect.Busy
	case 8121: // a privilege check that failed
		return dialect.Denied
	case 1105: // any error without its own number, such as those of the embedded store
		for _, end := range []string{"lock wait timeout", "pessimistic lock retry limit reached", "maximum statement execution time exceeded"} {
			if strings.HasSuffix(err.Error(), end) {
				return dialect.Busy
			}
		}
	}
	return mysql.Dialect.Classify(err)
}

func rolledBack(err error) bool {
	switch dialect.MySQLNumber(err) {
	case 8002, 8022, 8028, 8121, 8141, 8147, 9007:
		return true
	}
	return mysql.Dialect.RolledBack(err)
}
