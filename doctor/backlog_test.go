package doctor_test

import (
	"context"
	"database/sql"
	"errors"
	"strconv"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/doctor"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/idempotency/outbox"
	"github.com/holdfast-go/holdfast/idempotency/staged"
	"github.com/holdfast-go/holdfast/internal/test/conformance"
	"github.com/holdfast-go/holdfast/reaper"
)

// TestBacklog checks that the doctor finds what waits for a person, and what waits for a loop that does not run, and
// that it is silent before and afterwards.
func TestBacklog(t *testing.T) {
	t.Parallel()
	conformance.Run(t, conformance.SQL(), func(e *conformance.Env[*sql.Tx]) {
		checks := []string{"backlog", "reaper", "unknown operations", "stuck operations", "dead messages"}
		wantNone(e.T, examine(e.T, e.DB, doctor.Options{}), checks...)

		store := e.Store(idempotency.Options{})
		refunds, err := staged.New(store, staged.Workflow[string, string, *sql.Tx]{Name: "refund", Run: func(ctx context.Context, r *staged.Run[*sql.Tx], _ string) (string, error) {
			return staged.Call(ctx, r, staged.ExternalCall[string]{Step: "pay"}, func(context.Context, string) (string, error) { return "", errors.New("no answer") })
		}})
		e.Check(err)
		for i := range 3 {
			if _, err := refunds.Do(e.Ctx, idempotency.Op{Key: strconv.Itoa(i)}, "r"); !errors.As(err, new(*staged.ParkedError)) {
				e.Fatal(err)
			}
			_, err := idempotency.Do(e.Ctx, store, conformance.Op(strconv.Itoa(i)), func(context.Context, *sql.Tx) (string, error) { return "", nil })
			e.Check(err)
		}
		e.Must(`UPDATE holdfast_staged SET state = 1, due_at = 1000000, step = '' WHERE op_key = $1`, []byte("2"))
		e.Must(`UPDATE holdfast_records SET result_expires_at = 1000000, key_expires_at = 1000000`)
		box, err := outbox.New(e.Ctx, e.DB, "refunds")
		e.Check(err)
		e.Check(e.DB.InTx(e.Ctx, func(ctx context.Context, tx *sql.Tx) error {
			return box.Write(ctx, tx, outbox.Message{Topic: "refunds", Key: "1", Body: []byte("m")})
		}))
		e.Must(`UPDATE holdfast_outbox SET state = 3`)

		found := examine(e.T, e.DB, doctor.Options{})
		want(e.T, found, "unknown operations", doctor.Warning)
		wantAll(e.T, found["unknown operations"], "2 operations", "2 refund since")
		want(e.T, found, "stuck operations", doctor.Warning)
		wantAll(e.T, found["stuck operations"], "1 operations", "1 refund since 1970-01-01T00:00:01Z")
		want(e.T, found, "dead messages", doctor.Warning)
		want(e.T, found, "reaper", doctor.Warning)
		wantAll(e.T, found["reaper"], "3 rows", "no reaper has ever cleared any")

		b, err := doctor.ReadBacklog(e.Ctx, e.DB)
		e.Check(err)
		if len(b.Unknown) != 1 || b.Unknown[0].Count != 2 || len(b.Stuck) != 1 || len(b.Dead) != 1 || b.Due != 3 || !b.Counted || b.DueFor < time.Hour || !b.Reaped.IsZero() {
			e.Errorf("%+v", b)
		}
		sweeper, err := reaper.New(e.Ctx, e.DB)
		e.Check(err)
		_, err = sweeper.Sweep(e.Ctx)
		e.Check(err)
		wantNone(e.T, examine(e.T, e.DB, doctor.Options{}), "reaper")
		if b, err = doctor.ReadBacklog(e.Ctx, e.DB); err != nil || b.Due != 0 || b.Reaped.IsZero() {
			e.Errorf("%+v %v", b, err)
		}
	})
}
