package postgres

import (
	"strconv"
	"strings"

	"github.com/holdfast-go/holdfast/internal/dialect"
)

// blocker is the columns of a session b that blocks another one.
var blocker = `b.pid::pg_catalog.text, COALESCE(b.usename::pg_catalog.text, ''),
 COALESCE(NULLIF(b.application_name, ''), pg_catalog.host(b.client_addr), ''), COALESCE(b.state, ''), ` + micros("b.xact_start")

// A prepared transaction x has no session: pg_blocking_pids gives 0 for it. It has a lock h, in a mode that may conflict, on what the
// session of the lock l waits for, and the lock t on its own id.
var (
	prepared   = `'0', COALESCE(x.owner::pg_catalog.text, ''), '', 'prepared transaction ' || pg_catalog.quote_literal(x.gid), ` + micros("x.prepared")
	ofPrepared = `JOIN pg_catalog.pg_locks t ON t.granted AND t.pid IS NULL AND t.locktype = 'transactionid'
JOIN pg_catalog.pg_prepared_xacts x ON x.transaction = t.transactionid
WHERE NOT l.granted AND 0 = ANY (pg_catalog.pg_blocking_pids(l.pid)) AND EXISTS (SELECT FROM pg_catalog.pg_locks h
 WHERE h.granted AND h.pid IS NULL AND h.virtualtransaction = t.virtualtransaction
 AND (h.locktype, h.database, h.relation, h.page, h.tuple, h.transactionid, h.classid, h.objid, h.objsubid)
 IS NOT DISTINCT FROM (l.locktype, l.database, l.relation, l.page, l.tuple, l.transactionid, l.classid, l.objid, l.objsubid)
 AND h.mode <> 'SIReadLock' AND (h.mode <> 'AccessShareLock' OR l.mode = 'AccessExclusiveLock')
 AND (h.mode <> 'RowShareLock' OR l.mode IN ('ExclusiveLock', 'AccessExclusiveLock')))`
)

var doctor = dialect.Doctor{
	// Every role may see in pg_locks that a session waits, and only with pg_monitor in pg_stat_activity.
	Blocked: `SELECT w.pid::pg_catalog.text, ` + micros("w.query_start") + `, ` + blocker + `
FROM (SELECT DISTINCT pid FROM pg_catalog.pg_locks WHERE NOT granted) l
JOIN pg_catalog.pg_stat_activity w ON w.pid = l.pid
CROSS JOIN LATERAL (SELECT DISTINCT p AS pid FROM pg_catalog.unnest(pg_catalog.pg_blocking_pids(l.pid)) p) x
JOIN pg_catalog.pg_stat_activity b ON b.pid = x.pid
WHERE w.datname = pg_catalog.current_database()
UNION SELECT w.pid::pg_catalog.text, ` + micros("w.query_start") + `, ` + prepared + `
FROM pg_catalog.pg_locks l JOIN pg_catalog.pg_stat_activity w ON w.pid = l.pid AND w.datname = pg_catalog.current_database()
` + ofPrepared + `
ORDER BY 2 DESC, 1, 3 LIMIT $1`,
	Blockers: `SELECT ` + blocker + ` FROM pg_catalog.pg_stat_activity b
WHERE b.pid = ANY (pg_catalog.pg_blocking_pids($1::pg_catalog.text::pg_catalog.int4))
UNION SELECT ` + prepared + ` FROM pg_catalog.pg_locks l ` + ofPrepared + ` AND l.pid = $1::pg_catalog.text::pg_catalog.int4 ORDER BY 5 DESC LIMIT 10`,
	Sizes: `SELECT c.relname::pg_catalog.text, GREATEST(c.reltuples, 0)::pg_catalog.int8, pg_catalog.pg_total_relation_size(c.oid)
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = COALESCE(NULLIF($1::pg_catalog.text, ''), pg_catalog.current_schema()) AND c.relkind = 'r' AND c.relname IN ({names}) ORDER BY 3 DESC, 1`,
	BlockedNeeds: "pg_monitor, to see the sessions of other roles",
	Session:      `SELECT pg_backend_pid()::text`,
	Indexes:      `SELECT indexname::text FROM pg_indexes WHERE schemaname = COALESCE(NULLIF($1::text, ''), current_schema()::text) AND tablename = $2::text`,
	Prefixed:     true,
	Probes: []dialect.Probe{
		dialect.Encryption(`SELECT COALESCE((SELECT CASE WHEN ssl THEN cipher END FROM pg_stat_ssl WHERE pid = pg_backend_pid()), ''), COALESCE(host(inet_client_addr()), '')`),
		dialect.Value("functions and row level security", passingFunctions, dialect.Broken, "make a role without SUPERUSER and BYPASSRLS the owner of the tables and the functions, and run holdfast migrate functions up as that role",
			func(names string) string {
				if names == "" {
					return ""
				}
				return "functions for clients run as a role that passes the policies of row level security, so that a client claims and finishes operations of every owner: " + names
			}),
		dialect.Value("fsync", `SELECT current_setting('fsync')`, dialect.Broken, "set fsync = on",
			dialect.Not("on", "fsync is off: a crash of the server may lose or tear what was committed")),
		dialect.Value("full_page_writes", `SELECT current_setting('full_page_writes')`, dialect.Broken, "set full_page_writes = on, unless the file system writes whole pages",
			dialect.Not("on", "full_page_writes is off: a crash of the machine may tear pages")),
		{
			Name: "synchronous_commit", Columns: 2, Judge: durable,
			Query: `SELECT current_setting('synchronous_commit'), current_setting('synchronous_standby_names')`,
		},
		dialect.Value("isolation", `SELECT current_setting('default_transaction_isolation')`, dialect.Notice, "expect ErrRetry where rows are contended, and let InTx run the transaction again",
			dialect.Is("transactions begin above READ COMMITTED: they read from a snapshot and fail with 40001 when a row has moved since", "repeatable read", "serializable")),
		dialect.Value("idle transactions", `SELECT current_setting('idle_in_transaction_session_timeout')`, dialect.Warning, "set idle_in_transaction_session_timeout to less than your callers' patience, such as 30s",
			dialect.Is("a transaction may idle for ever: a process that is stopped in one keeps its rows locked", "0")),
		dialect.Value("synchronous standbys", `SELECT count(*)::text FROM pg_settings WHERE name = 'synchronous_standby_names' AND setting = '' AND EXISTS (SELECT 1 FROM pg_stat_replication)`, dialect.Warning,
			"set synchronous_standby_names, and promote only a standby that it names", dialect.Is("there are standbys and none of them is synchronous: after a failover the last commits may be lost", "1")),
		dialect.Value("standby quorum", `SELECT current_setting('synchronous_standby_names')`, dialect.Warning,
			"promote only the standby whose pg_last_wal_receive_lsn() is the greatest, once none receives any more, or have a tool do so that knows which are synchronous", quorum),
		dialect.Value("standby wait", `SELECT current_setting('synchronous_standby_names')`, dialect.Notice,
			"call holdfastpgx.WatchNotices on the pool's configuration: such a commit is ErrUnknown then; through database/sql only with holdfastpgx.Connector and for Do, so cancel no session that waits for SyncRep", func(names string) string {
				if names == "" {
					return ""
				}
				return "when the wait for a synchronous standby is cancelled, the server answers COMMIT with success and a warning, and the commit may be lost in a failover"
			}),
	},
}

// durable judges synchronous_commit, which waits for the standbys of synchronous_standby_names at some of its levels only:
// https://www.postgresql.org/docs/18/runtime-config-wal.html#GUC-SYNCHRONOUS-COMMIT
func durable(row []string) (severity dialect.Severity, problem, advice string) {
	advice = "set synchronous_commit = on, at least for the role that Holdfast connects as"
	level, standbys := row[0], row[1] != ""
	switch {
	case level == "off":
		return dialect.Broken, "synchronous_commit is off: a commit is acknowledged before it is durable, so a crash of the server may forget a record that a client was told of", advice
	case level == "local" && standbys:
		return dialect.Broken, "synchronous_commit is local: a commit does not wait for the synchronous standbys, so a failover may forget a record that a client was told of", advice
	case level == "remote_write" && standbys:
		return dialect.Warning, "synchronous_commit is remote_write: a commit is acknowledged before a standby has it on its disk, so a crash of both machines may forget a record that a client was told of", advice
	}
	return 0, "", ""
}

// quorum judges synchronous_standby_names. If some of the named standbys may lack a commit,
// promoting one of them may lose the last commits.
func quorum(names string) string {
	if names == "" {
		return ""
	}
	needed, list := 1, names
	if head, inner, ok := strings.Cut(names, "("); ok {
		list = strings.TrimSuffix(strings.TrimSpace(inner), ")")
		if words := strings.Fields(head); len(words) > 0 {
			needed, _ = strconv.Atoi(words[len(words)-1])
		}
	}
	if named := strings.Split(list, ","); needed >= len(named) && !strings.Contains(list, "*") {
		return ""
	}
	return "synchronous_standby_names is " + names + ": a commit is acknowledged when " + strconv.Itoa(needed) + " of the standbys have it, so another one that is promoted may lack it"
}

// micros returns an expression for the microseconds since a moment.
func micros(since string) string {
	return `COALESCE((EXTRACT(EPOCH FROM pg_catalog.clock_timestamp() - ` + since + `) * 1000000)::pg_catalog.int8, 0)`
}
