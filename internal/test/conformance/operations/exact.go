package operations

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/idempotency/inbox"
	"github.com/holdfast-go/holdfast/internal/test/conformance"
)

// anyKeepsNumbers checks that numbers in an interface keep their digits, for the first caller and
// for the replay.
func anyKeepsNumbers[Tx any](e *env[Tx]) {
	const id, eth = int64(1816239482374823937), json.Number("1.000000000000000001")
	type open struct {
		No     string
		Detail any
	}
	want := map[string]any{"id": json.Number(fmt.Sprint(id)), "max": json.Number("18446744073709551615"), "eth": eth, "small": json.Number("5")}
	given := map[string]any{"id": id, "max": uint64(1<<64 - 1), "eth": eth, "small": 5}
	check := func(key string, f func(joined bool) (any, idempotency.Outcome, error), want any) {
		e.Helper()
		for _, joined := range []bool{false, true} {
			for _, outcome := range []idempotency.Outcome{idempotency.Executed, idempotency.Replayed} {
				if got, o, err := f(joined); err != nil || o != outcome || !reflect.DeepEqual(got, want) {
					e.Errorf("%s: %v of %#v, %v, want %v of %#v", key, o, got, err, outcome, want)
				}
			}
		}
	}
	check("map", func(joined bool) (any, idempotency.Outcome, error) { return once(e, "map", joined, given) }, want)
	check("any", func(joined bool) (any, idempotency.Outcome, error) {
		return once[any](e, "any", joined, []any{id, given})
	}, []any{json.Number(fmt.Sprint(id)), want})
	check("struct", func(joined bool) (any, idempotency.Outcome, error) {
		return once(e, "struct", joined, &open{"R-1", map[string]any{"id": id}})
	}, &open{"R-1", map[string]any{"id": json.Number(fmt.Sprint(id))}})
	found, err := idempotency.Lookup[map[string]any](e.Ctx, e.Store(idempotency.Options{}), conformance.Op("map"))
	if err != nil || !reflect.DeepEqual(found.Value, want) {
		e.Errorf("Lookup: %#v, %v", found.Value, err)
	}
}

// once runs a function that returns v, with Do or DoTx.
func once[T, Tx any](e *env[Tx], key string, joined bool, v T) (T, idempotency.Outcome, error) {
	e.Helper()
	fn := func(ctx context.Context, tx Tx) (T, error) { return v, e.Effect(ctx, tx, key) }
	s := e.Store(idempotency.Options{})
	if !joined {
		r, err := idempotency.Do(e.Ctx, s, conformance.Op(key), fn)
		return r.Value, r.Outcome, err
	}
	tx := e.BeginTx(sql.LevelDefault)
	r, err := idempotency.DoTx(e.Ctx, s, tx, conformance.Op(key+" joined"), fn)
	if err == nil { // otherwise DoTx has rolled it back
		e.EndTx(tx, true)
	}
	return r.Value, r.Outcome, err
}

// warned is a result that has a JSON form, and that JSON does not decode.
type warned struct {
	No      string
	Warning error
}

// unstorable checks what a call answers whose result, or rejection, JSON cannot keep: it is rolled
// back, so its error must not say that the operation was executed.
func unstorable[Tx any](e *env[Tx]) {
	const broken = "caf\xe9"
	refused := func(key string, err error) {
		e.Helper()
		var stored *idempotency.ResultError
		var rejection *idempotency.Rejection
		if !errors.Is(err, holdfast.ErrInvalid) || errors.As(err, &stored) || errors.As(err, &rejection) {
			e.Errorf("%s: %v", key, err)
		}
		if d := inbox.DispositionOf(err); d != inbox.Quarantine {
			e.Errorf("%s: %v", key, d)
		}
	}
	for _, joined := range []bool{false, true} {
		_, _, err := once(e, "text", joined, broken)
		refused("text", err)
		_, _, err = once(e, "nested", joined, map[string]any{"lines": []any{map[string]string{broken: "1"}}})
		refused("nested", err)
		_, _, err = once(e, "pointer", joined, &receipt{No: "R-1", Lines: []string{broken}})
		refused("pointer", err)
		_, _, err = once(e, "warned", joined, warned{"R-1", errors.New("the printer is out of paper")})
		refused("warned", err)
		_, _, err = once(e, "no JSON", joined, map[string]any{"a": func() {}})
		refused("no JSON", err)
	}
	for key, rej := range map[string]error{
		"code": idempotency.Reject(broken, "m"), "message": idempotency.Reject("c", broken), "detail": &idempotency.Rejection{Code: "c", Detail: json.RawMessage(`{`)},
	} {
		_, err := idempotency.Do(e.Ctx, e.Store(idempotency.Options{}), conformance.Op(key), func(ctx context.Context, tx Tx) (string, error) {
			return "", errors.Join(rej, e.Effect(ctx, tx, key))
		})
		refused(key, err)
	}
	if n := e.Int(`SELECT COUNT(*) FROM effects`) + e.Int(`SELECT COUNT(*) FROM holdfast_records`); n != 0 {
		e.Errorf("%d rows stand", n)
	}
	// What JSON keeps is stored: U+FFFD itself, its escape in JSON from elsewhere, and a backslash.
	for key, v := range map[string]any{
		"replacement": "a\ufffd", "escape": json.RawMessage(`"\ufffd"`), "backslash": `C:\ufffd`, "in a struct": map[string]json.RawMessage{"a": json.RawMessage(`"\ud800 \ufffd"`)},
	} {
		var err error
		var got any
		switch v := v.(type) {
		case string:
			got, _, err = once(e, key, false, v)
		case json.RawMessage:
			got, _, err = once(e, key, false, v)
		case map[string]json.RawMessage:
			got, _, err = once(e, key, false, v)
		}
		if err != nil || !reflect.DeepEqual(got, v) {
			e.Errorf("%s: %q, %v", key, got, err)
		}
	}
}

// unreadRejection checks that a stored rejection that cannot be read is not said to be executed.
func unreadRejection[Tx any](e *env[Tx]) {
	o := idempotency.Options{Codec: mask{"mask:1", 0x5a}}
	reject := func(context.Context, Tx) (string, error) { return "", idempotency.Reject("no", "no") }
	if _, err := idempotency.Do(e.Ctx, e.Store(o), conformance.Op("a"), reject); err == nil {
		e.Fatal("it is not rejected")
	}
	var unread *idempotency.ResultError
	_, err := idempotency.Do(e.Ctx, e.Store(idempotency.Options{}), conformance.Op("a"), reject)
	if !errors.As(err, &unread) || !unread.Rejected {
		e.Errorf("%v", err)
	}
}
