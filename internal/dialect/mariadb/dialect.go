// Package mariadb is the dialect of MariaDB. It is the dialect of MySQL with changes.
package mariadb

import (
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/internal/dialect"
	"github.com/holdfast-go/holdfast/internal/dialect/mysql"
)

// Dialect is the dialect of MariaDB.
var Dialect = func() dialect.Dialect {
	d := mysql.Dialect
	d.Name = "mariadb"
	d.Rows = mysql.Rows(exact)
	d.Doctor = doctor
	d.Prove = prove(d.Prove)
	d.Leases = leases(d.Leases)
	d.Enforce = enforce(d.Enforce)
	d.RowLocks = rowLocks(d.RowLocks)
	d.Admission = admission
	d.Fence.Kept = mysql.MariaDBKept
	// Unlike the end of a lock wait, that of a statement's time leaves the transaction, for any value of
	// innodb_rollback_on_timeout.
	d.Records.ClaimWithin = func(claim string, wait time.Duration) string {
		if wait < time.Second {
			return `SET STATEMENT innodb_lock_wait_timeout = 0 FOR ` + claim
		}
		return bounded(wait) + claim
	}
	d.Records.WaitEnds = ""
	d.Records.Bound.Before = func(wait time.Duration) string {
		if wait < time.Second { // MariaDB accepts 0, which means no wait
			wait = 0
		}
		return mysql.LockWait("@holdfast_claim_wait", wait)
	}
	return d
}()

func exact(typ, collation string) (bool, string) {
	return mysql.Exact(typ, collation, strings.HasSuffix(collation, "_nopad_bin"), "utf8mb4_nopad_bin")
}
