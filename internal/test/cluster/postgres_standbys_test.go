//go:build linux

package cluster_test

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/doctor"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
	"github.com/holdfast-go/holdfast/sqllock"
)

// TestPostgresStandbys checks the doctor's findings for standbys. It also checks what a client
// sees of a primary that was stopped and returns beside its successor.
func TestPostgresStandbys(t *testing.T) {
	c := startPostgres(t, 2)
	old := c.nodes[0]
	business(t, dbtest.OpenSQL(t, old.URL()), "TEXT")

	all := findings(t, old.URL())
	if f := all["standby quorum"]; f.Severity != doctor.Warning || !strings.Contains(f.Advice, "pg_last_wal_receive_lsn") {
		t.Errorf("got %+v", f)
	}
	if f, there := all["standby wait"]; !there || f.Severity != doctor.Notice {
		t.Errorf("got %+v", f)
	}
	if f, there := all["synchronous standbys"]; there {
		t.Errorf("got %+v", f)
	}
	if f := findings(t, c.nodes[1].URL())["standby"]; f.Severity != doctor.Broken || !strings.Contains(f.Problem, "standby") {
		t.Errorf("got %+v", f)
	}
	old.sync("ANY 2 (n2, n3)")
	if f, there := findings(t, old.URL())["standby quorum"]; there {
		t.Errorf("all standbys have each commit: %+v", f)
	}
	old.sync("")
	if f := findings(t, old.URL())["synchronous standbys"]; f.Severity != doctor.Warning {
		t.Errorf("got %+v", f)
	}
	old.sync("ANY 1 (n2, n3)")

	for name, f := range map[string]func(t *testing.T, c *replicated){"Zombie": zombie} {
		t.Run(name, func(t *testing.T) { f(t, c) })
	}
}

// TestPostgresWrongStandby shows a case without any promise. A standby that was down for a while
// and then becomes the primary lacks the commits acknowledged in that time: a key executes
// again.
func TestPostgresWrongStandby(t *testing.T) {
	for name, names := range map[string]string{"AnotherAcknowledged": "ANY 1 (n2, n3)", "Asynchronous": ""} {
		t.Run(name, func(t *testing.T) {
			c := startPostgres(t, 2)
			old, other, wrong := c.nodes[0], c.nodes[1], c.nodes[2]
			old.sync(names)
			business(t, dbtest.OpenSQL(t, old.URL()), "TEXT")
			on := openOn(t, old.URL(), sqllock.Options{})
			ask := func(o *opened, key string) idempotency.Outcome {
				t.Helper()
				store, err := idempotency.New(t.Context(), o.db)
				if err != nil {
					t.Fatal(err)
				}
				r, err := idempotency.Do(t.Context(), store, idempotency.Op{Name: "refund", Key: key, NoFingerprint: true}, func(context.Context, *sql.Tx) (string, error) {
					return "done", nil
				})
				if err != nil {
					t.Fatal(err)
				}
				return r.Outcome
			}
			ask(on, "before")
			lsn := old.text(`SELECT pg_current_wal_lsn()::text`)
			dbtest.Eventually(t, "the standby does not have it", func() bool {
				return wrong.text(`SELECT (pg_last_wal_replay_lsn() >= '`+lsn+`')::text`) == "true"
			})
			wrong.kill()
			if got := ask(on, "meanwhile"); got != idempotency.Executed {
				t.Fatalf("got %v", got)
			}
			old.kill()
			wrong.start()
			if best := c.furthest(wrong, other); best != other {
				t.Errorf("%s has received most", best.Name)
			}
			wrong.exec(`SELECT pg_promote(true, 30)`)
			wrong.sync("")
			promoted := openOn(t, wrong.URL(), sqllock.Options{})
			if got := ask(promoted, "before"); got != idempotency.Replayed {
				t.Errorf("what every standby had: %v", got)
			}
			if got := ask(promoted, "meanwhile"); got != idempotency.Executed {
				t.Errorf("what the wrong standby lacks: %v", got)
			}
		})
	}
}

// zombie stops the old primary and resumes it after another one was promoted. With synchronous
// replication its writes wait for a standby that is gone. A client that gives up gets "unknown",
// and its refund does not exist on the new primary.
func zombie(t *testing.T, c *replicated) {
	old := c.nodes[0]
	holder := openOn(t, old.URL(), sqllock.Options{TTL: 3 * time.Second})
	lease, err := holder.locks.Acquire(t.Context(), "zombie")
	if err != nil {
		t.Fatal(err)
	}
	old.signal(syscall.SIGSTOP)
	primary := c.nodes[1]
	primary.exec(`SELECT pg_promote(true, 30)`)
	primary.sync("ANY 1 (n1, n3)")
	c.nodes[2].follow(primary)
	next := openOn(t, primary.URL(), sqllock.Options{TTL: 3 * time.Second})
	taken, err := next.locks.Acquire(t.Context(), "zombie")
	if err != nil {
		t.Fatal(err)
	}
	old.signal(syscall.SIGCONT)
	if lease.Context().Err() == nil {
		t.Error("the former holder's context outlived the next grant")
	}

	// It still reports that it is the primary, and its client cannot tell the difference.
	dbtest.Eventually(t, "it does not answer", func() bool { return old.text(`SELECT pg_is_in_recovery()::text`) == "false" })
	gave := make(chan error, 1)
	bounded := dbtest.OpenSQL(t, old.URL())
	go func() {
		tx, err := bounded.BeginTx(t.Context(), &sql.TxOptions{})
		if err == nil {
			_, err = tx.ExecContext(t.Context(), `INSERT INTO refunds (refund_no, order_no) VALUES (990000, 1)`)
		}
		if err == nil {
			err = tx.Commit()
		}
		gave <- err
	}()
	dbtest.Eventually(t, "nothing waits for a standby", func() bool {
		return old.text(`SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND query ILIKE 'commit%'`) == "1"
	})
	select {
	case err := <-gave:
		t.Errorf("the old primary acknowledges: %v", err)
	case <-time.After(time.Second):
	}
	old.kill()
	if err := <-gave; err == nil || holder.db.CommitOutcome(err) != holdfast.Unknown {
		t.Errorf("its commit: %v", err)
	}
	if n := next.number(`SELECT COUNT(*) FROM refunds WHERE refund_no = 990000`); n != 0 {
		t.Errorf("the zombie's write is on the new primary: %d", n)
	}
	tx := next.begin()
	defer tx.Rollback()
	if err := next.locks.Guard(t.Context(), tx, next.locks.Term("zombie", lease.Token())); !errors.Is(err, sqllock.ErrLost) {
		t.Errorf("the former holder passes the guard: %v", err)
	}
	if taken.Token() <= lease.Token() {
		t.Errorf("token %d after %d", taken.Token(), lease.Token())
	}
	_ = taken.Release(t.Context())
}
