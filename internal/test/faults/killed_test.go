package faults_test

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jmoiron/sqlx"

	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/internal/test/conformance"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
	"github.com/holdfast-go/holdfast/internal/test/faultproxy"
)

// Rule: a killed process leaves a key that is executed or free, and never one that is stuck.
// After another call there is one effect.
func TestKilledProcess(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, engine dbtest.Engine) {
		e := conformance.New(t, conformance.SQL(), engine)
		for name, do := range ways() {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				killedAtEveryStage(t, e, name, do)
			})
		}

		// Naive: the claim is a row that is committed before the work. Later calls find it, and
		// the work is never done.
		killAt(t, naiveClaim, e.DSN, "Do", "naive")
		if _, err := e.SQL.ExecContext(e.Ctx, e.Rebind(`INSERT INTO refunds (refund_no, amount) VALUES ($1, $2)`), "naive", 0); err == nil {
			e.Must(`INSERT INTO effects (k, who) VALUES ($1, 'later')`, []byte("naive"))
		}
		if n := e.Effects("naive"); n == 1 {
			t.Fatal("the naive form should have failed")
		}
	})
}

func killedAtEveryStage(t *testing.T, e *conformance.Env[*sql.Tx], name string, do way) {
	t.Helper()
	for stage, want := range map[string]struct {
		outcome idempotency.Outcome
		effects int
	}{
		beforeClaim:  {idempotency.Executed, 0},
		midFunction:  {idempotency.Executed, 0},
		beforeCommit: {idempotency.Executed, 0},
		afterCommit:  {idempotency.Replayed, 1},
	} {
		key := name + " " + stage
		killAt(t, stage, e.DSN, name, key)
		if n := e.Effects(key); n != want.effects {
			t.Errorf("killed %s: %d effects, want %d", stage, n, want.effects)
		}
		ctx, cancel := context.WithTimeout(e.Ctx, 5*time.Second+dbtest.Slack)
		outcome, err := do(ctx, e.DB, key, func(ctx context.Context, tx *sql.Tx) error { return e.Effect(ctx, tx, key) })
		cancel()
		if err != nil || outcome != want.outcome {
			t.Errorf("killed %s, asked again: %v, %v; want %v", stage, outcome, err, want.outcome)
		}
		e.WantOnce(key)
	}
}

// Rule: the same for a process killed while COMMIT is on its way. Another call waits until the
// COMMIT has arrived, and replays.
func TestKilledWhileCommitIsOnItsWay(t *testing.T) {
	t.Parallel()
	everyMode(t, killedOnTheWay, func(*world[pgx.Tx]) {}, func(*world[*sqlx.Tx]) {})
}

func killedOnTheWay(w *world[*sql.Tx]) {
	if !w.usual {
		return // the child opens the URL directly
	}
	for name, do := range ways() {
		key := w.key(name)
		f := w.proxy.Hold(faultproxy.Commit, faultproxy.Silence)
		killWhen(w.T, f.Struck(), w.DSN, name, key)
		if n := w.Effects(key); n != 0 {
			w.Errorf("%d effects before COMMIT has arrived", n)
		}
		delivered := make(chan error, 1)
		go func() {
			time.Sleep(300 * time.Millisecond) // another call happens during this time
			delivered <- f.Deliver()
		}()
		w.want(ask{name, func(ctx context.Context, key string) (idempotency.Outcome, error) {
			return do(ctx, w.DB, key, func(ctx context.Context, tx *sql.Tx) error { return w.effect(ctx, tx, key) })
		}}, key, idempotency.Replayed)
		if err := <-delivered; err != nil {
			w.Error(err)
		}
	}
}
