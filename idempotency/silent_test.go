package idempotency

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/big"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
)

type (
	money  struct{ cents int64 }
	Money  struct{ cents int64 }
	opaque struct { // as protoc-gen-go's opaque API makes them
		xxx_hidden_Order string
		xxx_hidden_Cents int64
	}
	// optional is as generators for OpenAPI write it: what is left out has its default.
	optional struct {
		Cents  *int64   `json:"cents,omitempty"`
		Reason *string  `json:"reason,omitempty"`
		Lines  []string `json:"lines,omitempty"`
		Next   *optional
	}
	inner struct{ Cents int64 }
	twice struct {
		inner
		other
	}
	other    struct{ Cents int64 }
	written  struct{ cents int64 }
	byText   struct{ cents int64 }
	byRef    struct{ cents int64 }
	failed   struct{ Code int }
	noFields struct{}
	tree     struct{ Left, Right *tree }
	day      struct{ time.Time }
	// dated and its like have the JSON of the type that they embed.
	dated struct {
		time.Time
		Cents int64
	}
	datedBelow struct{ dated }
	datedOwn   dated // has no method of its own
	priced     struct {
		written
		Order string
	}
	pricedByRef struct {
		*byRef
		Order string
	}
	pricedByText struct {
		byText
		Order string
	}
	asked struct {
		json.Marshaler
		Order string
	}
	// told and toldByRef embed one and say all.
	told struct {
		time.Time
		Cents int64
	}
	toldByRef told
)

func (d told) MarshalJSON() ([]byte, error)       { return json.Marshal(d.Cents) }
func (d *toldByRef) MarshalJSON() ([]byte, error) { return json.Marshal(d.Cents) }

func (w written) MarshalJSON() ([]byte, error) { return json.Marshal(w.cents) }
func (w byText) MarshalText() ([]byte, error)  { return fmt.Append(nil, w.cents), nil }
func (w *byRef) MarshalJSON() ([]byte, error)  { return json.Marshal(w.cents) }
func (failed) Error() string                   { return "failed" }

// TestSilentRequests has pairs of requests that encoding/json makes equal.
func TestSilentRequests(t *testing.T) {
	t.Parallel()
	_ = []any{money{}.cents, Money{}.cents, opaque{}.xxx_hidden_Order, opaque{}.xxx_hidden_Cents}
	var none *money
	for _, request := range []any{
		money{1},
		&money{1}, &opaque{"42", 1}, new(opaque), none,
		[]money{{1}},
		[]money{},
		[1]money{{1}},
		map[string]money{},
		[][]*money{},
		struct{ Amount money }{money{1}},
		struct{ Amount *money }{},
		struct{ Lines []struct{ Amount money } }{},
		struct{ Order map[string]*money }{},
		struct {
			Amount money `json:"amount,omitzero"`
		}{},
		struct {
			Order string
			Money
		}{"42", Money{1}},
		twice{inner{1}, other{2}},
		struct {
			Order  string
			Refund twice
		}{},
		errors.New("a"), fmt.Errorf("b: %w", io.EOF), context.DeadlineExceeded,
		failed{1},
		struct{ Err error }{},
		struct{ Err failed }{},
		strings.NewReader("a"), bytes.NewBufferString("a"), io.LimitReader(strings.NewReader("a"), 1),
		struct{ Body io.Reader }{},
		*big.NewInt(1),
		struct{ Amount big.Int }{},
		byRef{1},
		map[string]byRef{},
		struct{ Mu sync.Mutex }{},
		map[string]any{"order": "42", "amount": money{1}},
		[]any{1, &money{1}},
		struct{ Any any }{money{1}},
		map[string]any{"a": []any{map[string]any{"b": opaque{}}}},
		map[string]any{"error": errors.New("a")},
		struct{ Any any }{struct{ Next any }{strings.NewReader("a")}},
		dated{Cents: 1},
		&dated{Cents: 1},
		datedBelow{},
		datedOwn{},
		priced{},
		pricedByText{},
		[]dated{},
		struct{ At dated }{},
		struct{ At *dated }{},
		(*dated)(nil),
		&priced{},
		pricedByRef{byRef: &byRef{}},
		asked{Marshaler: written{}},
		&asked{Marshaler: written{}},
		map[string]any{"at": dated{}},
		toldByRef{Cents: 1},
		&struct {
			byRef
			Order string
		}{},
	} {
		b, err := Canonical(request)
		var input *holdfast.InputError
		if !errors.As(err, &input) || !strings.Contains(err.Error(), "export its fields") {
			t.Errorf("%T: %s, %v", request, b, err)
		}
	}
}

// TestOpenRequests has requests that say what they are, some of which have an empty JSON.
func TestOpenRequests(t *testing.T) {
	t.Parallel()
	cents, zero := int64(1), int64(0)
	var nothing *optional
	for want, requests := range map[string][]any{
		`{"Next":null}`:           {optional{}, &optional{}},
		`null`:                    {nothing, nil},
		`{"Next":null,"cents":1}`: {optional{Cents: &cents}},
		`{"Next":null,"cents":0}`: {optional{Cents: &zero}},
		`{}`: {map[string]any{}, struct{}{}, noFields{}, struct {
			A *int `json:",omitempty"`
		}{}, &struct {
			A string `json:",omitzero"`
		}{}},
		`[{},{}]`: {[]any{map[string]any{}, struct{}{}}, []struct {
			A int `json:",omitempty"`
		}{{}, {}}},
		`{"Any":{}}`: {struct{ Any any }{struct {
			A []int `json:",omitempty"`
		}{}}},
		`"{}"`: {"{}"},
		`1`: {written{1}, big.NewInt(1), &byRef{1}, told{Cents: 1}, &told{Cents: 1}, &toldByRef{Cents: 1}, struct{ written }{written{1}}, &struct{ *byRef }{&byRef{1}}, struct {
			written
			order string
			Skip  int `json:"-"`
		}{written: written{1}}},
		`"1970-01-01T00:00:00Z"`: {day{time.Unix(0, 0).UTC()}, &day{time.Unix(0, 0).UTC()}},
		`"1"`:                    {byText{1}},
		`[1]`:                    {[]byRef{{1}}, []any{&byRef{1}}, &[1]byRef{{1}}},
		`{"Cents":1}`:            {inner{1}, struct{ *inner }{&inner{1}}, struct{ Cents written }{written{1}}, &struct{ Cents byRef }{byRef{1}}},
		`{"Left":null,"Right":{"Left":null,"Right":null}}`: {tree{Right: &tree{}}},
		`{"A":"1970-01-01T00:00:00Z"}`:                     {struct{ A time.Time }{time.Unix(0, 0).UTC()}},
		`{"A":1}`: {struct {
			A  int
			Mu sync.Mutex `json:"-"`
			b  money
		}{A: 1}},
	} {
		for _, request := range requests {
			if got, err := Canonical(request); err != nil || string(got) != want {
				t.Errorf("%T: %s, %v, want %s", request, got, err, want)
			}
		}
	}
}
