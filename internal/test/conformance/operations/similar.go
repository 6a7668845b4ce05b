package operations

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/internal/test/conformance"
	"github.com/holdfast-go/holdfast/internal/test/tracetest"
	"github.com/holdfast-go/holdfast/reaper"
)

// Similar is the suite of similar operations under different keys.
func Similar[Tx any](t *testing.T, h conformance.Handle[Tx]) {
	for name, f := range map[string]func(*env[Tx]){
		"SimilarRefused":         similarIsRefused[Tx],
		"SimilarScopes":          similarScopes[Tx],
		"SimilarNothingHappened": similarNothingHappened[Tx],
		"SimilarInProgress":      similarInProgress[Tx],
		"SimilarOwnKeyReplays":   similarOwnKeyReplays[Tx],
		"SimilarCallers":         similarCallers[Tx],
		"SimilarStorm":           similarStorm[Tx],
		"SimilarConfirmed":       similarConfirmedOnce[Tx],
		"SimilarWindowEnds":      similarWindowEnds[Tx],
		"SimilarQueue":           similarQueue[Tx],
		"SimilarInput":           similarInput[Tx],
		"SimilarReported":        similarIsReported[Tx],
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(t, h, f)
		})
	}
}

// alike is an operation on key that is similar to all others with the same parts.
func alike(key string, by ...string) idempotency.Op {
	op := conformance.Op(key)
	op.Similar = &idempotency.Similar{By: by, Window: time.Hour}
	return op
}

// similar fails unless err names the operation on key, and returns it.
func (e *env[Tx]) similar(err error, key string) *idempotency.SimilarError {
	e.Helper()
	var similar *idempotency.SimilarError
	if !errors.Is(err, idempotency.ErrSimilar) || !errors.As(err, &similar) || similar.Key != key {
		e.Fatalf("got %v, want one similar to %q", err, key)
	}
	return similar
}

// executes fails unless the operation is executed.
func (e *env[Tx]) executes(s *idempotency.Store[Tx], op idempotency.Op) {
	e.Helper()
	if r, err := e.issue(s, op, false); err != nil || r.Outcome != idempotency.Executed {
		e.Errorf("%s: %v, %v, want it executed", op.Key, r.Outcome, err)
	}
	e.WantOnce(op.Key)
}

func similarIsRefused[Tx any](e *env[Tx]) {
	s, other := e.Store(idempotency.Options{}), e.Store(idempotency.Options{})
	e.executes(s, alike("a", "order 1", "100"))
	for range 2 { // it leaves its key free
		for _, s := range []*idempotency.Store[Tx]{s, other} {
			_, err := e.issue(s, alike("b", "order 1", "100"), false)
			l := e.similar(err, "a")
			if l.BusinessID != "no of a" || l.State != idempotency.StateSucceeded || l.Remaining <= 0 || l.Remaining > time.Hour || time.Since(l.At).Abs() > time.Hour {
				e.Errorf("got %+v", l)
			}
			if text := err.Error(); !strings.Contains(text, l.Token) || !strings.Contains(text, "no of a") {
				e.Errorf("it says %s", text)
			}
		}
	}
	if n := e.Effects("b") + e.Int(`SELECT COUNT(*) FROM holdfast_records`); n != 1 {
		e.Errorf("%d effects of b and records", n)
	}
	e.executes(s, alike("another amount", "order 1", "101"))
	e.executes(s, alike("other parts", "order 110", "0"))
	e.executes(s, alike("other lengths", "order 11", "00"))
	e.executes(s, conformance.Op("not similar to anything"))
	if r, err := e.issue(other, alike("a", "order 1", "100"), false); err != nil || r.Outcome != idempotency.Replayed {
		e.Errorf("the first key again: %v, %v", r, err)
	}
	e.Expire("result_expires_at", "a")
	_, err := e.issue(s, alike("b", "order 1", "100"), false)
	if l := e.similar(err, "a"); l.State != idempotency.StateSucceededExpired || l.BusinessID != "no of a" {
		e.Errorf("its result is gone: %+v", l)
	}
}

// similarScopes checks that owners, namespaces and operations are apart.
func similarScopes[Tx any](e *env[Tx]) {
	e.AnyOwner()
	op := alike("a", "order", "1")
	e.executes(e.Store(idempotency.Options{}), op)
	for _, scope := range []struct{ namespace, owner, name string }{{"other", "", ""}, {"", "", "capture"}, {"", "tenant 1", ""}, {"", "tenant 2", ""}} {
		o := idempotency.Options{Namespace: scope.namespace}
		s, err := idempotency.New(e.Ctx, e.DB, o)
		e.Check(err)
		op := alike("a", "order", "1")
		op.Owner = scope.owner
		if scope.name != "" {
			op.Name = scope.name
		}
		op.Key = strings.Join([]string{scope.namespace, scope.owner, scope.name}, "/")
		e.executes(s, op)
		op.Key += " again"
		_, err = e.Do(s, op)
		e.similar(err, strings.TrimSuffix(op.Key, " again"))
	}
	// Erasure reaches the rows of one owner, operation and namespace.
	s, err := idempotency.New(e.Ctx, e.DB, idempotency.Options{})
	e.Check(err)
	count := func() int { return e.Int(`SELECT COUNT(*) FROM holdfast_similar`) }
	all := count()
	for _, erase := range []struct {
		idempotency.Erasure
		gone int
	}{
		{idempotency.Erasure{Owner: "tenant 1", Actor: holdfast.Actor{By: "olga", Reason: "asked"}}, 0},
		{idempotency.Erasure{Owner: "tenant 1", Name: "capture", Keys: true, Actor: holdfast.Actor{By: "olga", Reason: "asked"}}, 0},
		{idempotency.Erasure{Owner: "tenant 1", Name: "refund", Keys: true, Actor: holdfast.Actor{By: "olga", Reason: "asked"}}, 1},
		{idempotency.Erasure{Owner: "tenant 2", Keys: true, Actor: holdfast.Actor{By: "olga", Reason: "asked"}}, 2},
	} {
		if _, err := s.EraseScope(e.Ctx, erase.Erasure); err != nil || all-count() != erase.gone {
			e.Errorf("%+v: %v, %d of %d rows are left", erase, err, count(), all)
		}
	}
}

// similarOwnKeyReplays checks that a key that was executed is replayed whichever operation the row
// names, and whether the call reads first or claims first.
func similarOwnKeyReplays[Tx any](e *env[Tx]) {
	s := e.Store(idempotency.Options{})
	e.executes(s, alike("a", "1"))
	_, err := e.Do(s, alike("b", "1"))
	op := alike("b", "1")
	op.Similar.Confirm = e.similar(err, "a").Token
	e.executes(s, op)
	again := e.Store(idempotency.Options{})
	for i := range 9 { // so that it expects new keys
		e.executes(again, conformance.Op(conformance.Numbered("new", i)))
	}
	for _, key := range []string{"a", "b"} {
		for _, s := range []*idempotency.Store[Tx]{again, e.Store(idempotency.Options{})} {
			if r, err := e.issue(s, alike(key, "1"), false); err != nil || r.Outcome != idempotency.Replayed {
				e.Errorf("%s: %v, %v, want a replay", key, r.Outcome, err)
			}
		}
		tx := e.BeginTx(sql.LevelDefault)
		if r, err := idempotency.DoTx(e.Ctx, s, tx, alike(key, "1"), func(context.Context, Tx) (receipt, error) { return receipt{}, errors.New("it ran") }); err != nil || r.Outcome != idempotency.Replayed {
			e.Errorf("%s in a caller's transaction: %v, %v", key, r.Outcome, err)
		}
		e.EndTx(tx, true)
	}
	// Once its key has expired, an operation may be executed again, unless another one was executed since.
	e.Expire("key_expires_at", "b")
	e.Must(`DELETE FROM effects`)
	e.executes(s, alike("b", "1"))
	e.Expire("key_expires_at", "a")
	_, err = e.Do(s, alike("a", "1"))
	e.similar(err, "b")
}

// similarCallers checks a caller's transaction: a similar operation rolls it back.
func similarCallers[Tx any](e *env[Tx]) {
	s := e.Store(idempotency.Options{})
	tx := e.BeginTx(sql.LevelDefault)
	if _, err := e.DoTx(s, tx, alike("a", "1")); err != nil {
		e.Fatal(err)
	}
	e.EndTx(tx, true)
	tx = e.BeginTx(sql.LevelDefault)
	e.Check(e.Effect(e.Ctx, tx, "caller"))
	_, err := e.DoTx(s, tx, alike("b", "1"))
	l := e.similar(err, "a")
	e.WantRolledBack(tx)
	if n := e.Effects("b") + e.Effects("caller"); n != 0 {
		e.Errorf("%d effects", n)
	}
	tx = e.BeginTx(sql.LevelDefault)
	op := alike("b", "1")
	op.Similar.Confirm = l.Token
	if r, err := e.DoTx(s, tx, op); err != nil || r.Outcome != idempotency.Executed {
		e.Errorf("confirmed: %v, %v", r, err)
	}
	e.EndTx(tx, true)
	e.WantOnce("b")
}

// similarConfirmedOnce has several people confirm the same refusal at once, each with a new key.
func similarConfirmedOnce[Tx any](e *env[Tx]) {
	s := e.Store(idempotency.Options{Wait: time.Minute})
	e.executes(s, alike("a", "1"))
	_, err := e.Do(s, alike("b", "1"))
	token := e.similar(err, "a").Token
	var wg sync.WaitGroup
	var mu sync.Mutex
	executed := 0
	for range 6 {
		s := e.Store(idempotency.Options{Wait: time.Minute})
		wg.Go(func() {
			op := alike(uuid.NewString(), "1")
			op.Similar.Confirm = token
			err := e.click(s, sql.LevelDefault, op, "confirmed", true)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				executed++
			case !errors.Is(err, idempotency.ErrSimilar):
				e.Error(err)
			}
		})
	}
	wg.Wait()
	if n := e.Effects("confirmed"); n != 1 || executed != 1 {
		e.Errorf("one confirmation had %d effects, and %d were told so", n, executed)
	}
	op := alike("any", "1")
	op.Similar.Confirm = idempotency.ConfirmAny
	e.executes(s, op)
	_, err = e.Do(s, alike("c", "1"))
	e.similar(err, "any")
}

// similarWindowEnds ends a window by the database's clock, and sweeps what is over.
func similarWindowEnds[Tx any](e *env[Tx]) {
	s := e.Store(idempotency.Options{})
	short := func(key string) idempotency.Op {
		op := alike(key, "short")
		op.Similar.Window = 50 * time.Millisecond
		return op
	}
	e.executes(s, alike("a", "1"))
	e.executes(s, short("b"))
	now := `SELECT COUNT(*) FROM holdfast_similar`
	e.Eventually("a window is over", func() bool { _, err := e.Do(s, short("c")); return err == nil })
	e.WantOnce("c")
	if n := e.Int(now); n != 2 {
		e.Errorf("%d rows", n)
	}
	r := e.Reaper(reaper.Options{})
	cleared := int64(0)
	e.Eventually("it is swept", func() bool {
		report, err := r.Sweep(e.Ctx)
		e.Check(err)
		i := slices.IndexFunc(report.Tasks, func(t reaper.TaskReport) bool { return t.Task == "similar" })
		cleared += report.Tasks[i].Rows
		return cleared > 0
	})
	if n := e.Int(now); n != 1 || cleared != 1 {
		e.Errorf("%d rows are left, %d were cleared", n, cleared)
	}
	_, err := e.Do(s, alike("d", "1"))
	e.similar(err, "a")
}

// similarIsReported executes what would be refused, and tells it.
func similarIsReported[Tx any](e *env[Tx]) {
	told := new(tracetest.Recorder)
	s := e.StoreOn(e.Handle.Open(e, e.DSN, holdfast.Options{Tracers: []holdfast.Tracer{told}}).DB, idempotency.Options{})
	report := alike("b", "1")
	report.Similar.ReportOnly = true
	e.executes(s, alike("a", "1"))
	e.executes(s, report)
	_, err := e.Do(s, alike("c", "1"))
	confirmed := alike("c", "1")
	confirmed.Similar.Confirm = e.similar(err, "b").Token
	e.executes(s, confirmed)
	e.executes(s, alike("d", "2"))
	events := told.Events("similar.again")
	if len(events) != 2 || events[0].Outcome != "reported" || events[1].Outcome != "confirmed" || events[0].Operation != "refund" || events[0].Count != 1 {
		e.Errorf("got %+v", events)
	}
	if got := told.Outcomes("idempotency.do"); !slices.Contains(got, "similar") {
		e.Errorf("outcomes: %v", got)
	}
}

func similarInput[Tx any](e *env[Tx]) {
	s := e.Store(idempotency.Options{})
	for what, similar := range map[string]idempotency.Similar{
		"no parts":      {Window: time.Hour},
		"an empty part": {By: []string{"1", ""}, Window: time.Hour},
		"many parts":    {By: slices.Repeat([]string{"1"}, 16+1), Window: time.Hour},
		"a long part":   {By: []string{strings.Repeat("x", 4096+1)}, Window: time.Hour},
		"no window":     {By: []string{"1"}},
		"for ever":      {By: []string{"1"}, Window: 366*24*time.Hour + 1},
		"no token":      {By: []string{"1"}, Window: time.Hour, Confirm: "yes"},
	} {
		op := conformance.Op("a")
		op.Similar = &similar
		if _, err := e.Do(s, op); !errors.Is(err, holdfast.ErrInvalid) {
			e.Errorf("%s: %v", what, err)
		}
	}
	if n := e.Int(`SELECT COUNT(*) FROM holdfast_records`); n != 0 {
		e.Errorf("%d records", n)
	}
	for i, part := range conformance.Keys() { // each of them is its exact bytes
		if r, err := e.Do(s, alike(conformance.Numbered("of", i), part)); err != nil || r.Outcome != idempotency.Executed {
			e.Errorf("%q: %v, %v", part, r, err)
		}
	}
}
