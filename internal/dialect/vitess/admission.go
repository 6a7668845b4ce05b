package vitess

import (
	"slices"
	"strings"

	"github.com/holdfast-go/holdfast/internal/dialect"
	"github.com/holdfast-go/holdfast/internal/dialect/mysql"
)

const floor = "24.0"

var tested = []string{"24.0"}

var admission = dialect.Admission{
	Banner: func(version string) bool { return strings.Contains(version, "Vitess") },
	// The router answers for its own variables, and asks a shard for the others.
	Facts: `SELECT 'version', @@version UNION ALL SELECT 'version_comment', @@version_comment UNION ALL SELECT 'autocommit', CAST(@@autocommit AS CHAR)
UNION ALL SELECT 'transaction_mode', @@transaction_mode UNION ALL SELECT 'workload', @@workload
UNION ALL SELECT 'transaction_isolation', @@transaction_isolation UNION ALL SELECT 'sql_mode', @@sql_mode UNION ALL SELECT 'unique_checks', CAST(@@unique_checks AS CHAR)
UNION ALL SELECT 'character_set_client', @@character_set_client LIMIT 1000`,
	Prepared: `SET @holdfast_prepared = ?`,
	// In a UNION it is the name of a shard's database.
	More:     func(dialect.Facts) string { return `SELECT 'schema', DATABASE()` },
	Versions: dialect.Versions{Tested: tested, Floor: floor, Untested: "later ones; PlanetScale"},
	Identify: identify,
	Rules: slices.Concat(mysql.Rules, []dialect.Rule{
		{
			Name: "transaction_mode", Setting: "transaction_mode", Refused: "anything but SINGLE",
			Breaks: "a transaction that touches two shards commits on one and then on the other, so that a claim may stand without its effect (G4)",
			Remedy: "start vtgate with --transaction-mode SINGLE, or add transaction_mode='SINGLE' to the DSN",
			Judge: func(f dialect.Facts) string {
				if mode := f["transaction_mode"]; !strings.EqualFold(mode, "SINGLE") {
					return mode + " "
				}
				return ""
			},
		},
		{
			Name: "prepared statements", Setting: "interpolateParams", Refused: "off",
			Breaks: "the router asks any shard about the columns of a prepared statement, which then belongs to the transaction, so that it is refused (VT 1317, multi-db transaction)",
			Remedy: "add interpolateParams=true to the DSN",
			Judge:  func(f dialect.Facts) string { return f[dialect.FactPrepared] },
		},
		{
			Name: "workload", Setting: "workload", Refused: "anything but OLTP",
			Breaks: "there are no transactions (G4)", Remedy: "take workload out of the DSN",
			Judge: func(f dialect.Facts) string {
				if w := f["workload"]; !strings.EqualFold(w, "OLTP") {
					return w + " "
				}
				return ""
			},
		},
		dialect.Rule{
			Name: "transaction_isolation", Breaks: "a result is replayed that is rolled back later (G4)",
			Remedy: "take transaction_isolation out of the DSN",
		}.Value("transaction_isolation", "READ-UNCOMMITTED"),
		{
			Name: "target", Setting: "DATABASE()", Refused: "a replica's",
			Breaks: "reads are of the past, and nothing can be claimed (G4)", Remedy: "name the keyspace alone in the DSN, without @replica",
			Judge: func(f dialect.Facts) string {
				if _, tablet, there := strings.Cut(f["schema"], "@"); there && tablet != "primary" {
					return f["schema"]
				}
				return ""
			},
		},
	}),
	Kind:   mysql.Kind,
	Table:  mysql.Table,
	Shape:  mysql.Shape,
	Golden: mysql.Dialect.Admission.Golden,
}

// identify takes Vitess's own version, which is in the comment: "Version: 24.0.0 (Git ...".
func identify(f dialect.Facts) dialect.Identity {
	_, own, _ := strings.Cut(f["version_comment"], "Version: ")
	return mysql.Version(dialect.Facts{"version": own}, "Vitess", tested, floor)
}
