package main

import (
	"strconv"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/sqllock"
)

// TestPropose proposes to take a lock away; another person confirms it.
func TestPropose(t *testing.T) {
	onEveryEngine(t, func(o operator) {
		lease, err := o.LockerOn(o.DB, sqllock.Options{Holder: "worker"}).For("anna").Acquire(o.Ctx, "k")
		o.Check(err)
		var p struct{ ID, Action, Kind, Owner, Key, By string }
		o.json(&p, "locks", "release", "--owner", "anna", "--key", "k", "--token", strconv.FormatInt(lease.Token(), 10), "--by", "olga", "--reason", "ticket 12", "--propose")
		if p.Action != "force release" || p.Kind != "lease" || p.Owner != "anna" || p.Key != "k" || p.By != "olga" {
			o.Errorf("%+v", p)
		}
		if out := o.ok("ops", "proposals"); !strings.Contains(out, p.ID) {
			o.Error(out)
		}
		o.fails("another person", "ops", "confirm", "--yes", "--id", p.ID, "--by", "olga")
		o.fails("another person", "ops", "confirm", "--yes", "--id", p.ID, "--by", "ben", "--other-account")
		o.misused("--id", "ops", "confirm", "--id", "x", "--by", "ben")
		o.misused("takes the lock away", "ops", "confirm", "--id", p.ID, "--by", "ben")
		if out := o.ok("ops", "confirm", "--yes", "--id", p.ID, "--by", "ben"); out != "confirmed, and done\n" {
			o.Error(out)
		}
		o.fails("no such proposal", "ops", "confirm", "--yes", "--id", p.ID, "--by", "ben")
		if out := o.ok("audit", "export", "--after", "1"); !strings.Contains(out, `"by":"olga"`) || !strings.Contains(out, `"confirmed_by":"ben"`) {
			o.Error(out)
		}
		o.misused("no token", "locks", "release", "--key", "k", "--by", "olga", "--reason", "r", "--propose")
	})
}
