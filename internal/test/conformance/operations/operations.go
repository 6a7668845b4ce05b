package operations

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/internal/test/conformance"
)

// Suite is the suite of Do.
func Suite[Tx any](t *testing.T, h conformance.Handle[Tx]) {
	for name, f := range map[string]func(*env[Tx]){
		"ExecutedThenReplayed":      executedThenReplayed[Tx],
		"MismatchBeatsReplay":       mismatchBeatsReplay[Tx],
		"RejectionIsKept":           rejectionIsKept[Tx],
		"ErrorFreesTheKey":          errorFreesTheKey[Tx],
		"PanicFreesTheKey":          panicFreesTheKey[Tx],
		"TwinKeysAreDifferent":      twinKeysAreDifferent[Tx],
		"ScopesAreDifferent":        scopesAreDifferent[Tx],
		"StampedeOfOneKey":          stampedeOfOneKey[Tx],
		"InProgressAtOnce":          inProgressAtOnce[Tx],
		"InProgressAgain":           inProgressAgain[Tx],
		"WaitIsBounded":             waitIsBounded[Tx],
		"WaitEndsInReplay":          waitEndsInReplay[Tx],
		"FollowersOutliveTheLeader": followersOutliveTheLeader[Tx],
		"NestedIsRefused":           nestedIsRefused[Tx],
		"BodyAndKeyExpire":          bodyAndKeyExpire[Tx],
		"TooLargeAResult":           tooLargeAResult[Tx],
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(t, h, f)
		})
	}
}

func executedThenReplayed[Tx any](e *env[Tx]) {
	s := e.Store(idempotency.Options{})
	type refund struct {
		No     string
		Amount int64
	}
	want := refund{"R-1", 1<<53 + 1}
	for i, outcome := range []idempotency.Outcome{idempotency.Executed, idempotency.Replayed, idempotency.Replayed} {
		r, err := idempotency.Do(e.Ctx, s, conformance.Op("a"), func(ctx context.Context, tx Tx) (refund, error) {
			return want, e.Effect(ctx, tx, "a")
		})
		if err != nil || r.Value != want || r.Outcome != outcome {
			e.Errorf("call %d: %+v, %v", i, r, err)
		}
	}
	e.WantOnce("a")
	// Another store acts as another process: it finds the record in the table.
	if r, err := e.Do(e.Store(idempotency.Options{}), idempotency.Op{Name: "refund", Key: "a", NoFingerprint: true}); err == nil {
		e.Errorf("a result of another type was decoded as %q", r.Value)
	}
	e.WantOnce("a")
}

func mismatchBeatsReplay[Tx any](e *env[Tx]) {
	s := e.Store(idempotency.Options{})
	if _, err := e.Do(s, conformance.Op("a")); err != nil {
		e.Fatal(err)
	}
	op := conformance.Op("a")
	op.Request = "another"
	_, err := e.Do(s, op)
	var m *idempotency.MismatchError
	if !errors.Is(err, idempotency.ErrMismatch) || !errors.As(err, &m) || len(m.Stored) != 32 || slices.Equal(m.Stored, m.Given) {
		e.Errorf("got %v", err)
	}
	op.Request, op.NoFingerprint = nil, true
	if r, err := e.Do(s, op); err != nil || r.Outcome != idempotency.Replayed {
		e.Errorf("without the check: %v, %v", r, err)
	}
	e.WantOnce("a")
}

func rejectionIsKept[Tx any](e *env[Tx]) {
	s := e.Store(idempotency.Options{})
	for _, outcome := range []idempotency.Outcome{idempotency.Executed, idempotency.Replayed} {
		r, err := idempotency.Do(e.Ctx, s, conformance.Op("a"), func(ctx context.Context, tx Tx) (string, error) {
			if err := e.Effect(ctx, tx, "a"); err != nil {
				return "", err
			}
			return "", &idempotency.Rejection{Code: "over_refund", Message: "more than was paid", Detail: json.RawMessage(`{"paid":100}`)}
		})
		var rej *idempotency.Rejection
		if !errors.As(err, &rej) || rej.Code != "over_refund" || rej.Message != "more than was paid" ||
			string(rej.Detail) != `{"paid":100}` || r.Outcome != outcome {
			e.Errorf("got %v, %v, want a rejection %v", r, err, outcome)
		}
	}
	if n := e.Effects("a"); n != 0 {
		e.Errorf("the rejected function left %d effects", n)
	}
	if n := e.Int(`SELECT COUNT(*) FROM holdfast_records`); n != 1 {
		e.Errorf("%d records, want the verdict's", n)
	}
}

func errorFreesTheKey[Tx any](e *env[Tx]) {
	s := e.Store(idempotency.Options{})
	boom := errors.New("boom")
	_, err := idempotency.Do(e.Ctx, s, conformance.Op("a"), func(ctx context.Context, tx Tx) (string, error) {
		return "", errors.Join(boom, e.Effect(ctx, tx, "a"))
	})
	if !errors.Is(err, boom) || err.Error() != boom.Error() {
		e.Errorf("got %v, want the function's error", err)
	}
	if n := e.Effects("a") + e.Int(`SELECT COUNT(*) FROM holdfast_records`); n != 0 {
		e.Errorf("%d rows were left behind", n)
	}
	if r, err := e.Do(s, conformance.Op("a")); err != nil || r.Outcome != idempotency.Executed {
		e.Errorf("the key is not free: %v, %v", r, err)
	}
	e.WantOnce("a")
}

func panicFreesTheKey[Tx any](e *env[Tx]) {
	s := e.Store(idempotency.Options{})
	func() {
		defer func() {
			if recover() != "boom" {
				e.Error("the panic was swallowed")
			}
		}()
		_, _ = idempotency.Do(e.Ctx, s, conformance.Op("a"), func(ctx context.Context, tx Tx) (string, error) {
			if err := e.Effect(ctx, tx, "a"); err != nil {
				return "", err
			}
			panic("boom")
		})
	}()
	if r, err := e.Do(s, conformance.Op("a")); err != nil || r.Outcome != idempotency.Executed {
		e.Errorf("the key is not free: %v, %v", r, err)
	}
	e.WantOnce("a")
	e.Eventually("every connection is back", func() bool { return e.InUse() == 0 })
}

func twinKeysAreDifferent[Tx any](e *env[Tx]) {
	s := e.Store(idempotency.Options{})
	keys := slices.Compact(slices.Sorted(slices.Values(conformance.Keys())))
	for _, outcome := range []idempotency.Outcome{idempotency.Executed, idempotency.Replayed} {
		for _, k := range keys {
			r, err := e.Do(s, idempotency.Op{Name: "refund", Key: k, Fingerprint: []byte(k)})
			if err != nil || r.Outcome != outcome {
				e.Errorf("key %.20q… (%d bytes): %v, %v, want %v", k, len(k), r.Outcome, err, outcome)
			}
		}
	}
	for _, k := range keys {
		e.WantOnce(k)
	}
	if n := e.Int(`SELECT COUNT(DISTINCT op_key) FROM holdfast_records`); n != len(keys) {
		e.Errorf("%d keys are stored, want %d", n, len(keys))
	}
}

func scopesAreDifferent[Tx any](e *env[Tx]) {
	// Joined without lengths, all of these would give the same text.
	type scope struct{ namespace, owner, name, key string }
	e.AnyOwner()
	for _, sc := range []scope{{"a", "b", "c", "d"}, {"ab", "", "c", "d"}, {"a", "bc", "d", "d"}, {"a", "b", "cd", "d"}, {"a", "b", "c", "dd"}, {"A", "b", "c", "d"}} {
		o := idempotency.Options{Namespace: sc.namespace}
		s, err := idempotency.New(e.Ctx, e.DB, o)
		if err != nil {
			e.Fatal(err)
		}
		r, err := e.Do(s, idempotency.Op{Owner: sc.owner, Name: sc.name, Key: sc.key, NoFingerprint: true})
		if err != nil || r.Outcome != idempotency.Executed {
			e.Errorf("%+v: %v, %v", sc, r, err)
		}
	}
}

// stampedeOfOneKey starts 64 goroutines in two stores on one new key. One of them executes; the
// duplicates of a store share one connection.
func stampedeOfOneKey[Tx any](e *env[Tx]) {
	stores := []*idempotency.Store[Tx]{e.Store(idempotency.Options{}), e.Store(idempotency.Options{})}
	var wg sync.WaitGroup
	var mu sync.Mutex
	outcomes, peak := map[idempotency.Outcome]int{}, 0
	start := make(chan struct{})
	for i := range 64 {
		wg.Go(func() {
			<-start
			r, err := idempotency.Do(e.Ctx, stores[i%2], conformance.Op("a"), func(ctx context.Context, tx Tx) (string, error) {
				time.Sleep(50 * time.Millisecond)
				mu.Lock()
				peak = max(peak, e.InUse())
				mu.Unlock()
				return "done", e.Effect(ctx, tx, "a")
			})
			mu.Lock()
			defer mu.Unlock()
			outcomes[r.Outcome]++
			if err != nil || r.Value != "done" {
				e.Errorf("%v, %v", r, err)
			}
		})
	}
	close(start)
	wg.Wait()
	e.WantOnce("a")
	if outcomes[idempotency.Executed] != 1 || outcomes[idempotency.Replayed] != 63 {
		e.Errorf("outcomes %v", outcomes)
	}
	if peak > 4 {
		e.Errorf("64 duplicates held %d connections", peak)
	}
}

func inProgressAtOnce[Tx any](e *env[Tx]) {
	release := e.HoldKey("a")
	defer release()
	op := conformance.Op("a")
	op.Wait = holdfast.NoWait
	for range 3 {
		if _, err := e.Do(e.Store(idempotency.Options{LockTimeout: time.Hour}), op); !errors.Is(err, idempotency.ErrInProgress) {
			e.Errorf("got %v, want in progress", err)
		}
	}
	release()
	if r, err := e.Do(e.Store(idempotency.Options{}), op); err != nil || r.Value != "held" {
		e.Errorf("after the holder: %v, %v", r, err)
	}
	e.WantOnce("a")
}

// inProgressAgain asks for a key whose record has expired, while another call executes it again: the delete of the
// record does not wait either, however long other locks may be waited for.
func inProgressAgain[Tx any](e *env[Tx]) {
	if _, err := e.Do(e.Store(idempotency.Options{KeyTTL: time.Hour}), conformance.Op("a")); err != nil {
		e.Fatal(err)
	}
	e.Must(`UPDATE holdfast_records SET result_expires_at = 1, key_expires_at = 1`)
	release := e.HoldKey("a")
	defer release()
	op := conformance.Op("a")
	op.Wait = holdfast.NoWait
	if _, err := e.Do(e.Store(idempotency.Options{LockTimeout: time.Hour}), op); !errors.Is(err, idempotency.ErrInProgress) {
		e.Errorf("got %v, want in progress", err)
	}
}

func waitIsBounded[Tx any](e *env[Tx]) {
	release := e.HoldKey("a")
	defer release()
	op := conformance.Op("a")
	op.Wait = 300 * time.Millisecond
	_, err := e.Do(e.Store(idempotency.Options{}), op)
	var p *idempotency.InProgressError
	if !errors.As(err, &p) || p.Waited < op.Wait {
		e.Errorf("got %v (%+v)", err, p)
	}
}

func waitEndsInReplay[Tx any](e *env[Tx]) {
	release := e.HoldKey("a")
	go func() {
		time.Sleep(200 * time.Millisecond)
		release()
	}()
	if r, err := e.Do(e.Store(idempotency.Options{}), conformance.Op("a")); err != nil || r.Value != "held" || r.Outcome != idempotency.Replayed {
		e.Errorf("%v, %v", r, err)
	}
	release()
	e.WantOnce("a")
}

// followersOutliveTheLeader cancels the leader, or makes it fail or panic. Its followers do not
// fail; one of them claims the key again.
func followersOutliveTheLeader[Tx any](e *env[Tx]) {
	for _, end := range []string{"cancelled", "failed", "panicked"} {
		s := e.Store(idempotency.Options{})
		leading := make(chan struct{})
		ctx, cancel := context.WithCancel(e.Ctx)
		var wg sync.WaitGroup
		wg.Go(func() {
			defer func() { _ = recover() }()
			_, err := idempotency.Do(ctx, s, conformance.Op(end), func(ctx context.Context, tx Tx) (string, error) {
				if err := e.Effect(ctx, tx, end); err != nil {
					return "", err
				}
				close(leading)
				time.Sleep(50 * time.Millisecond)
				switch end {
				case "cancelled":
					cancel()
				case "failed":
					return "", errors.New("failed")
				case "panicked":
					panic("panicked")
				}
				return "leader", nil
			})
			if err == nil {
				e.Errorf("the leader that %s had no error", end)
			}
		})
		<-leading
		for range 8 {
			wg.Go(func() {
				if r, err := e.Do(s, conformance.Op(end)); err != nil || r.Value != "done" {
					e.Errorf("a follower of a leader that %s: %v, %v", end, r, err)
				}
			})
		}
		wg.Wait()
		cancel()
		e.WantOnce(end)
	}
}

func nestedIsRefused[Tx any](e *env[Tx]) {
	s := e.Store(idempotency.Options{})
	_, err := idempotency.Do(e.Ctx, s, conformance.Op("a"), func(ctx context.Context, _ Tx) (string, error) {
		r, err := idempotency.Do(ctx, s, conformance.Op("a"), func(context.Context, Tx) (string, error) { return "inner", nil })
		return r.Value, err
	})
	if !errors.Is(err, idempotency.ErrNested) {
		e.Errorf("got %v", err)
	}
}

func bodyAndKeyExpire[Tx any](e *env[Tx]) {
	s := e.Store(idempotency.Options{ResultTTL: 200 * time.Millisecond})
	if _, err := e.Do(s, conformance.Op("body")); err != nil {
		e.Fatal(err)
	}
	e.Eventually("the body expires", func() bool {
		_, err := e.Do(s, conformance.Op("body"))
		return errors.Is(err, idempotency.ErrExpired)
	})
	e.WantOnce("body")

	s = e.Store(idempotency.Options{ResultTTL: 100 * time.Millisecond, KeyTTL: 300 * time.Millisecond})
	if _, err := e.Do(s, conformance.Op("key")); err != nil {
		e.Fatal(err)
	}
	e.Eventually("the key is executed again", func() bool {
		r, err := e.Do(s, conformance.Op("key"))
		return err == nil && r.Outcome == idempotency.Executed
	})
	if n := e.Effects("key"); n != 2 {
		e.Errorf("%d effects, want one for each life of the key", n)
	}
}

func tooLargeAResult[Tx any](e *env[Tx]) {
	s := e.Store(idempotency.Options{MaxResult: 1 << 10})
	_, err := idempotency.Do(e.Ctx, s, conformance.Op("a"), func(ctx context.Context, tx Tx) (string, error) {
		return strings.Repeat("9", 1<<10), e.Effect(ctx, tx, "a")
	})
	if !errors.Is(err, holdfast.ErrInvalid) || e.Effects("a") != 0 {
		e.Errorf("got %v and %d effects", err, e.Effects("a"))
	}
}
