package cron_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/holdfasttest"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/idempotency/cron"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
)

// closeDays closes each day at half past two, in one of all replicas.
func closeDays(ctx context.Context, db *holdfast.DB[*sql.Tx]) error {
	const month = 30 * 24 * time.Hour // how long the record of a tick stays
	store, err := idempotency.New(ctx, db, idempotency.Options{KeyTTL: month})
	if err != nil {
		return err
	}
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		return err
	}
	job := cron.Job{Name: "close-day", Schedule: cron.Daily(2, 30, berlin)} // or cron.Every(time.Hour, 0), or your own function
	return cron.Run(ctx, store, job, func(ctx context.Context, tx *sql.Tx, tick time.Time) error {
		_, err := tx.ExecContext(ctx, `INSERT INTO closings (day) VALUES (?)`, tick)
		return err
	})
}

// TestHowTo runs what docs/howto/cron.md shows, in two replicas.
func TestHowTo(t *testing.T) {
	t.Parallel()
	kit := holdfasttest.SQLite(t, holdfast.Options{SingleOwner: true})
	if _, err := kit.Pool.ExecContext(t.Context(), `CREATE TABLE closings (day TEXT)`); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	over, ended := errors.New("the test is over"), make(chan error, 2)
	for range 2 {
		go func() { ended <- closeDays(ctx, kit.DB) }()
	}
	count := func(what string) (n int) {
		if err := kit.Pool.QueryRowContext(t.Context(), `SELECT COUNT(`+what+`) FROM closings`).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	dbtest.Eventually(t, "the tick has its row", func() bool { return count("*") > 0 })
	cancel(over)
	for range 2 {
		// A replica may still be opening its store.
		if err := <-ended; !errors.Is(err, over) && !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}
	if rows, days := count("*"), count("DISTINCT day"); rows != days {
		t.Errorf("%d rows of %d days", rows, days)
	}
}
