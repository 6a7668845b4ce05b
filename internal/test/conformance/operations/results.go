package operations

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/internal/test/conformance"
)

// Results is the suite of the contents of a record and their lifetimes.
func Results[Tx any](t *testing.T, h conformance.Handle[Tx]) {
	for name, f := range map[string]func(*env[Tx]){
		"KindsOfResults":       kindsOfResults[Tx],
		"Codecs":               codecs[Tx],
		"HashedKeys":           hashedKeys[Tx],
		"BadResults":           badResults[Tx],
		"AnyKeepsNumbers":      anyKeepsNumbers[Tx],
		"Unstorable":           unstorable[Tx],
		"UnreadRejection":      unreadRejection[Tx],
		"IsolationOfCallers":   isolationOfCallers[Tx],
		"ReadOnlyCaller":       readOnlyCaller[Tx],
		"ManyInOneTransaction": manyInOneTransaction[Tx],
		"LeaseBecomesRecord":   leaseBecomesRecord[Tx],
		"LostLeaseMakesNone":   lostLeaseMakesNone[Tx],
		"BodyAndKeyApart":      bodyAndKeyApart[Tx],
		"ForEver":              forEver[Tx],
		"EraseOwner":           eraseOwner[Tx],
		"EraseStagedOwner":     eraseStagedOwner[Tx],
		"EraseManyPages":       eraseManyPages[Tx],
		"TwoVersionsTogether":  twoVersionsTogether[Tx],
		"InboxOnce":            inboxOnce[Tx],
		"InboxJoinsTheCaller":  inboxJoinsTheCaller[Tx],
		"OutboxRecipe":         outboxRecipe[Tx],
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(t, h, f)
		})
	}
}

// kind runs a function under key twice in two stores, with Do and with DoTx, and checks that
// each returns the same value.
func kind[T, Tx any](e *env[Tx], o idempotency.Options, key string, want T) {
	e.Helper()
	for _, joined := range []bool{false, true} {
		key := key
		if joined {
			key += " joined"
		}
		for _, outcome := range []idempotency.Outcome{idempotency.Executed, idempotency.Replayed} {
			fn := func(ctx context.Context, tx Tx) (T, error) { return want, e.Effect(ctx, tx, key) }
			var r idempotency.Result[T]
			var err error
			if s := e.Store(o); joined {
				tx := e.BeginTx(sql.LevelDefault)
				r, err = idempotency.DoTx(e.Ctx, s, tx, conformance.Op(key), fn)
				e.EndTx(tx, true)
			} else {
				r, err = idempotency.Do(e.Ctx, s, conformance.Op(key), fn)
			}
			if err != nil || r.Outcome != outcome || !reflect.DeepEqual(r.Value, want) {
				e.Errorf("%s: %v of %#v, %v, want %v of %#v", key, r.Outcome, r.Value, err, outcome, want)
			}
		}
		e.WantOnce(key)
	}
}

// receipt is a result with a business id.
type receipt struct {
	No    string
	Cents int64
	Lines []string
}

func (r receipt) BusinessID() string { return r.No }

// document is stored as its bytes and has a business id too.
type document []byte

func (d document) BusinessID() string { return strings.TrimSpace(string(d[:min(len(d), 4)])) }

func (e *env[Tx]) stored(key, column string) (v []byte) {
	e.Helper()
	if err := e.SQL.QueryRowContext(e.Ctx, e.Rebind(`SELECT `+column+` FROM holdfast_records WHERE op_key = $1`), []byte(key)).Scan(&v); err != nil {
		e.Fatal(err)
	}
	return v
}

func kindsOfResults[Tx any](e *env[Tx]) {
	var o idempotency.Options
	all := make([]byte, 256)
	for i := range all {
		all[i] = byte(i)
	}
	kind(e, o, "id", idempotency.ID("R-1"))
	kind(e, o, "struct", receipt{"R-2", 1<<53 + 1, []string{"é", "\u2028", "😀"}})
	kind(e, o, "pointer", &receipt{No: "R-3"})
	kind(e, o, "nil pointer", (*receipt)(nil))
	kind(e, o, "map", map[string]int64{"a": -1})
	kind(e, o, "time", time.Unix(1, 1000).UTC())
	kind(e, o, "nothing", struct{}{})
	kind(e, o, "raw JSON", json.RawMessage(`{"b":1,"a":2}`))
	kind(e, o, "bytes", all)
	kind(e, o, "empty", []byte(nil))
	kind(e, o, "named bytes", document("D-1 \x00\xff"))
	for key, want := range map[string][3]string{
		"id":          {`"R-1"`, "json", "R-1"},
		"struct":      {"", "json", "R-2"},
		"pointer":     {"", "json", "R-3"},
		"nil pointer": {"null", "json", ""},
		"bytes":       {string(all), "bytes", ""},
		"named bytes": {"D-1 \x00\xff", "bytes", "D-1"},
	} {
		if want[0] != "" && string(e.stored(key, "result")) != want[0] {
			e.Errorf("%s is stored as %q", key, e.stored(key, "result"))
		}
		if codec, id := e.stored(key, "codec"), e.stored(key, "business_id"); string(codec) != want[1] || string(id) != want[2] {
			e.Errorf("%s: codec %q, business id %q", key, codec, id)
		}
	}
	// A duplicate that asks for a type other than the stored one gets an error with the business
	// id; the operation counts as done.
	_, err := idempotency.Do(e.Ctx, e.Store(o), conformance.Op("named bytes"), func(context.Context, Tx) (receipt, error) {
		e.Error("it ran again")
		return receipt{}, nil
	})
	var r *idempotency.ResultError
	if !errors.As(err, &r) || r.Stored != "bytes" || r.BusinessID != "D-1" {
		e.Errorf("bytes as a struct: %v", err)
	}
}

// mask is a codec that visibly changes its input and binds the output to the key, as an AEAD
// does.
type mask struct {
	name string
	with byte
}

func (m mask) Name() string { return m.name }

func (m mask) Encode(plain, key []byte) ([]byte, error) {
	out := append(bytes.Clone(key[:4]), plain...)
	for i := range out {
		out[i] ^= m.with
	}
	return out, nil
}

func (m mask) Decode(stored, key []byte) ([]byte, error) {
	out := bytes.Clone(stored)
	for i := range out {
		out[i] ^= m.with
	}
	if len(out) < 4 || !bytes.Equal(out[:4], key[:4]) {
		return nil, errors.New("of another row")
	}
	return out[4:], nil
}

func codecs[Tx any](e *env[Tx]) {
	old, now := mask{"mask:1", 0x5a}, mask{"mask:2", 0xa5}
	kind(e, idempotency.Options{Codec: old}, "json", receipt{No: "R-1", Lines: []string{"personal"}})
	kind(e, idempotency.Options{Codec: old}, "bytes", []byte("personal"))
	reject := func(context.Context, Tx) (string, error) { return "", idempotency.Reject("no", "personal") }
	rejected := func(o idempotency.Options) {
		e.Helper()
		_, err := idempotency.Do(e.Ctx, e.Store(o), conformance.Op("rejected"), reject)
		var rej *idempotency.Rejection
		if !errors.As(err, &rej) || rej.Message != "personal" {
			e.Errorf("got %v", err)
		}
	}
	rejected(idempotency.Options{Codec: old})
	if n := e.Int(`SELECT COUNT(*) FROM holdfast_records WHERE codec IN ('json+mask:1', 'bytes+mask:1')`); n != 5 {
		e.Errorf("%d records name their codec", n)
	}
	for _, key := range []string{"json", "bytes", "rejected"} {
		if b := e.stored(key, "result"); bytes.Contains(b, []byte("personal")) {
			e.Errorf("%s is stored as %q", key, b)
		}
	}
	// The next version of the program uses another key and reads values of the former key.
	both := idempotency.Options{Codec: now, FormerCodecs: []idempotency.Codec{old}}
	rejected(both)
	never := func(context.Context, Tx) ([]byte, error) { e.Error("it ran again"); return nil, nil }
	if r, err := idempotency.Do(e.Ctx, e.Store(both), conformance.Op("bytes"), never); err != nil || string(r.Value) != "personal" {
		e.Errorf("%q, %v", r.Value, err)
	}
	// A codec without the former key, or a copied row, causes an error and no execution.
	var re *idempotency.ResultError
	if _, err := idempotency.Do(e.Ctx, e.Store(idempotency.Options{Codec: now}), conformance.Op("bytes"), never); !errors.As(err, &re) || !strings.Contains(err.Error(), "mask:1") {
		e.Errorf("without the codec: %v", err)
	}
	e.Must(`UPDATE holdfast_records SET result = $1 WHERE op_key = $2`, e.stored("bytes joined", "result"), []byte("bytes"))
	if _, err := idempotency.Do(e.Ctx, e.Store(both), conformance.Op("bytes"), never); !errors.As(err, &re) {
		e.Errorf("a copied result: %v", err)
	}
	// So does a result that was relabelled: as a rejection, or in another form.
	e.Must(`UPDATE holdfast_records SET state = 3 WHERE op_key = $1`, []byte("json joined"))
	if r, err := idempotency.Do(e.Ctx, e.Store(both), conformance.Op("json joined"), never); !errors.As(err, &re) {
		e.Errorf("a result as a rejection: %q, %v", r.Value, err)
	}
	e.Must(`UPDATE holdfast_records SET codec = 'bytes+mask:1' WHERE op_key = $1`, []byte("json"))
	if r, err := idempotency.Do(e.Ctx, e.Store(both), conformance.Op("json"), never); !errors.As(err, &re) {
		e.Errorf("JSON as bytes: %q, %v", r.Value, err)
	}
}

// broken is a codec that cannot decode its own output.
type broken struct{ mask }

func (broken) Decode([]byte, []byte) ([]byte, error) { return nil, nil }

type longID struct{}

func (longID) BusinessID() string { return strings.Repeat("x", 255+1) }

func badResults[Tx any](e *env[Tx]) {
	for name, o := range map[string]idempotency.Options{
		"no name":    {Codec: mask{}},
		"plus":       {Codec: mask{name: "a+b"}},
		"long":       {Codec: mask{name: strings.Repeat("x", 65)}},
		"nil former": {FormerCodecs: []idempotency.Codec{nil}},
	} {
		if _, err := idempotency.New(e.Ctx, e.DB, o); !errors.Is(err, holdfast.ErrInvalid) {
			e.Errorf("%s: %v", name, err)
		}
	}
	_, err := idempotency.Do(e.Ctx, e.Store(idempotency.Options{}), conformance.Op("id"), func(ctx context.Context, tx Tx) (longID, error) {
		return longID{}, e.Effect(ctx, tx, "id")
	})
	if !errors.Is(err, holdfast.ErrInvalid) {
		e.Errorf("a long business id: %v", err)
	}
	_, err = e.Do(e.Store(idempotency.Options{Codec: broken{mask{"b", 1}}}), conformance.Op("codec"))
	if !errors.Is(err, holdfast.ErrInvalid) {
		e.Errorf("a codec that does not decode: %v", err)
	}
	_, err = idempotency.Do(e.Ctx, e.Store(idempotency.Options{Codec: broken{mask{"b", 1}}}), conformance.Op("refused"), func(context.Context, Tx) (string, error) {
		return "", idempotency.Reject("no", "never")
	})
	if !errors.Is(err, holdfast.ErrInvalid) {
		e.Errorf("a codec that does not decode a rejection: %v", err)
	}
	if n := e.Effects("id") + e.Effects("codec") + e.Int(`SELECT COUNT(*) FROM holdfast_records`); n != 0 {
		e.Errorf("%d rows stand", n)
	}
}
