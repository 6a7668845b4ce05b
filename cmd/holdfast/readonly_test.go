package main

import (
	"database/sql"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/internal/test/conformance"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
	"github.com/holdfast-go/holdfast/sqllock"
)

// TestReadOnlyLists checks that sessions which cannot write list what there is, and that they change nothing.
func TestReadOnlyLists(t *testing.T) {
	onEveryEngine(t, func(o operator) {
		mine, err := worker(o).Acquire(o.Ctx, "a", sqllock.AcquireOptions{TTL: time.Hour})
		o.Check(err)
		_, err = o.Do(o.Store(idempotency.Options{}), conformance.Op("a"))
		o.Check(err)
		reader := operator{&conformance.Env[*sql.Tx]{}}
		*reader.Env = *o.Env
		reader.DSN = dbtest.With(o.DSN, map[dbtest.Engine]string{
			dbtest.Postgres: "default_transaction_read_only=on", dbtest.MySQL: "transaction_read_only=1",
			dbtest.MariaDB: "tx_read_only=1", dbtest.SQLite: "_pragma=query_only(1)",
		}[o.Engine])
		var held []lease
		if reader.json(&held, "locks", "list"); len(held) != 1 || held[0].Key != "a" {
			o.Errorf("locks: %+v", held)
		}
		var list []operation
		if reader.json(&list, "ops", "list", "--records", "--state", "succeeded"); len(list) != 1 {
			o.Errorf("operations: %+v", list)
		}
		for _, args := range [][]string{{"locks", "queues"}, {"locks", "blocked"}, {"reap", "--history"}, {"ops", "list"}} {
			if o.Engine == dbtest.SQLite && args[1] == "blocked" {
				continue
			}
			reader.ok(args...)
		}
		if code, out, _ := reader.run("locks", "release", "--key", "a", "--token", "0", "--by", "olga", "--reason", "a test"); code == exitOK {
			o.Errorf("a lock was released: %s", out)
		}
		o.Check(mine.Release(o.Ctx))
	})
}
