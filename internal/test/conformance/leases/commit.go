package leases

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/internal/test/conformance"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
	"github.com/holdfast-go/holdfast/sqllock"
)

// refusedAtCommit contains, per engine, the SQL that makes every commit of a write to the lock
// table fail after the statement has returned its rows, and the SQL that removes this. MySQL and
// MariaDB have no constraint that is checked at commit.
var refusedAtCommit = map[dbtest.Engine][2][]string{
	dbtest.Postgres: {{
		`CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'refused at commit'; END $$`,
		`CREATE CONSTRAINT TRIGGER refuse AFTER INSERT OR UPDATE ON holdfast_locks DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION refuse()`,
	}, {
		`DROP TRIGGER refuse ON holdfast_locks`,
	}},
	dbtest.SQLite: {{
		`CREATE TABLE allowed (id INTEGER PRIMARY KEY)`,
		`CREATE TABLE refused (id INTEGER REFERENCES allowed (id) DEFERRABLE INITIALLY DEFERRED)`,
		`CREATE TRIGGER refuse_insert AFTER INSERT ON holdfast_locks BEGIN INSERT INTO refused VALUES (1); END`,
		`CREATE TRIGGER refuse_update AFTER UPDATE ON holdfast_locks BEGIN INSERT INTO refused VALUES (1); END`,
	}, {
		`DROP TRIGGER refuse_insert`, `DROP TRIGGER refuse_update`,
	}},
}

// leaseRefusedAtCommit checks that the result of a statement counts only after its commit. Rows
// that came before an error grant and renew no lease.
func leaseRefusedAtCommit[Tx any](e *env[Tx]) {
	texts, ok := refusedAtCommit[e.Engine.Kin()]
	if !ok {
		return
	}
	dsn := e.DSN
	if e.Engine == dbtest.SQLite {
		dsn = dbtest.With(dsn, "_pragma=foreign_keys(1)")
	}
	l := e.LockerOn(e.Open(dsn).DB, sqllock.Options{TTL: 4 * time.Second, Margin: 2 * time.Second})
	var held []*sqllock.Lease
	for i := range 3 {
		held = append(held, e.MustAcquire(l, conformance.Numbered("held", i)))
	}
	const tries = 24 // enough to form batches, where the Locker batches
	for i := range tries / 2 {
		e.MustRelease(e.MustAcquire(l, conformance.Numbered("free", i)))
	}
	long := e.MustAcquire(l, "long", sqllock.AcquireOptions{TTL: time.Hour})
	for _, q := range texts[0] {
		e.Must(q)
	}
	refused := time.Now()

	if err := long.Release(e.Ctx); err == nil || errors.Is(err, sqllock.ErrLost) {
		e.Errorf("a release that was not committed: %v", err)
	}
	var all sync.WaitGroup
	for i := range tries {
		key := conformance.Numbered([]string{"free", "new"}[i%2], i/2)
		all.Go(func() {
			if lease, err := l.TryAcquire(e.Ctx, key); err == nil || lease != nil || errors.Is(err, sqllock.ErrHeld) {
				e.Errorf("%s was granted by a statement that was not committed: %v, %v", key, lease, err)
			}
		})
	}
	all.Wait()
	for _, lease := range held {
		select {
		case <-lease.Context().Done():
			if cause := context.Cause(lease.Context()); !errors.Is(cause, sqllock.ErrLost) {
				e.Errorf("%s ended: %v", lease.Key(), cause)
			}
			if after := time.Since(refused); after > 3500*time.Millisecond+dbtest.Slack {
				e.Errorf("%s was trusted for %v with no renewal committed", lease.Key(), after)
			}
		case <-time.After(dbtest.Hang):
			e.Fatalf("%s is trusted, and no renewal was committed", lease.Key())
		}
	}

	for _, q := range texts[1] {
		e.Must(q)
	}
	rival := e.LockerWith(sqllock.Options{})
	for _, key := range []string{"held 0", "free 0", "new 0", "long"} { // its holder retries the release
		e.MustRelease(e.MustAcquire(rival, key))
	}
}
