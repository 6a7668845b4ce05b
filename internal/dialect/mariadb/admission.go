package mariadb

import (
	"slices"
	"strings"

	"github.com/holdfast-go/holdfast/internal/dialect"
	"github.com/holdfast-go/holdfast/internal/dialect/mysql"
)

// floor is the oldest version with SKIP LOCKED. tested lists the versions that the test runs
// name.
const floor = "10.6"

var tested = []string{"10.11", "11.8"}

var admission = dialect.Admission{
	Banner:   func(version string) bool { return strings.Contains(version, "MariaDB") },
	Facts:    mysql.Facts("information_schema.session_variables", "check_constraint_checks", "system_versioning_asof", "skip_replication", "wsrep_dirty_reads"),
	More:     mysql.ReadClockAgain,
	Versions: dialect.Versions{Product: "MariaDB", Tested: tested, Floor: floor, Untested: "others from " + floor + " on; MariaDB Enterprise, RDS, Azure"},
	Identify: identify,
	Rules: slices.Concat(mysql.Rules, []dialect.Rule{
		mysql.MariaDBIsolation,
		dialect.Rule{
			Name: "sql_safe_updates", Breaks: "the renewal of leases is refused (1175), so each is lost at its first TTL (G1)",
			Remedy: "set sql_safe_updates = 0",
		}.Value("sql_safe_updates", "ON", "1"),
		dialect.Rule{
			Name: "check_constraint_checks", Breaks: "the server does not check the constraints of a table, such as the one that keeps a limit (G4)",
			Remedy: "set check_constraint_checks = ON",
		}.Value("check_constraint_checks", "OFF", "0"),
		{
			Name: "system_versioning_asof", Setting: "system_versioning_asof", Refused: "anything but DEFAULT",
			Breaks: "reads of a versioned table are of the past, so that a business row which exists is missing (G4)", Remedy: "set system_versioning_asof = DEFAULT",
			Judge: func(f dialect.Facts) string {
				if v := f["system_versioning_asof"]; v != "" && !strings.EqualFold(v, "DEFAULT") {
					return v
				}
				return ""
			},
		},
		dialect.Rule{
			Name: "skip_replication", Breaks: "replicas may leave out what is claimed, and it is forgotten in a failover (G3, G4)", Remedy: "take skip_replication out of the DSN",
		}.Value("skip_replication", "ON", "1"),
		dialect.Rule{
			Name: "wsrep_dirty_reads", Breaks: "a node that has lost its cluster answers, and what it answers is out of date (G1, G4)",
			Remedy: "set wsrep_dirty_reads = OFF",
		}.Value("wsrep_dirty_reads", "ON", "1"),
		{
			Name: "wsrep_on", Setting: "wsrep_on", Refused: "OFF, on a node of a Galera cluster",
			Breaks: "what this session writes stays on this node (G1, G4)", Remedy: "take wsrep_on out of the DSN or the server's settings",
			Judge: func(f dialect.Facts) string {
				if isGalera(f) && !f.On("wsrep_on") {
					return f["wsrep_on"]
				}
				return ""
			},
		},
		{
			Name: "Galera", Setting: "wsrep_provider", Breaks: "a lock does not reach the other nodes, and what they committed may not have arrived (G1, G2, G4)",
			Neutral:    "statements carry wsrep_sync_wait = 7, a guard writes; row locks are refused without Options.SingleWriter",
			Neutralise: galera, Fixed: true,
		},
	}),
	Kind:   mysql.Kind,
	Table:  mysql.Table,
	Shape:  mysql.Shape,
	Golden: mysql.Dialect.Admission.Golden,
	Lines:  mysql.Lines,
}

func identify(f dialect.Facts) dialect.Identity {
	if other, ok := dialect.LookAlikeIn(f["version"], f["version_comment"]); ok {
		return other
	}
	return mysql.Version(f, mysql.Vendor(f, "MariaDB"), tested, floor)
}
