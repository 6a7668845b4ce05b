// Package mariadb is the dialect of MariaDB: MySQL's, with what differs.
package mariadb

import (
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/internal/dialect"
	"github.com/holdfast-go/holdfast/internal/dialect/mysql"
)

// Dialect is MariaDB's.
var Dialect = func() dialect.Dialect {
	d := mysql.Dialect
	d.Name = "mariadb"
	d.Rows = mysql.Rows(exact)
	d.Doctor = doctor
	d.Leases = leases(d.Leases)
	d.Enforce = enforce(d.Enforce)
	d.RowLocks = rowLocks(d.RowLocks)
	d.Settings = `SELECT @@SESSION.autocommit, @@GLOBAL.read_only, @@SESSION.sql_mode, ` + wsrep("wsrep_on") + `, ` + wsrep("wsrep_provider")
	d.CheckSettings = checkSettings(d.CheckSettings)
	d.Cluster = galera
	d.Records.Bound.Before = func(wait time.Duration) string {
		if wait < time.Second { // MariaDB takes 0: do not wait
			wait = 0
		}
		return mysql.LockWait("@holdfast_claim_wait", wait)
	}
	return d
}()

func exact(typ, collation string) (bool, string) {
	return mysql.Exact(typ, collation, strings.HasSuffix(collation, "_nopad_bin"), "utf8mb4_nopad_bin")
}
