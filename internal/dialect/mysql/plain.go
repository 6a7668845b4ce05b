package mysql

import (
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/internal/dialect"
)

// Plain turns d into a dialect whose writes name their rows by the key alone, for servers that
// plan statements themselves and cannot lock the rows of a derived table. SKIP LOCKED is not used:
// such a statement waits for a locked row, as long as Single says. exclusive replaces LOCK IN
// SHARE MODE.
func Plain(d dialect.Dialect, exclusive bool) dialect.Dialect {
	lock := func(text string) string { return text }
	if exclusive {
		lock = func(text string) string { return strings.ReplaceAll(text, " LOCK IN SHARE MODE", " FOR UPDATE") }
	}

	d.Fence.Kept, d.Fence.Survives, d.Fence.Ends = dialect.Setting{}, nil, nil
	d.KeepPrepared = false // Vitess opens another shard for a prepared SELECT
	l := &d.Leases
	l.LookFirst, l.Alone = true, true
	l.Make.Text = lock(l.Make.Text)
	// Every column is read before it is assigned, so the order of the assignments does not matter.
	const own = `attempt <=> $2 AND expires_at > {now}`
	l.Take = dialect.Grant{ByInsertID: true, Text: `UPDATE {locks} SET token = LAST_INSERT_ID(IF(` + own + `, token, GREATEST(token + 1, {now}))), holder = $4, granted_at = {now},
 value = IF(` + own + `, value, NULL), terms = IF(` + own + `, terms, terms + 1), expires_at = IF(` + own + `, GREATEST(expires_at, {now} + $3), {now} + $3), attempt = $2
WHERE owner = $0 AND name = $1 AND (attempt IS NULL OR expires_at <= {now} OR attempt = $2)`}
	l.MakeMany, l.TakeMany, l.ReleaseMany, l.Granted, l.Released = "", "", "", "", ""
	l.Renew = `UPDATE {locks} FORCE INDEX (PRIMARY) SET expires_at = GREATEST(expires_at, {now} + $1)
WHERE owner = $0 AND name IN ({names}) AND attempt IN ({attempts}) AND expires_at > {now}`
	l.ManyBefore = ""
	l.Guard = lock(l.Guard)

	t := &d.Tickets
	t.Make, t.Guard = lock(t.Make), lock(t.Guard)
	t.Ahead = `SELECT COALESCE(SUM(units), 0), COUNT(IF(capacity <> $2, 1, NULL)) FROM {tickets} WHERE owner = $0 AND name = $1`
	t.Enter = `INSERT INTO {tickets} (owner, name, token, attempt, units, capacity, holder, queued_at, granted_at, expires_at)
VALUES ($0, $1, $2, $3, $4, $5, $6, {now}, IF($8 = 1, {now}, NULL), {now} + $7)`
	t.Clear = `DELETE FROM {tickets} WHERE owner = $0 AND name = $1 AND token IN ({tokens}) AND expires_at <= {now}`
	t.Leave = `DELETE FROM {tickets} WHERE owner = $0 AND name IN ({names}) AND attempt IN ({attempts})`
	t.Renew = `UPDATE {tickets} SET expires_at = GREATEST(expires_at, {now} + $1)
WHERE owner = $0 AND name IN ({names}) AND attempt IN ({attempts}) AND expires_at > {now}`

	const plainPairs = `DELETE FROM {rows} WHERE ({picked}) AND expires_at <= $1`
	s := &d.Sweep
	s.Results = dialect.FindDue("result_expires_at", dialect.DueResults, `UPDATE {records} SET `+dialect.Tombstone+` WHERE ({picked}) AND {due}`)
	s.Keys = dialect.FindDue("key_expires_at", dialect.DueKeys, `DELETE FROM {records} WHERE ({picked}) AND {due}`)
	s.Similar = dialect.FindSimilar(`DELETE FROM {rows} WHERE ({picked}) AND {due}`)
	s.Locks = dialect.FindLocks(dialect.CompareColumns, `DELETE FROM {locks} WHERE ({picked}) AND {due}`)
	s.Waiters = dialect.FindPairs("waiter", dialect.CompareColumns, pairs, plainPairs)
	s.Tickets = dialect.FindPairs("token", dialect.CompareColumns, pairs, plainPairs)
	s.LimitEntries = dialect.FindLimitEntries(pairs, plainPairs)
	s.Table.Write = `DELETE FROM {table} WHERE {first} IN ({firsts}) AND ({keys}) IN ({tuples}) AND {due}`

	d.Rows.LockClause = lock(d.Rows.LockClause)
	d.Fragments.ForShare = lock(d.Fragments.ForShare)
	return d
}

// Single makes a single write its own transaction, whose waits end after a second. A write
// with autocommit would wait for a locked row by the server's own rules. The second SET commits.
var Single = dialect.Setting{
	Before: func(time.Duration) string {
		return LockWait("@holdfast_single_wait", time.Second) + `, SESSION autocommit = 0`
	},
	After: `SET SESSION autocommit = 1, SESSION innodb_lock_wait_timeout = @holdfast_single_wait`,
}
