package postgres

import (
	_ "embed"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/internal/dialect"
	"github.com/holdfast-go/holdfast/internal/options"
)

//go:embed shape.txt
var golden string

// floor is the oldest supported major version, and tested lists the major versions that the
// test runs name.
const floor = 13

var tested = []int{13, 14, 15, 16, 17, 18}

// vendors maps a prefix of settings that only one vendor's server has to the product name.
var vendors = []struct{ setting, name string }{
	{"alloydb.", "AlloyDB"},
	{"cloudsql.", "Cloud SQL for PostgreSQL"},
	{"neon.", "Neon"},
	{"azure.", "Azure Database for PostgreSQL"},
	{"polar", "PolarDB for PostgreSQL"},
	{"edb_", "EDB Postgres Advanced Server"},
	{"rds.", "RDS for PostgreSQL"},
}

// community matches the version text of the community's server as distributions package it.
var community = regexp.MustCompile(`^PostgreSQL (\d+)(\.\d+|beta\d+|rc\d+|devel)?( \([^)]*\))? on `)

var admission = dialect.Admission{
	Banner: func(version string) bool { return strings.Contains(version, "PostgreSQL") },
	// VALUES is planned in a quarter of the time that UNION ALL takes.
	Facts: `SELECT f.name, f.value FROM (VALUES
 ('default_transaction_read_only', pg_catalog.current_setting('default_transaction_read_only')),
 ('session_replication_role', pg_catalog.current_setting('session_replication_role')),
 ('client_encoding', pg_catalog.current_setting('client_encoding')),
 ('server_encoding', pg_catalog.current_setting('server_encoding')),
 ('bytea_output', pg_catalog.current_setting('bytea_output')),
 ('zero_damaged_pages', pg_catalog.current_setting('zero_damaged_pages')),
 ('ignore_checksum_failure', pg_catalog.current_setting('ignore_checksum_failure')),
 ('server_version_num', pg_catalog.current_setting('server_version_num')),
 ('version', pg_catalog.version()),
 ('deadlock_timeout', (pg_catalog.date_part('epoch', pg_catalog.current_setting('deadlock_timeout')::pg_catalog.interval) * 1000)::pg_catalog.int8::pg_catalog.text),
 ('in_recovery', pg_catalog.pg_is_in_recovery()::pg_catalog.text),
 ('schema', COALESCE(pg_catalog.current_schema()::pg_catalog.text, '')),
 ('path', pg_catalog.array_to_string(pg_catalog.current_schemas(true), ',')),
 ('aurora', COALESCE(pg_catalog.to_regproc('pg_catalog.aurora_version')::pg_catalog.text, '')),
 ('extension', COALESCE((SELECT pg_catalog.string_agg(extname::pg_catalog.text, ',') FROM pg_catalog.pg_extension WHERE extname IN ('citus', 'bdr', 'spock', 'pglogical')), ''))
) AS f(name, value)`,
	// This reads every setting, which takes longer than all of the above.
	Vendor:   ` UNION ALL SELECT '` + dialect.FactVendor + `', COALESCE((SELECT pg_catalog.min(name) FROM pg_catalog.pg_settings WHERE name ~ '^(alloydb[.]|cloudsql[.]|neon[.]|azure[.]|polar|edb_|rds[.])'), '')`,
	Versions: dialect.Versions{Product: "PostgreSQL", Tested: []string{"13", "14", "15", "16", "17", "18"}, Floor: "13", Untested: "later ones; Aurora PostgreSQL, AlloyDB, Cloud SQL, RDS, Azure, Neon"},
	Identify: identify,
	Rules:    rules,
	// A table counts as unlogged if any of its partitions is.
	Kind: `SELECT n.nspname::pg_catalog.text, CASE WHEN c.relkind NOT IN ('r', 'p') THEN 'kind ' || c.relkind::pg_catalog.text
 WHEN c.relpersistence = 't' THEN 'temporary' WHEN c.relpersistence = 'u' THEN 'unlogged'
 WHEN c.relkind = 'r' AND EXISTS (SELECT 1 FROM pg_catalog.pg_inherits i WHERE i.inhparent = c.oid) THEN 'inherited'
 WHEN c.relkind = 'p' AND EXISTS (SELECT 1 FROM pg_catalog.pg_partition_tree(c.oid) t JOIN pg_catalog.pg_class p ON p.oid = t.relid WHERE p.relpersistence <> 'p') THEN 'unlogged'
 ELSE 'table' END
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = $1::pg_catalog.text AND c.relname = $2::pg_catalog.text`,
	Table:  table,
	Shape:  shape,
	Golden: golden,
	Lines:  lines,
}

func identify(f dialect.Facts) dialect.Identity {
	if other, ok := dialect.LookAlikeIn(f["version"], f["extension"]); ok {
		return other
	}
	name, banner := "PostgreSQL", community.FindStringSubmatch(f["version"])
	for _, v := range slices.Backward(vendors) {
		if strings.HasPrefix(f[dialect.FactVendor], v.setting) {
			name = v.name
		}
	}
	switch {
	case f["aurora"] != "":
		name = "Aurora PostgreSQL"
	case name == "PostgreSQL" && banner == nil:
		name = "relative of PostgreSQL"
	}
	var major int
	_, _ = fmt.Sscan(f["server_version_num"], &major)
	major /= 10000
	is := dialect.Identity{Product: fmt.Sprintf("%s %d", name, major), Standing: dialect.Untested}
	switch {
	case major < floor:
		return dialect.TooOld(is.Product, fmt.Sprint("PostgreSQL ", floor))
	case name == "PostgreSQL" && slices.Contains(tested, major):
		is.Standing = dialect.Tested
	}
	return is
}

var rules = []dialect.Rule{
	dialect.Rule{
		Name: "standby", Setting: "pg_is_in_recovery()", Breaks: "this server is a standby: it takes no writes, and what it answers may be out of date (G4)",
		Remedy: "connect to the primary, for instance with target_session_attrs=read-write",
	}.Value("in_recovery", "true"),
	dialect.Rule{
		Name: dialect.RuleReadOnly, Breaks: "transactions begin read-only: this is a role for reading, or a replica, and nothing can be claimed (G4)",
		Remedy: "take default_transaction_read_only off for this role",
	}.Value("default_transaction_read_only", "on"),
	dialect.Rule{
		Name: "triggers", Breaks: "triggers and foreign keys do not fire, so that Enforce is passed by every update of the session (G7)",
		Remedy: "set session_replication_role = origin",
	}.Value("session_replication_role", "replica"),
	dialect.Rule{
		Name: "bytea_output", Breaks: "pgx does not read that form with the simple protocol, so that neither a record nor a lease can be read",
		Remedy: "set bytea_output = hex, the default",
	}.Value("bytea_output", "escape"),
	{
		Name: "damaged pages", Setting: "zero_damaged_pages, ignore_checksum_failure", Refused: "on",
		Breaks: "a damaged page reads as empty or as it is, so that a record that is stored is missing, and its key is executed again (G4)",
		Remedy: "take the setting out of the DSN and of ALTER ROLE ... SET, and restore the damaged table",
		Judge: func(f dialect.Facts) string {
			for _, name := range []string{"zero_damaged_pages", "ignore_checksum_failure"} {
				if f.On(name) {
					return name + " on"
				}
			}
			return ""
		},
	},
	{
		Name: "client_encoding", Setting: "client_encoding", Refused: "anything but UTF8",
		Breaks: "the session takes the bytes of a Go string for other characters, so that one owner, key or lock is two: a key is executed again, and a lease has two holders (G1, G4, G8)",
		Remedy: "add client_encoding=UTF8 to the DSN, and take another one out of ALTER ROLE and ALTER DATABASE ... SET",
		Judge: func(f dialect.Facts) string {
			if e := f["client_encoding"]; e != "" && e != "UTF8" {
				return e
			}
			return ""
		},
	},
	dialect.Rule{
		Name: "server_encoding", Refused: "EUC_CN, EUC_JP, EUC_JIS_2004, EUC_KR, EUC_TW, JOHAB, MULE_INTERNAL",
		Breaks: "the database stores two characters as one, so that two keys are one (G4, G8)", Remedy: "use a database with ENCODING 'UTF8'",
	}.Value("server_encoding", "EUC_CN", "EUC_JP", "EUC_JIS_2004", "EUC_KR", "EUC_TW", "JOHAB", "MULE_INTERNAL"),
	{
		Name: "search_path", Setting: "search_path", Refused: "a schema before pg_catalog",
		Breaks: "operators come from a schema that others may write to, so that a comparison of keys may be theirs (G4, G8)",
		Remedy: "take pg_catalog out of search_path: it comes first by itself",
		Judge: func(f dialect.Facts) string {
			for schema := range strings.SplitSeq(f["path"], ",") {
				if schema == "pg_catalog" {
					return ""
				}
				if !strings.HasPrefix(schema, "pg_temp") {
					return f["path"]
				}
			}
			return ""
		},
	},
	{
		Name: dialect.RuleNames, Setting: "search_path, temporary tables", Breaks: "a pooled connection with another path, or a temporary table, hides Holdfast's tables, so that a key is executed again (G4)",
		Neutral:    "the schema is fixed when the database is opened, and each name in a statement is qualified, functions and types too",
		Neutralise: func(d *dialect.Dialect, _ dialect.Facts) { d.Qualify = qualify },
	},
	{
		Name: "deadlock_timeout", Setting: "deadlock_timeout",
		Breaks:     "all transactions of a deadlock give up at the same time, and meet again, instead of the one that the server chooses",
		Neutral:    "the default of LockTimeout is two seconds longer",
		Neutralise: outlastDeadlocks,
	},
	{
		Name: "several writers", Setting: "extensions bdr, spock, pglogical", Refused: "installed, without Options.SingleWriter",
		Breaks: "other nodes write to the same tables, and neither locks nor unique keys reach them (G1, G4)",
		Remedy: "send the writes of all programs to one node, and declare that with holdfast.Options{SingleWriter: true}",
		Judge:  func(f dialect.Facts) string { return f["extension"] }, SingleWriter: true,
	},
}

// outlastDeadlocks makes the default lock timeout longer than the server waits before it looks for a
// deadlock, by as much as a look may be late.
func outlastDeadlocks(d *dialect.Dialect, f dialect.Facts) {
	ms, err := strconv.ParseInt(f["deadlock_timeout"], 10, 64)
	if err == nil {
		d.LockTimeout = min(time.Duration(ms)*time.Millisecond+2*time.Second, options.LockTimeout.Most)
	}
}

// table refuses a user's table on which a promise does not hold.
func table(kind []string) *dialect.Finding {
	r := dialect.Finding{Check: "table", Setting: "table", Value: kind[1]}
	switch kind[1] {
	case "table":
		return nil
	case "unlogged":
		r.Breaks, r.Remedy = "a crash of the server empties it, and with it the records (G4)", "ALTER TABLE ... SET LOGGED"
	case "temporary":
		r.Breaks, r.Remedy = "other sessions do not see it (G4)", "create it as a table"
	case "inherited":
		r.Value = "a parent of inherited tables"
		r.Breaks, r.Remedy = "its unique keys and triggers do not hold for the rows of its children, so that one key may have two rows (G4, G7)", "partition it, or use the child that has the rows"
	default:
		r.Breaks, r.Remedy = "it is a view, a foreign table or something else whose rows cannot be locked (G2, G7)", "name the table itself"
	}
	return &r
}

// shape reads the kinds, columns, unique keys and triggers of tables: see mysql.Shape. NOT
// VALID indexes count as missing.
const lines = `SELECT '', 'line', product, CASE WHEN proven_at IS NULL THEN ({now} - seen_at)::pg_catalog.text ELSE '` + dialect.LineProven + `' END FROM {servers}`

const shape = `WITH own AS (SELECT c.oid, c.relname::pg_catalog.text AS name, c.relkind, c.relpersistence, c.relowner, c.relrowsecurity, c.relforcerowsecurity
 FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
 WHERE n.nspname = $1::pg_catalog.text AND c.relname = ANY (pg_catalog.string_to_array($2::pg_catalog.text, ',')))
SELECT name, 'kind', CASE WHEN relkind <> 'r' THEN 'relkind:' || relkind::pg_catalog.text WHEN relpersistence <> 'p' THEN 'unlogged' ELSE 'table' END, pg_catalog.pg_get_userbyid(relowner)::pg_catalog.text FROM own
UNION ALL SELECT name, 'column', a.attname::pg_catalog.text, t.typname::pg_catalog.text || CASE WHEN a.attnotnull THEN ' not null' ELSE '' END
 FROM own JOIN pg_catalog.pg_attribute a ON a.attrelid = own.oid JOIN pg_catalog.pg_type t ON t.oid = a.atttypid WHERE a.attnum > 0 AND NOT a.attisdropped
UNION ALL SELECT name, 'unique', x.relname::pg_catalog.text, pg_catalog.lpad(k.n::pg_catalog.text, 2, '0') || ' ' || COALESCE(a.attname::pg_catalog.text, 'expression')
  || CASE WHEN i.indpred IS NULL AND i.indimmediate THEN '' ELSE ' partial' END
 FROM own JOIN pg_catalog.pg_index i ON i.indrelid = own.oid AND i.indisunique AND i.indisvalid AND i.indisready JOIN pg_catalog.pg_class x ON x.oid = i.indexrelid
 JOIN pg_catalog.generate_series(1, 32) AS k(n) ON k.n <= i.indnkeyatts LEFT JOIN pg_catalog.pg_attribute a ON a.attrelid = own.oid AND a.attnum = i.indkey[k.n - 1]
UNION ALL SELECT name, 'trigger', t.tgname::pg_catalog.text, '' FROM own JOIN pg_catalog.pg_trigger t ON t.tgrelid = own.oid WHERE NOT t.tgisinternal
UNION ALL SELECT name, 'rule', r.rulename::pg_catalog.text, '' FROM own JOIN pg_catalog.pg_rewrite r ON r.ev_class = own.oid
UNION ALL SELECT name, 'row level security', '', '' FROM own WHERE relrowsecurity AND ` + foreignPolicies + `
UNION ALL SELECT name, 'inherited by', i.inhrelid::pg_catalog.text, '' FROM own JOIN pg_catalog.pg_inherits i ON i.inhparent = own.oid
UNION ALL SELECT name, 'subscription', s.srsubid::pg_catalog.text, '' FROM own JOIN pg_catalog.pg_subscription_rel s ON s.srrelid = own.oid`
