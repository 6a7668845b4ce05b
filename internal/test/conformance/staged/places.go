package staged

import (
	"bytes"
	"context"
	"errors"
	"time"

	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/idempotency/operators"
	"github.com/holdfast-go/holdfast/idempotency/staged"
)

// sealed is a codec that binds what it stores to its place, as an AEAD does, and encrypts nothing.
type sealed struct{}

func (sealed) Name() string { return "sealed" }

func (sealed) Encode(plain, place []byte) ([]byte, error) {
	return append(bytes.Clone(place), plain...), nil
}

func (sealed) Decode(stored, place []byte) ([]byte, error) {
	plain, is := bytes.CutPrefix(stored, place)
	if !is {
		return nil, errMoved
	}
	return plain, nil
}

var errMoved = errors.New("it was written for another place")

// stagedPlaces moves what a codec has stored to another place of the same operation, and relabels it. No
// program may read it there.
func stagedPlaces[Tx any](e *env[Tx]) {
	late := true
	o := idempotency.Options{Codec: sealed{}}
	s := e.staged(staged.Workflow[string, string, Tx]{
		Name: "refund", Backoff: time.Millisecond,
		Run: func(ctx context.Context, r *staged.Run[Tx], _ string) (string, error) {
			paid, err := staged.Call(ctx, r, staged.ExternalCall[string]{Step: "pay"}, func(context.Context, string) (string, error) { return "paid", nil })
			if err != nil {
				return "", err
			}
			booked, err := staged.Local(ctx, r, "book", func(context.Context, Tx) (string, error) { return "booked", nil })
			if err == nil && late {
				err = errors.New("not yet")
			}
			return paid + booked, err
		},
	}, o)
	ops := operators.New(e.Store(o))
	const ofStep = `SELECT result FROM holdfast_steps WHERE key_hash = $1 AND name = 'pay'`
	for name, c := range map[string]struct {
		over       bool   // it is changed after its end, not in between
		from, move string // move takes the value that from has read, if it reads one, and the hash
	}{
		"unchanged": {},
		"step":      {from: ofStep, move: `UPDATE holdfast_steps SET result = $1 WHERE key_hash = $2 AND name = 'book'`},
		"rejection": {move: `UPDATE holdfast_steps SET state = 3 WHERE key_hash = $1 AND name = 'pay'`},
		"request":   {from: ofStep, move: `UPDATE holdfast_staged SET request = $1 WHERE key_hash = $2`},
		"result":    {over: true, from: ofStep, move: `UPDATE holdfast_staged SET result = $1 WHERE key_hash = $2`},
		"verdict":   {over: true, move: `UPDATE holdfast_staged SET state = 3 WHERE key_hash = $1`},
	} {
		if late = true; c.over || name == "unchanged" {
			late = false
		}
		if _, err := s.Do(e.Ctx, stagedOp(name), "asked"); (err != nil) != late {
			e.Fatal(err)
		}
		late = false
		op, err := ops.Show(e.Ctx, ref(name))
		if err != nil {
			e.Fatal(err)
		}
		hash := op.ID[:32]
		args := []any{hash}
		if c.from != "" {
			var value []byte
			if err := e.SQL.QueryRowContext(e.Ctx, e.Rebind(c.from), hash).Scan(&value); err != nil {
				e.Fatal(err)
			}
			args = []any{value, hash}
		}
		if c.move != "" {
			e.Must(c.move, args...)
		}
		r, err := s.Do(e.Ctx, stagedOp(name), "asked")
		var parked *staged.ParkedError
		switch moved := errors.Is(err, errMoved) || errors.As(err, &parked); {
		case name == "unchanged" && (err != nil || r.Value != "paidbooked"):
			e.Errorf("unchanged: %q, %v", r.Value, err)
		case name != "unchanged" && (!moved || r.Value != ""):
			e.Errorf("%s: %q, %v", name, r.Value, err)
		}
	}
	for _, id := range []string{"one", "two"} {
		if _, err := staged.HandleEvent(e.Ctx, e.Store(o), staged.ProviderEvent{ID: id, Ref: ref("unchanged"), Body: []byte(id)}, nil); err != nil {
			e.Fatal(err)
		}
	}
	if op, err := ops.Show(e.Ctx, ref("unchanged")); err != nil || len(op.Events) != 2 || string(op.Events[1].Body) != op.Events[1].ID {
		e.Errorf("the events: %v, %v", op, err)
	}
	var body []byte
	if err := e.SQL.QueryRowContext(e.Ctx, e.Rebind(`SELECT body FROM holdfast_provider_events WHERE event_id = $1`), []byte("one")).Scan(&body); err != nil {
		e.Fatal(err)
	}
	e.Must(`UPDATE holdfast_provider_events SET body = $1 WHERE event_id = $2`, body, []byte("two"))
	if _, err := ops.Show(e.Ctx, ref("unchanged")); !errors.Is(err, errMoved) {
		e.Errorf("the body of another event: %v", err)
	}
}
