package operations

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/idempotency/operators"
	"github.com/holdfast-go/holdfast/idempotency/staged"
	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/test/conformance"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
	"github.com/holdfast-go/holdfast/internal/test/tracetest"
	"github.com/holdfast-go/holdfast/reaper"
)

// Executors is the suite of who executed an operation.
func Executors[Tx any](t *testing.T, h conformance.Handle[Tx]) {
	for name, f := range map[string]func(*executions[Tx]){
		"WhoExecuted":      whoExecuted[Tx],
		"WhoExecutedGoes":  whoExecutedGoes[Tx],
		"FollowersKnowWho": followersKnowWho[Tx],
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dbtest.Each(t, func(t *testing.T, engine dbtest.Engine) {
				if h.Runs(engine) {
					r := &tracetest.Recorder{}
					f(&executions[Tx]{newEnv(t, h, engine, holdfast.Options{Tracers: []holdfast.Tracer{r}}), r})
				}
			})
		})
	}
}

type executions[Tx any] struct {
	*env[Tx]
	told *tracetest.Recorder
}

// as runs f under the context of a request.
func (e *executions[Tx]) as(request string, f func(e *env[Tx])) {
	under := *e.env
	under.Ctx = holdfast.WithRequestID(e.Ctx, request)
	f(&under)
}

// wantWho checks who executed an operation, as operators and Lookup see it.
func (e *executions[Tx]) wantWho(s *idempotency.Store[Tx], key, request string) {
	e.Helper()
	op, err := operators.New(s).Show(e.Ctx, staged.Ref{Name: "refund", Key: key})
	if err != nil {
		e.Fatal(err)
	}
	program := core.Program()
	if op.Holder != core.DefaultHolder() || program == "" || op.Program != program[:min(len(program), 128)] || op.RequestID != request {
		e.Errorf("%s: holder %q, program %q, request %q, want request %q", key, op.Holder, op.Program, op.RequestID, request)
	}
	if found, err := idempotency.Lookup[string](e.Ctx, s, conformance.Op(key)); err != nil || found.RequestID != request {
		e.Errorf("%s: found %+v, %v, want request %q", key, found, err, request)
	}
}

// wantOriginals checks what the calls of a name have told, in their order.
func (e *executions[Tx]) wantOriginals(name string, want ...string) {
	e.Helper()
	calls := e.told.Calls()[name]
	if len(calls) != len(want) {
		e.Fatalf("%d calls of %s, want %d", len(calls), name, len(want))
	}
	for i, c := range calls {
		if c.Original != want[i] {
			e.Errorf("%s %d, %s: original %q, want %q", name, i, c.Outcome, c.Original, want[i])
		}
	}
}

func whoExecuted[Tx any](e *executions[Tx]) {
	s := e.Store(idempotency.Options{})
	do := func(e *env[Tx], key string) {
		var rej *idempotency.Rejection
		if _, err := e.Do(e.Store(idempotency.Options{}), conformance.Op(key)); err != nil && !errors.As(err, &rej) {
			e.Error(err)
		}
	}
	e.as("first", func(e *env[Tx]) { do(e, "a") })
	e.as("second", func(e *env[Tx]) { do(e, "a") })
	do(e.env, "nobody's")
	e.as("third", func(e *env[Tx]) { do(e, "nobody's") })
	e.as(strings.Repeat("é", 200)+"\x00\xff", func(e *env[Tx]) { do(e, "long") })
	e.as("fourth", func(e *env[Tx]) {
		_, _ = idempotency.Do(e.Ctx, s, conformance.Op("no"), func(context.Context, Tx) (string, error) { return "", idempotency.Reject("no", "never") })
		op := conformance.Op("a")
		op.Request = "another"
		_, _ = e.Do(s, op)
	})
	do(e.env, "no")
	e.as("the cancel", func(e *env[Tx]) { e.void(s, conformance.Op("voided"), idempotency.Executed) })
	e.wantOriginals("idempotency.do", "", "first", "", "", "", "", "", "fourth")

	for _, request := range []string{"fifth", "sixth"} {
		e.as(request, func(e *env[Tx]) {
			tx := e.BeginTx(sql.LevelDefault)
			if _, err := e.DoTx(s, tx, conformance.Op("tx")); err != nil {
				e.Error(err)
			}
			if _, err := e.DoTx(s, tx, conformance.Op("tx without "+request)); err != nil {
				e.Error(err)
			}
			e.EndTx(tx, true)
		})
	}
	e.wantOriginals("idempotency.do_tx", "", "", "fifth", "")
	for key, request := range map[string]string{"a": "first", "nobody's": "", "long": strings.Repeat("é", 127), "no": "fourth", "tx": "fifth", "voided": "the cancel"} {
		e.wantWho(s, key, request)
	}
}

// whoExecutedGoes checks that the request's id goes with the result, however that goes.
func whoExecutedGoes[Tx any](e *executions[Tx]) {
	e.AnyOwner()
	s := e.Store(idempotency.Options{})
	e.as("one", func(e *env[Tx]) {
		for _, key := range []string{"by an operator", "with the owner", "by the reaper"} {
			if _, err := e.Do(s, conformance.Op(key)); err != nil {
				e.Fatal(err)
			}
		}
	})
	gone := func(key string) {
		e.Helper()
		e.wantWho(s, key, "")
		if _, err := e.Do(s, conformance.Op(key)); err == nil {
			e.Errorf("%s: there is a result", key)
		}
	}
	e.wantWho(s, "by an operator", "one")
	if err := operators.New(s).Erase(e.Ctx, staged.Ref{Name: "refund", Key: "by an operator"}, holdfast.Actor{By: "ana", Reason: "asked for"}); err != nil {
		e.Error(err)
	}
	gone("by an operator")
	e.Expire("result_expires_at", "by the reaper")
	e.Sweep(e.Reaper(reaper.Options{}), 1, 0)
	gone("by the reaper")

	owned, err := idempotency.New(e.Ctx, e.DB)
	if err != nil {
		e.Fatal(err)
	}
	e.as("two", func(e *env[Tx]) {
		if _, err := e.issue(owned, idempotency.Op{Owner: "anna", Name: "refund", Key: "1", NoFingerprint: true}, false); err != nil {
			e.Error(err)
		}
	})
	if n, err := owned.EraseScope(e.Ctx, idempotency.Erasure{Owner: "anna", Actor: holdfast.Actor{By: "olga", Reason: "asked"}}); n != 1 || err != nil {
		e.Errorf("erased %d, %v", n, err)
	}
	if n := e.Int(`SELECT COUNT(*) FROM holdfast_records WHERE request_id IS NOT NULL`); n != 1 {
		e.Errorf("%d requests are left, want the one whose result is", n)
	}
	if n := e.Int(`SELECT COUNT(*) FROM holdfast_records WHERE holder IS NOT NULL AND program IS NOT NULL`); n != 4 {
		e.Errorf("%d records say who, want all 4", n)
	}
}

// followersKnowWho joins a duplicate to a call of the same store: it never reads the record.
func followersKnowWho[Tx any](e *executions[Tx]) {
	s := e.Store(idempotency.Options{})
	leading, end, done := make(chan struct{}), make(chan struct{}), make(chan error, 2)
	e.as("leader", func(e *env[Tx]) {
		go func() {
			_, err := idempotency.Do(e.Ctx, s, conformance.Op("a"), func(ctx context.Context, tx Tx) (string, error) {
				close(leading)
				<-end
				return "done", e.Effect(ctx, tx, "a")
			})
			done <- err
		}()
	})
	<-leading
	e.as("follower", func(e *env[Tx]) {
		go func() {
			_, err := e.Do(s, conformance.Op("a"))
			done <- err
		}()
	})
	e.Eventually("both have begun", func() bool { return e.told.Open() >= 2 })
	close(end)
	for range 2 {
		if err := <-done; err != nil {
			e.Error(err)
		}
	}
	e.WantOnce("a")
	for _, c := range e.told.Calls()["idempotency.do"] {
		if want := map[string]string{"executed": "", "replayed": "leader"}[c.Outcome]; c.Original != want {
			e.Errorf("%s: original %q, want %q", c.Outcome, c.Original, want)
		}
	}
}
