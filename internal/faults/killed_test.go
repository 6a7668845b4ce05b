package faults_test

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jmoiron/sqlx"

	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/internal/conformance"
	"github.com/holdfast-go/holdfast/internal/dbtest"
	"github.com/holdfast-go/holdfast/internal/faultproxy"
)

// Rule: a process that is killed leaves a key that was executed or one that is
// free, and never one that is stuck: asked again, there is one effect.
func TestKilledProcess(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, engine dbtest.Engine) {
		e := conformance.New(t, conformance.SQL(), engine)
		store := e.Store(idempotency.Options{})
		for stage, want := range map[string]struct {
			outcome idempotency.Outcome
			effects int
		}{
			beforeClaim:  {idempotency.Executed, 0},
			midFunction:  {idempotency.Executed, 0},
			beforeCommit: {idempotency.Executed, 0},
			afterCommit:  {idempotency.Replayed, 1},
		} {
			killAt(t, stage, e.DSN, stage)
			if n := e.Effects(stage); n != want.effects {
				t.Errorf("killed %s: %d effects, want %d", stage, n, want.effects)
			}
			ctx, cancel := context.WithTimeout(e.Ctx, 5*time.Second+slack)
			e := *e
			e.Ctx = ctx
			r, err := e.Do(store, conformance.Op(stage))
			cancel()
			if err != nil || r.Outcome != want.outcome || r.Value != "done" {
				t.Errorf("killed %s, asked again: %v, %v; want %v", stage, r, err, want.outcome)
			}
		}
		for _, stage := range []string{beforeClaim, midFunction, beforeCommit, afterCommit} {
			e.WantOnce(stage)
		}

		// Naive: the claim is a row that is committed before the work. Who comes
		// later finds it, and nobody ever does the work.
		killAt(t, naiveClaim, e.DSN, "naive")
		if _, err := e.SQL.ExecContext(e.Ctx, e.Rebind(`INSERT INTO refunds (refund_no, amount) VALUES ($1, $2)`), "naive", 0); err == nil {
			e.Must(`INSERT INTO effects (k, who) VALUES ($1, 'later')`, []byte("naive"))
		}
		if n := e.Effects("naive"); n == 1 {
			t.Fatal("the naive form should have failed")
		}
	})
}

// Rule: the same, killed while COMMIT is on its way: asking again waits until
// it has arrived, and replays.
func TestKilledWhileCommitIsOnItsWay(t *testing.T) {
	t.Parallel()
	everyMode(t, killedOnTheWay, func(*world[pgx.Tx]) {}, func(*world[*sqlx.Tx]) {})
}

func killedOnTheWay(w *world[*sql.Tx]) {
	if !w.usual {
		return // the child opens what the URL says
	}
	key := w.key("record")
	f := w.proxy.Hold(faultproxy.Commit, faultproxy.Silence)
	killWhen(w.T, f.Struck(), w.DSN, key)
	if n := w.Effects(key); n != 0 {
		w.Errorf("%d effects before COMMIT has arrived", n)
	}
	delivered := make(chan error, 1)
	go func() {
		time.Sleep(300 * time.Millisecond) // asked again meanwhile
		delivered <- f.Deliver()
	}()
	w.want(w.record(idempotency.DefaultWait, nil), key, idempotency.Replayed)
	if err := <-delivered; err != nil {
		w.Error(err)
	}
}
