package cron_test

import (
	"bufio"
	"context"
	"database/sql"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jmoiron/sqlx"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/adapters/holdfastsql"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/idempotency/cron"
	"github.com/holdfast-go/holdfast/internal/test/conformance"
	"github.com/holdfast-go/holdfast/internal/test/conformance/crons"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
)

func TestCron(t *testing.T) {
	t.Parallel()
	conformance.Handles(t, conformance.Suite{SQL: crons.Suite[*sql.Tx], SQLX: crons.Suite[*sqlx.Tx], Pgx: crons.Suite[pgx.Tx]})
}

// TestSchedules has the two nights of a year in Berlin; every other one is drawn, or in TestDailyInEveryZone.
func TestSchedules(t *testing.T) {
	t.Parallel()
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		schedule        cron.Schedule
		now, last, next string
	}{
		// There is no half past two on 2026-03-29, and there are two on 2026-10-25: one tick each.
		{cron.Daily(2, 30, berlin), "2026-03-29T12:00:00Z", "2026-03-29T01:30:00Z", "2026-03-30T00:30:00Z"},
		{cron.Daily(2, 30, berlin), "2026-10-25T12:00:00Z", "2026-10-25T01:30:00Z", "2026-10-26T01:30:00Z"},
	} {
		now, err := time.Parse(time.RFC3339, c.now)
		if err != nil {
			t.Fatal(err)
		}
		last, next := c.schedule(now)
		if l, n := last.UTC().Format(time.RFC3339), next.UTC().Format(time.RFC3339); l != c.last || n != c.next {
			t.Errorf("at %s: %s and %s, want %s and %s", c.now, l, n, c.last, c.next)
		}
	}
}

// childVariable makes the test binary run as a replica that is killed, on the database that it names.
const childVariable = "HOLDFAST_TEST_REPLICA"

func TestMain(m *testing.M) {
	if dsn := os.Getenv(childVariable); dsn != "" {
		if err := child(dsn); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	dbtest.VerifyNoLeaks(m)
}

// theJob has one tick, which lasts.
var theJob = cron.Job{Name: "close-day", Schedule: func(now time.Time) (last, next time.Time) { return time.Unix(0, 0), now.Add(time.Hour) }}

// child does the job, says so, and stops for ever before its COMMIT.
func child(dsn string) error {
	ctx := context.Background()
	pool, err := dbtest.OpenURL(dsn)
	if err != nil {
		return err
	}
	db, err := holdfastsql.Open(ctx, pool, holdfast.Options{SingleOwner: true})
	if err != nil {
		return err
	}
	s, err := idempotency.New(ctx, db)
	if err != nil {
		return err
	}
	return cron.Run(ctx, s, theJob, func(ctx context.Context, tx *sql.Tx, _ time.Time) error {
		if _, err := tx.ExecContext(ctx, `INSERT INTO refunds (refund_no, amount) VALUES ('closing', 1)`); err != nil {
			return err
		}
		fmt.Println("done")
		select {}
	})
}

// TestKilledReplica kills the process that runs a tick. Another replica, which waits for it, runs the
// tick again.
func TestKilledReplica(t *testing.T) {
	t.Parallel()
	conformance.Run(t, conformance.SQL(), func(e *conformance.Env[*sql.Tx]) {
		replica := exec.CommandContext(e.Ctx, os.Args[0])
		replica.Env = append(os.Environ(), childVariable+"="+e.DSN)
		replica.Stderr = os.Stderr
		out, err := replica.StdoutPipe()
		e.Check(err)
		e.Check(replica.Start())
		if lines := bufio.NewScanner(out); !lines.Scan() {
			e.Fatal("the replica did not run the job")
		}
		ctx, stop := context.WithCancel(e.Ctx)
		ended := make(chan error, 1)
		go func() {
			ended <- cron.Run(ctx, e.Store(idempotency.Options{}), theJob, func(ctx context.Context, tx *sql.Tx, _ time.Time) error {
				_, err := tx.ExecContext(ctx, `INSERT INTO refunds (refund_no, amount) VALUES ('closing', 1)`)
				return err
			})
		}()
		e.Check(replica.Process.Kill())
		_ = replica.Wait() // it was killed
		e.Eventually("another replica runs the tick", func() bool { return e.Int(`SELECT COUNT(*) FROM refunds`) == 1 })
		stop()
		<-ended
		if n := e.Int(`SELECT COUNT(*) FROM holdfast_records`); n != 1 {
			e.Errorf("%d records, want that of the tick", n)
		}
	})
}
