package tidb

import (
	"github.com/holdfast-go/holdfast/internal/dialect"
	"github.com/holdfast-go/holdfast/internal/dialect/mysql"
)

var doctor = dialect.Doctor{
	Session: mysql.Dialect.Doctor.Session,
	Indexes: mysql.Dialect.Doctor.Indexes,
	Probes: []dialect.Probe{
		mysql.Isolation("transaction_isolation"),
		mysql.IdleTransactions,
		dialect.Value("TiDB clocks", `SELECT CAST(COUNT(*) AS CHAR) FROM information_schema.cluster_info WHERE type = 'tidb'`, dialect.Notice,
			"keep the servers' clocks together (NTP), and give sqllock.Options.Margin more than they differ by",
			func(n string) string {
				if n == "1" || n == "0" {
					return ""
				}
				return "this cluster has " + n + " TiDB servers: each has a clock of its own, by which leases expire, and only this one's was looked at"
			}),
	},
}
