package mysql

import (
	"regexp"
	"strings"

	"github.com/holdfast-go/holdfast/internal/dialect"
)

// members returns a query for the state and role of this server in its group.
func members(f dialect.Facts) string {
	if !inGroup(f) {
		return ""
	}
	return `SELECT 'group_member', ` + text(`CONCAT(member_state, ' ', member_role)`) + ` FROM performance_schema.replication_group_members WHERE member_id = @@server_uuid`
}

func inGroup(f dialect.Facts) bool { return f["group_replication_group_name"] != "" }

func severalPrimaries(f dialect.Facts) bool {
	return inGroup(f) && !f.On("group_replication_single_primary_mode")
}

// group is the rules for a member of a replication group.
var group = []dialect.Rule{
	{
		Name: "group replication", Setting: "group_replication_group_name", Refused: "set, on a member that is not in its group, or not a primary",
		Breaks: "a member outside its group takes writes alone: a lock is held on two nodes, and a stale commit passes its guard (G1, G2)",
		Remedy: "connect to a primary; GRANT SELECT ON performance_schema.replication_group_members to the program's user, so that it can be seen",
		Judge: func(f dialect.Facts) string {
			if inGroup(f) && f["group_member"] != "ONLINE PRIMARY" {
				return strings.TrimSpace("member " + f["group_member"] + f["error"])
			}
			return ""
		},
	},
	{
		Name: "group consistency", Setting: "group_replication_consistency", Refused: "less than BEFORE, in a group with several primaries",
		Breaks: "what other primaries have committed may be missing: a lease that is held there counts as lost, and a transaction that waits for nothing is rolled back again and again (G1)",
		Remedy: "add group_replication_consistency='BEFORE' to the DSN, or set it on each server; if all programs write to one primary, say so with Options.SingleWriter", SingleWriter: true,
		Judge: func(f dialect.Facts) string {
			if c := f["group_replication_consistency"]; severalPrimaries(f) && !strings.EqualFold(c, "BEFORE") && !strings.EqualFold(c, "BEFORE_AND_AFTER") {
				return c
			}
			return ""
		},
	},
	{
		Name: "group with several primaries", Setting: "group_replication_single_primary_mode", Breaks: "row locks end at their node, and a stale commit passes a guard that only locks (G1, G2)",
		Neutral: "with OFF a guard writes; row locks are refused without Options.SingleWriter", Fixed: true,
		Neutralise: func(d *dialect.Dialect, f dialect.Facts) {
			if severalPrimaries(f) {
				d.Capabilities.MultiPrimary, d.Capabilities.SharedGuards = true, false
				GuardByWrite(d)
				refusedAtCommit(d)
			}
		},
	},
}

// refusedAtCommit adds the error of a COMMIT that gives way to what another primary committed
// before: 1180, with the storage engine's error 149 (deadlock) in its text. It comes in the place of
// 3101 when the other transaction's changes are applied here at that moment. As an error of MariaDB,
// 1180 was seen on writes that persisted.
func refusedAtCommit(d *dialect.Dialect) {
	is := func(err error) bool {
		return dialect.MySQLNumber(err) == 1180 && deadlock.MatchString(err.Error())
	}
	classify, rolledBack := d.Classify, d.RolledBack
	d.Classify = func(err error) dialect.Class {
		if is(err) {
			return dialect.Retry
		}
		return classify(err)
	}
	d.RolledBack = func(err error) bool { return is(err) || rolledBack(err) }
}

var deadlock = regexp.MustCompile(`\b149\b`)

// GuardByWrite makes guards write, on a cluster in which a transaction runs on its node alone: if
// two transactions on two nodes write the same row, the cluster refuses one of them at COMMIT.
// Moving the expiry by one microsecond is harmless, because the holder assumes an earlier expiry.
// The guard reads first, because the write would make the transaction's snapshot as new as the
// write itself.
func GuardByWrite(d *dialect.Dialect) {
	d.Leases.Wake, d.Leases.Liveness = dialect.Wake{}, dialect.Liveness{} // named locks are those of one node
	exclusive := func(guard string) string { return strings.Replace(guard, " LOCK IN SHARE MODE", " FOR UPDATE", 1) }
	d.Leases.Guard, d.Tickets.Guard = exclusive(d.Leases.Guard), exclusive(d.Tickets.Guard)
	d.Leases.GuardWrite = `UPDATE {locks} SET expires_at = expires_at + 1 WHERE owner = $0 AND name = $1 AND token = $2`
	d.Tickets.GuardWrite = `UPDATE {tickets} SET expires_at = expires_at + 1 WHERE owner = $0 AND name = $1 AND token = $2`
}
