package faults_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jmoiron/sqlx"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
	"github.com/holdfast-go/holdfast/internal/test/faultproxy"
)

// Rule: CleanupTimeout bounds cleanup, whatever the context. The function's own error, or the
// success of a commit, is not delayed forever.
func TestCleanupInBlackHole(t *testing.T) {
	t.Parallel()
	everyMode(t, cleanupInHole[*sql.Tx], cleanupInHole[pgx.Tx], func(*world[*sqlx.Tx]) {})
}

func cleanupInHole[Tx any](w *world[Tx]) {
	if !w.usual {
		return // the requests of other modes differ only in form
	}
	own := errors.New("the function's own")
	for what, c := range map[string]struct {
		match   faultproxy.Match
		err     error
		effects int
	}{
		"rollback": {faultproxy.Contains("rollback"), own, 0},
		"restore":  {faultproxy.Contains("autocommit = 1"), nil, 1},
	} {
		if what == "restore" && !w.InnoDB() {
			continue // it changes no session setting
		}
		var f *faultproxy.Fault
		a := w.record(idempotency.DefaultWait, func(context.Context, Tx) error {
			f = w.proxy.LoseRequest(c.match, faultproxy.Silence)
			return c.err
		})
		key := w.key(what)
		answer := make(chan error, 1)
		start := time.Now()
		go func() {
			_, err := a.do(context.WithoutCancel(w.Ctx), key)
			answer <- err
		}()
		select {
		case err := <-answer:
			w.struck(f, err)
			if !errors.Is(err, c.err) {
				w.Errorf("%s: got %v, want %v", what, err, c.err)
			}
			w.within(start, holdfast.CleanupTimeout)
		case <-time.After(holdfast.CleanupTimeout + dbtest.Slack):
			w.Errorf("%s: no answer", what)
			w.proxy.CutAll()
			<-answer
		}
		if n := w.Effects(key); n != c.effects {
			w.Errorf("%s: %d effects, want %d", what, n, c.effects)
		}
		w.proxy.CutAll()
		w.insist(w.record(idempotency.DefaultWait, nil), key)
		w.Eventually("every connection is back in the pool", func() bool { return w.InUse() == 0 })
	}
}
