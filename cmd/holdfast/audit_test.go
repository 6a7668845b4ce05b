package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/sqllock"
)

// TestAudit takes a lock away, and lists, exports and verifies what that has left; then a row is changed.
func TestAudit(t *testing.T) {
	onEveryEngine(t, func(o operator) {
		if out := o.ok("audit", "verify"); out != "rows 0, as written\n" {
			o.Error(out)
		}
		for _, key := range []string{"a", "b"} {
			_, err := o.LockerOn(o.DB, sqllock.Options{Holder: "worker"}).For("anna").Acquire(o.Ctx, key)
			o.Check(err)
			o.ok("locks", "release", "--yes", "--owner", "anna", "--key", key, "--by", "olga", "--reason", "ticket\t12")
		}
		var rows []struct {
			Seq                             int
			By, Action, Kind, Owner, Reason string
			Before                          struct{ Holder string }
		}
		o.json(&rows, "audit", "list", "--kind", "lease", "--limit", "1")
		if len(rows) != 1 || rows[0].Seq != 2 || rows[0].By != "olga" || rows[0].Action != "force release" || rows[0].Before.Holder != "worker" {
			o.Errorf("%+v", rows)
		}
		if out := o.ok("audit", "list"); !strings.Contains(out, "olga") || strings.Contains(out, "ticket\t12") {
			o.Error(out)
		}
		lines := strings.Split(strings.TrimSpace(o.ok("audit", "export", "--after", "1")), "\n")
		var line struct{ Subject, Hash string }
		if len(lines) != 1 || json.Unmarshal([]byte(lines[0]), &line) != nil || len(line.Hash) != 64 {
			o.Fatalf("%q", lines)
		}
		if out := o.ok("audit", "export", "--subject", line.Subject, "--owner", "anna"); out != lines[0]+"\n" {
			o.Error(out)
		}
		var report struct {
			Rows  int
			Heads []struct{ Hash string }
		}
		o.json(&report, "audit", "verify", "--expect", line.Hash)
		if report.Rows != 2 || len(report.Heads) != 1 || report.Heads[0].Hash != line.Hash {
			o.Errorf("%+v", report)
		}
		o.misused("hexadecimal", "audit", "verify", "--expect", "xy")
		o.misused("hexadecimal", "audit", "list", "--subject", "xyz")
		o.Must(`DELETE FROM holdfast_audit WHERE seq = 2`)
		o.ok("audit", "verify")
		o.ends(exitBroken, "row 2 or an earlier one is missing", "audit", "verify", "--expect", line.Hash)
		o.Must(`UPDATE holdfast_audit SET actor = 'mallory'`)
		o.ends(exitBroken, "row 1 was changed", "audit", "verify")
	})
}
