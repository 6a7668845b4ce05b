package tidb

import (
	"slices"
	"strings"

	"github.com/holdfast-go/holdfast/internal/dialect"
	"github.com/holdfast-go/holdfast/internal/dialect/mysql"
)

// floor is the oldest version with savepoints, user locks and a check of unique keys at each
// statement of a pessimistic transaction.
const floor = "6.5"

var tested = []string{"8.4"}

var admission = dialect.Admission{
	Banner: func(version string) bool { return strings.Contains(version, "TiDB") },
	Facts: mysql.Facts("information_schema.session_variables", "tidb_txn_mode", "tidb_constraint_check_in_place_pessimistic", "tidb_skip_isolation_level_check",
		"tidb_read_staleness", "tidb_snapshot", "tidb_low_resolution_tso", "tidb_dml_type", "tidb_super_read_only", "tidb_restricted_read_only"),
	More:     mysql.ReadClockAgain,
	Versions: dialect.Versions{Tested: tested, Floor: floor, Untested: "others from " + floor + "; TiDB Cloud"},
	Identify: identify,
	Rules: slices.Concat(mysql.Rules, []dialect.Rule{
		{
			Name: "tidb_txn_mode", Setting: "tidb_txn_mode", Refused: "anything but pessimistic",
			Breaks: "FOR UPDATE waits for nothing and a statement does not see who was first: a row lock and a guard are held by two until one fails at COMMIT (G2, G7)",
			Remedy: "set tidb_txn_mode = 'pessimistic', the default",
			Judge: func(f dialect.Facts) string {
				if mode := f["tidb_txn_mode"]; !strings.EqualFold(mode, "pessimistic") {
					return mode + " (" + f["version"] + ")"
				}
				return ""
			},
		},
		dialect.Rule{
			Name: "tidb_constraint_check_in_place_pessimistic", Breaks: "a key that is taken is found at COMMIT only, after the function has run (G4)",
			Remedy: "set tidb_constraint_check_in_place_pessimistic = ON, the default",
		}.Value("tidb_constraint_check_in_place_pessimistic", "OFF", "0"),
		dialect.Rule{
			Name: "tidb_skip_isolation_level_check", Breaks: "a transaction that asks for SERIALIZABLE gets less, without an error (G5)",
			Remedy: "set tidb_skip_isolation_level_check = OFF, the default",
		}.Value("tidb_skip_isolation_level_check", "ON", "1"),
		{
			Name: "stale reads", Setting: "tidb_read_staleness, tidb_snapshot, tidb_low_resolution_tso", Refused: "set",
			Breaks: "reads are of the past: a lease that is held looks free, and a record that exists is missing (G1, G4)", Remedy: "take the setting out of the DSN and the server's settings",
			Judge: func(f dialect.Facts) string {
				for _, name := range []string{"tidb_read_staleness", "tidb_snapshot", "tidb_low_resolution_tso"} {
					if v := f[name]; v != "" && v != "0" && !strings.EqualFold(v, "OFF") {
						return name + " " + v
					}
				}
				return ""
			},
		},
		dialect.Rule{
			Name: "tidb_dml_type", Breaks: "a large write commits in parts (G4)", Remedy: "set tidb_dml_type = 'standard', the default",
		}.Value("tidb_dml_type", "bulk"),
		{
			Name: "TiDB read only", Setting: "tidb_super_read_only, tidb_restricted_read_only", Refused: "ON",
			Breaks: "this cluster takes no writes (G4)", Remedy: "connect to the cluster that takes writes",
			Judge: func(f dialect.Facts) string {
				for _, name := range []string{"tidb_super_read_only", "tidb_restricted_read_only"} {
					if f.On(name) {
						return name + " " + f[name]
					}
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

// identify takes TiDB's own version, which follows the version of MySQL that the server names:
// 8.0.11-TiDB-v8.4.0.
func identify(f dialect.Facts) dialect.Identity {
	if other, ok := dialect.LookAlikeIn(f["version"], f["version_comment"]); ok {
		return other
	}
	_, own, _ := strings.Cut(f["version"], "TiDB-")
	return mysql.Version(dialect.Facts{"version": own}, "TiDB", tested, floor)
}
