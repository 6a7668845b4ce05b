package staged

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/idempotency/staged"
)

// stagedExact checks that a request and the results of steps are the same in every attempt, digit by
// digit, and that the result is the same for every caller.
func stagedExact[Tx any](e *env[Tx]) {
	const payment = int64(1816239482374823937)
	type values struct{ request, booked, paid map[string]any }
	var attempts []values
	s, err := staged.New(e.Store(idempotency.Options{}), staged.Workflow[map[string]any, map[string]any, Tx]{
		Name: "refund", Backoff: time.Millisecond, MaxBackoff: 2 * time.Millisecond,
		Run: func(ctx context.Context, r *staged.Run[Tx], request map[string]any) (map[string]any, error) {
			booked, err := staged.Local(ctx, r, "book", func(context.Context, Tx) (map[string]any, error) {
				return map[string]any{"payment": payment}, nil
			})
			if err != nil {
				return nil, err
			}
			paid, err := staged.Call(ctx, r, staged.ExternalCall[map[string]any]{Step: "pay"}, func(context.Context, string) (map[string]any, error) {
				return map[string]any{"payment": payment, "rate": json.Number("1.000000000000000001")}, nil
			})
			if attempts = append(attempts, values{request, booked, paid}); err != nil || len(attempts) == 1 {
				return nil, errors.Join(err, errTimeout)
			}
			return map[string]any{"payment": payment}, nil
		},
	})
	e.Check(err)
	request := map[string]any{"payment": payment, "rate": json.Number("9007199254740993.10")}
	number := json.Number(fmt.Sprint(payment))
	var got []map[string]any
	for len(got) < 2 && !e.Failed() {
		r, err := s.Do(e.Ctx, stagedOp("a"), request)
		if err == nil {
			got = append(got, r.Value)
		} else if !errors.Is(err, errTimeout) {
			e.Fatal(err)
		}
	}
	want := values{
		map[string]any{"payment": number, "rate": json.Number("9007199254740993.10")},
		map[string]any{"payment": number},
		map[string]any{"payment": number, "rate": json.Number("1.000000000000000001")},
	}
	if !reflect.DeepEqual(attempts, []values{want, want}) {
		e.Errorf("the attempts saw %v, want twice %v", attempts, want)
	}
	if result := map[string]any{"payment": number}; !reflect.DeepEqual(got, []map[string]any{result, result}) {
		e.Errorf("the callers got %v", got)
	}
}

// stagedUnstorable checks that a request which JSON does not keep is refused before anything runs,
// and that the step that returns such a result has not run in vain without a word.
func stagedUnstorable[Tx any](e *env[Tx]) {
	const broken = "caf\xe9"
	type request struct {
		Text string
		Why  error
	}
	answer := map[string]string{"step": "ok", "result": "ok"}
	s, err := staged.New(e.Store(idempotency.Options{}), staged.Workflow[request, string, Tx]{
		Name: "refund", Backoff: time.Millisecond, MaxBackoff: 2 * time.Millisecond,
		Run: func(ctx context.Context, r *staged.Run[Tx], q request) (string, error) {
			_, err := staged.Local(ctx, r, "book", func(ctx context.Context, tx Tx) (string, error) {
				return answer["step"], e.Effect(ctx, tx, q.Text)
			})
			return answer["result"], err
		},
	})
	e.Check(err)
	refused := func(what string, err error) {
		e.Helper()
		var stored *idempotency.ResultError
		if !errors.Is(err, holdfast.ErrInvalid) || errors.As(err, &stored) {
			e.Errorf("%s: %v", what, err)
		}
	}
	own := func(key string) idempotency.Op { return idempotency.Op{Key: key, Fingerprint: []byte("own")} }
	for _, q := range []request{{Text: broken}, {Text: "a", Why: errors.New("why")}} {
		op := own("refused")
		_, err := s.Do(e.Ctx, op, q)
		refused("Do", err)
		refused("StartTx", e.DB.InTx(e.Ctx, func(ctx context.Context, tx Tx) error {
			_, err := s.StartTx(ctx, tx, op, q)
			return err
		}))
	}
	if n := e.Int(`SELECT COUNT(*) FROM holdfast_staged`); n != 0 {
		e.Errorf("%d operations have begun", n)
	}
	for _, part := range []string{"result", "step"} {
		answer[part] = broken
		_, err := s.Do(e.Ctx, own(part), request{Text: part})
		refused(part, err)
		if want := map[string]int64{"step": 0, "result": 1}[part]; int64(e.Effects(part)) != want {
			e.Errorf("%s: %d effects", part, e.Effects(part))
		}
		answer[part] = "ok"
		for again := true; again && !e.Failed(); {
			r, err := s.Do(e.Ctx, own(part), request{Text: part})
			if again = err != nil; !again && r.Value != "ok" {
				e.Errorf("%s: %v", part, r)
			}
		}
		e.WantOnce(part)
	}
}
