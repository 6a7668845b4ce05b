package mysql

import (
	_ "embed"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/internal/dialect"
)

//go:embed shape.txt
var golden string

// floor is the oldest version with SKIP LOCKED. tested lists the versions that the test runs
// name.
const floor = "8.0"

var tested = []string{"9.7"}

// variables are the session variables that Facts reads, in addition to the clock.
const variables = `'autocommit', 'completion_type', 'read_only', 'super_read_only', 'innodb_read_only', 'transaction_read_only', 'tx_read_only',
 'sql_mode', 'transaction_isolation', 'tx_isolation', 'character_set_client', 'character_set_connection', 'character_set_results', 'log_bin', 'sql_log_bin', 'binlog_format', 'sql_safe_updates', 'unique_checks',
 'sql_select_limit', 'version', 'version_comment', 'basedir', 'aurora_version', 'dolt_version', 'wsrep_on', 'wsrep_provider',
 'group_replication_group_name', 'group_replication_single_primary_mode', 'group_replication_consistency'`

// Facts returns a query that reads the variables from a table, and two clocks: the session's
// clock, which SET TIMESTAMP stops, and the server's own clock. The server's clock comes from
// a UUID, which depends neither on the session nor on sysdate_is_now. more are further variables.
func Facts(table string, more ...string) string {
	names := variables
	if len(more) > 0 {
		names += `, '` + strings.Join(more, `', '`) + `'`
	}
	return `SELECT LOWER(variable_name), ` + text(`variable_value`) + ` FROM ` + table + ` WHERE variable_name IN (` + names + `)
UNION ALL SELECT 'clock', ` + text(sessionClock) + `
UNION ALL SELECT 'server clock', ` + text(serverClock) + `
UNION ALL SELECT 'answered', ` + text(`@@version_comment`) + `
UNION ALL SELECT 'schema', ` + text(`DATABASE()`) + ` LIMIT 1000` // overrides sql_select_limit
}

// The clocks, in µs since 1970. Without the LIMIT, MySQL would generate three UUIDs.
const (
	sessionClock = `TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))`
	serverClock  = `(SELECT CAST(CONV(CONCAT(SUBSTR(u, 16, 3), SUBSTR(u, 10, 4), SUBSTR(u, 1, 8)), 16, 10) AS SIGNED) DIV 10 - 12219292800000000 FROM (SELECT CAST(UUID() AS BINARY(36)) AS u LIMIT 1) AS fresh)`
)

// maxDelay is the longest accepted time between the start of a statement and its reading of
// the server's clock. After a longer delay the session's clock is read again.
const maxDelay = 100_000 // µs

// ReadClockAgain returns a query that reads the session's clock a second time, if the first
// reading does not prove that the clock runs. Otherwise it returns "".
func ReadClockAgain(f dialect.Facts) string {
	session, err1 := strconv.ParseInt(f["clock"], 10, 64)
	server, err2 := strconv.ParseInt(f["server clock"], 10, 64)
	delay := server - session
	if err1 != nil || err2 != nil || delay >= 0 && delay <= maxDelay && session%1_000_000 != 0 {
		return ""
	}
	return `SELECT 'clock again', ` + text(sessionClock)
}

// text converts expression to one collation, independent of the session's collations.
func text(expression string) string {
	return `COALESCE(CONVERT(` + expression + ` USING utf8mb4) COLLATE utf8mb4_bin, '')`
}

var admission = dialect.Admission{
	Banner:   func(version string) bool { return version != "" && version[0] >= '0' && version[0] <= '9' },
	Facts:    Facts("performance_schema.session_variables"),
	More:     more,
	Versions: dialect.Versions{Product: "MySQL", Tested: tested, Floor: floor, Untested: "8.0, 8.4 and others from " + floor + " on; Aurora MySQL, Cloud SQL, RDS, Azure, Percona Server"},
	Identify: identify,
	Rules: slices.Concat(Rules, []dialect.Rule{
		isolation("transaction_isolation", " FOR SHARE SKIP LOCKED"),
	}, group),
	Kind:   Kind,
	Table:  Table,
	Shape:  Shape,
	Golden: golden,
	Lines:  Lines,
}

func identify(f dialect.Facts) dialect.Identity {
	if other, ok := dialect.LookAlikeIn(f["version"], f["version_comment"]); ok {
		return other
	}
	if strings.Contains(f["version"]+f["version_comment"], "TiDB") {
		return dialect.Identity{Product: "TiDB", Standing: dialect.Unfit, Why: "its version() hides what it is, and MySQL's statements wait there without a bound: let version() name TiDB (the setting server-version)"}
	}
	if answered := f["answered"]; answered != "" && answered != f["version_comment"] {
		return dialect.Identity{Product: "router before MySQL", Standing: dialect.Unfit, Why: "it answers in the server's place (" + answered + "), and may send a transaction to several servers: if it is Vitess, let version() name it (the flag --mysql-server-version), and connect to a shard's MySQL itself, not to keyspace:shard"}
	}
	if _, is := f["dolt_version"]; is {
		other, _ := dialect.LookAlikeIn("Dolt")
		return other
	}
	if provider := f["wsrep_provider"]; provider != "" && provider != "none" {
		other, _ := dialect.LookAlikeIn("Percona XtraDB Cluster")
		return other
	}
	return Version(f, Vendor(f, "MySQL"), tested, floor)
}

// Vendor returns the product name, derived from what the vendors leave in the server's
// variables.
func Vendor(f dialect.Facts, engine string) string {
	version, comment := strings.ToLower(f["version"]), strings.ToLower(f["version_comment"])
	switch {
	case f["aurora_version"] != "":
		return "Aurora " + engine
	case strings.Contains(comment, "percona"):
		return "Percona Server"
	case strings.Contains(version, "google") || strings.Contains(comment, "google"):
		return "Cloud SQL for " + engine
	case strings.Contains(version, "azure") || strings.Contains(comment, "azure"):
		return "Azure Database for " + engine
	case strings.Contains(f["basedir"], "rdsdbbin"):
		return "RDS for " + engine
	case strings.Contains(version, "enterprise") && engine == "MariaDB":
		return "MariaDB Enterprise"
	}
	return engine
}

// Version returns the identity of product by its version. Only the engine's own product can be
// tested.
func Version(f dialect.Facts, product string, tested []string, floor string) dialect.Identity {
	version := strings.TrimPrefix(f["version"], "5.5.5-") // MariaDB adds this prefix to pass as MySQL
	major, minor, ok := dialect.Numbers(version)
	if !ok {
		return dialect.Identity{Product: product, Standing: dialect.Untested}
	}
	number := fmt.Sprintf("%d.%d", major, minor)
	is := dialect.Identity{Product: product + " " + number, Standing: dialect.Untested}
	lowMajor, lowMinor, _ := dialect.Numbers(floor)
	switch {
	case major < lowMajor || major == lowMajor && minor < lowMinor:
		return dialect.TooOld(is.Product, floor)
	case slices.Contains([]string{"MySQL", "MariaDB", "TiDB", "Vitess"}, product) && slices.Contains(tested, number):
		is.Standing = dialect.Tested
	}
	return is
}

// Rules apply to MySQL, MariaDB and TiDB.
var Rules = []dialect.Rule{
	dialect.Rule{
		Name: "autocommit", Breaks: "a single statement of Holdfast's has to commit by itself (G1, G4)",
		Remedy: "take autocommit=0 out of the DSN, init_connect or the server's settings",
	}.Value("autocommit", "OFF", "0"),
	dialect.Rule{
		Name: "completion_type", Breaks: "a COMMIT leaves another transaction open, so that a lease is granted in a transaction that is never committed, and then to a second holder (G1)",
		Remedy: "set completion_type = NO_CHAIN",
	}.Value("completion_type", "CHAIN", "RELEASE", "1", "2"),
	{
		Name: dialect.RuleReadOnly, Setting: "read_only, super_read_only, innodb_read_only, transaction_read_only, tx_read_only", Refused: "ON",
		Breaks: "this server, or this session, takes no writes (a replica?), and what it answers may be out of date (G4)",
		Remedy: "connect to the primary, as a user whose transactions may write",
		Judge: func(f dialect.Facts) string {
			for _, name := range []string{"read_only", "super_read_only", "innodb_read_only", "transaction_read_only", "tx_read_only"} {
				if f.On(name) || name == "read_only" && f[name] != "" && !strings.EqualFold(f[name], "OFF") {
					return name + " " + f[name]
				}
			}
			return ""
		},
	},
	{
		Name: "character set", Setting: "character_set_client, character_set_connection, character_set_results", Refused: "anything but utf8mb4",
		Breaks: "the session takes the bytes of a Go string for other characters, so that one owner, key or lock is two, or a key ends its text and becomes SQL (G1, G4, G8)",
		Remedy: "use charset=utf8mb4 in the DSN, and take another one out of init_connect and the server's settings",
		Judge: func(f dialect.Facts) string {
			for _, name := range []string{"character_set_client", "character_set_connection", "character_set_results"} {
				// A router may not say. Results in "" or binary come as they are stored.
				if v := f[name]; v != "" && !strings.EqualFold(v, "utf8mb4") && (name != "character_set_results" || !strings.EqualFold(v, "binary")) {
					return name + " " + v
				}
			}
			return ""
		},
	},
	{
		Name: "sql_mode", Setting: "sql_mode", Refused: "EMPTY_STRING_IS_NULL, SIMULTANEOUS_ASSIGNMENT, ORACLE",
		Breaks: "an empty owner cannot be stored, or an UPDATE does not assign from left to right, so that a lease is granted to two (G1)",
		Remedy: "take the mode out of sql_mode",
		Judge: func(f dialect.Facts) string {
			for mode := range strings.SplitSeq(f["sql_mode"], ",") {
				if mode == "EMPTY_STRING_IS_NULL" || mode == "SIMULTANEOUS_ASSIGNMENT" {
					return mode
				}
			}
			return ""
		},
	},
	{
		Name: "binlog_format", Setting: "binlog_format", Refused: "STATEMENT, with log_bin ON",
		Breaks: "InnoDB refuses to write at READ COMMITTED (1665), so no lease can be renewed, and each one is lost at its first TTL (G1)",
		Remedy: "set binlog_format = ROW",
		Judge: func(f dialect.Facts) string {
			if f.On("log_bin") && strings.EqualFold(f["binlog_format"], "STATEMENT") {
				return f["binlog_format"]
			}
			return ""
		},
	},
	{
		Name: "sql_log_bin", Setting: "sql_log_bin", Refused: "OFF, with log_bin ON",
		Breaks: "what is claimed is not replicated, and forgotten in a failover (G3, G4)",
		Remedy: "take sql_log_bin=0 out of the DSN",
		Judge: func(f dialect.Facts) string {
			if f.On("log_bin") && f["sql_log_bin"] != "" && !f.On("sql_log_bin") {
				return f["sql_log_bin"]
			}
			return ""
		},
	},
	dialect.Rule{
		Name: "unique_checks", Breaks: "InnoDB may leave out the check of a unique key, so that a business row is inserted twice (G4)",
		Remedy: "set unique_checks = 1",
	}.Value("unique_checks", "OFF", "0"),
	{
		Name: "sql_select_limit", Setting: "sql_select_limit", Refused: "less than 1,000,000",
		Breaks: "answers of more rows are cut without an error, so that leases which are there are taken for lost (G1)",
		Remedy: "set sql_select_limit = DEFAULT",
		Judge: func(f dialect.Facts) string {
			if v := f["sql_select_limit"]; v != "" && len(v) < 7 {
				return v
			}
			return ""
		},
	},
	{
		Name: "timestamp", Setting: "timestamp", Refused: "set, so that the session's clock stands still",
		Breaks: "the session's clock was set, and no lease expires by it, or all do (G1)",
		Remedy: "take timestamp out of the DSN and init_connect",
		Judge: func(f dialect.Facts) string {
			if again := f["clock again"]; again == "" || again != f["clock"] {
				return "" // the clock runs, even if the server is slow
			}
			at, _ := strconv.ParseInt(f["clock"], 10, 64)
			return time.UnixMicro(at).UTC().Format(time.RFC3339Nano) + ", and stands still"
		},
	},
}

// isolation returns the rule that refuses sessions at READ UNCOMMITTED. A program may change a session
// later: transactions of Holdfast's begin at READ COMMITTED or higher nevertheless, and a look at a record or a
// business row takes a shared lock and skips a locked row, so that it returns the last committed data.
func isolation(variable, share string) dialect.Rule {
	return dialect.Rule{
		Name: "read uncommitted", Setting: variable, Refused: "READ-UNCOMMITTED",
		Breaks: "a result, a verdict, a message or a register's value is read that is rolled back later (G4, G7)",
		Remedy: "set " + variable + " = 'READ-COMMITTED', or higher, for these sessions: a transaction of the program's may still have its own level",
		Judge: func(f dialect.Facts) string {
			if f[variable] == "READ-UNCOMMITTED" {
				return f[variable]
			}
			return ""
		},
		Neutralise: func(d *dialect.Dialect, _ dialect.Facts) {
			before := d.Fence.Setting.Before
			level := `SET @@` + variable + ` = ` + raised(variable) + `, `
			d.Fence.Setting.Before = func(lockTimeout time.Duration) string {
				return level + strings.TrimPrefix(before(lockTimeout), `SET `)
			}
			d.Committed = func(query string) string {
				return query + ` AND @@SESSION.` + variable + ` <> 'READ-UNCOMMITTED'
UNION ALL (` + query + ` AND @@SESSION.` + variable + ` = 'READ-UNCOMMITTED'` + share + `)`
			}
		},
	}
}

// raised is the session's level, and READ COMMITTED for READ UNCOMMITTED.
func raised(variable string) string {
	return `IF(@@SESSION.` + variable + ` = 'READ-UNCOMMITTED', 'READ-COMMITTED', @@SESSION.` + variable + `)`
}

// MariaDBIsolation is MariaDB's rule. The variable has its old name there.
var MariaDBIsolation = isolation("tx_isolation", " LOCK IN SHARE MODE SKIP LOCKED")

func more(f dialect.Facts) string {
	return strings.Join(slices.DeleteFunc([]string{ReadClockAgain(f), members(f)}, func(q string) bool { return q == "" }), " UNION ALL ")
}

// Kind reads the schema and the storage engine of a table.
const Kind = `SELECT table_schema, COALESCE(engine, table_type) FROM information_schema.tables
WHERE table_schema = COALESCE(NULLIF($1, ''), DATABASE()) AND table_name = $2`

// Table refuses a user's table that cannot roll back or lock rows.
func Table(kind []string) *dialect.Finding {
	if kind[1] == "InnoDB" {
		return nil
	}
	return &dialect.Finding{
		Check: "table", Value: kind[1], Setting: "storage engine",
		Breaks: "nothing in it rolls back, and no row of it can be locked (G2, G4, G7)", Remedy: "ALTER TABLE ... ENGINE=InnoDB",
	}
}

// Lines reads the version lines.
const Lines = `SELECT '', 'line', CONVERT(product USING utf8mb3), IF(proven_at IS NULL, CAST({now} - seen_at AS CHAR), '` + dialect.LineProven + `') FROM {servers}`

// Shape reads the kind, columns, unique keys and triggers of the tables in schema $1 whose
// names are in the list $2. Open compares the result with the golden text.
const Shape = `SELECT table_name, 'kind', COALESCE(engine, table_type), '' FROM information_schema.tables WHERE table_schema = $1 AND FIND_IN_SET(table_name, $2)
UNION ALL SELECT table_name, 'column', column_name, CONCAT(data_type, COALESCE(CONCAT('(', character_maximum_length, ')'), ''), IF(is_nullable = 'NO', ' not null', ''))
FROM information_schema.columns WHERE table_schema = $1 AND FIND_IN_SET(table_name, $2)
UNION ALL SELECT table_name, 'unique', index_name, CONCAT(LPAD(seq_in_index, 2, '0'), ' ', column_name, IF(sub_part IS NULL, '', ' prefix'))
FROM information_schema.statistics WHERE table_schema = $1 AND FIND_IN_SET(table_name, $2) AND non_unique = 0
UNION ALL SELECT event_object_table, 'trigger', trigger_name, '' FROM information_schema.triggers WHERE event_object_schema = $1 AND FIND_IN_SET(event_object_table, $2) LIMIT 10000`
