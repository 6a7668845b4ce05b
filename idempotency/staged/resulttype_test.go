package staged

import (
	"encoding/json"
	"math/big"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/idempotency"
)

type shapeBase struct {
	ID   int64 `json:"id"`
	Note string
}

type shapeNode struct {
	Value int8       `json:"value"`
	Next  *shapeNode `json:"next"`
}

type shapeReceipt struct {
	shapeBase
	*json.Decoder `json:"-"`
	Ref           string            `json:"ref"`
	Note          *string           `json:"note,omitempty"`
	Lines         []uint16          `json:"lines"`
	Extra         map[string]bool   `json:"extra"`
	Raw           []byte            `json:"raw"`
	At            time.Time         `json:"at"`
	IP            netip.Addr        `json:"ip"`
	Total         *big.Int          `json:"total"`
	Quoted        int               `json:"quoted,string"`
	Any           any               `json:"any"`
	Pair          [2]float64        `json:"pair"`
	Deep          map[string][]bool `json:"deep"`
	hidden        string
}

// checked returns an error unless the JSON text may replace a value of type T.
func checked[T any](text string) error {
	_, err := conform(resultType[T](), json.RawMessage(text))
	return err
}

func TestResultTypes(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		check func(string) error
		right []string
		wrong []string
	}{
		"string": {check: checked[string], right: []string{`""`, `"a"`}, wrong: []string{`null`, `1`, `{}`, `["a"]`, `true`, `a`, ``}},
		"bool":   {check: checked[bool], right: []string{`true`}, wrong: []string{`null`, `"true"`, `1`}},
		"int64": {check: checked[int64], right: []string{`9223372036854775807`, `-1`}, wrong: []string{
			`9223372036854775808`, `1.0`, `1e3`, `"1"`, `null`,
		}},
		"uint8":   {check: checked[uint8], right: []string{`255`}, wrong: []string{`256`, `-1`}},
		"float64": {check: checked[float64], right: []string{`1`, `1.5e3`}, wrong: []string{`1e999`, `"1"`}},
		"pointer": {check: checked[*string], right: []string{`null`, `"a"`}, wrong: []string{`1`}},
		"list":    {check: checked[[]string], right: []string{`null`, `[]`, `["a"]`}, wrong: []string{`[1]`, `["a", null]`, `"a"`, `{}`}},
		"map":     {check: checked[map[string]int], right: []string{`{}`, `{"a": 1}`}, wrong: []string{`{"a": "1"}`, `[]`}},
		"bytes":   {check: checked[[]byte], right: []string{`"aGk="`, `""`}, wrong: []string{`"?"`, `null`, `12`}},
		"empty":   {check: checked[struct{}], right: []string{`{}`}, wrong: []string{`1`, `null`}},
		"any":     {check: checked[any], right: []string{`null`, `1`, `{"a": []}`}, wrong: []string{`{`}},
		"own":     {check: checked[ownJSON], right: []string{`"2026-01-02T03:04:05Z"`, `1`}},
		"time":    {check: checked[time.Time], right: []string{`"2026-01-02T03:04:05Z"`}, wrong: []string{`1`, `"yesterday"`, `null`}},
		"text":    {check: checked[netip.Addr], right: []string{`"10.0.0.1"`}, wrong: []string{`1`, `null`}},
		"number":  {check: checked[json.Number], right: []string{`12.50`}},
		"tree":    {check: checked[shapeNode], right: []string{`{"value": 1, "next": {"value": 2, "next": null}}`}, wrong: []string{`{"value": 1000}`, `{"left": 1}`}},
		"struct": {check: checked[shapeReceipt], right: []string{
			`{}`, `{"id": 1, "ref": "a", "note": null, "lines": [1, 65535], "extra": {"a": true}, "raw": "aGk=", "at": "2026-01-02T03:04:05Z"}`,
			`{"ip": "::1", "total": 123456789012345678901234567890, "quoted": "1", "any": [{}], "pair": [1, 2.5], "deep": {"a": [true]}, "Note": "b"}`,
		}, wrong: []string{
			`null`, `"a"`, `{"reff": "a"}`, `{"ref": null}`, `{"ref": 1}`, `{"lines": [65536]}`, `{"extra": {"a": 1}}`, `{"raw": "?"}`,
			`{"hidden": "a"}`, `{"Decoder": {}}`, `{"deep": {"a": [1]}}`, `{"id": "1"}`, `{"pair": ["1"]}`, `{"ip": 1}`,
		}},
	} {
		for _, text := range c.right {
			if err := c.check(text); err != nil {
				t.Errorf("%s: %s: %v", name, text, err)
			}
		}
		for _, text := range c.wrong {
			if err := c.check(text); err == nil {
				t.Errorf("%s: %s is taken", name, text)
			}
		}
	}
}

// Every value that the program itself would store is accepted as a result of its type.
func TestResultTypesTakeTheirOwn(t *testing.T) {
	t.Parallel()
	note := "n"
	full := shapeReceipt{
		shapeBase: shapeBase{ID: 1}, Ref: "r", Note: &note, Lines: []uint16{1}, Extra: map[string]bool{"a": true}, Raw: []byte("x"), At: time.Unix(1, 0),
		Total: big.NewInt(7), Any: map[string]any{"a": 1}, Deep: map[string][]bool{"a": nil}, hidden: "h",
	}
	for _, v := range []shapeReceipt{full, {}} {
		if got, err := conform(resultType[shapeReceipt](), v); err != nil || !reflect.DeepEqual(got, v) {
			t.Errorf("%+v: %v", v, err)
		}
	}
	for stored, v := range map[string]any{resultType[[]byte](): []byte("x"), resultType[*shapeNode](): (*shapeNode)(nil), resultType[idempotency.ID](): idempotency.ID("r"), "": 1} {
		if _, err := conform(stored, v); err != nil {
			t.Errorf("%s: %v", stored, err)
		}
	}
	for stored, v := range map[string]any{resultType[string](): []byte("x"), resultType[[]byte](): "aGk=", resultType[any](): []byte("x")} {
		if _, err := conform(stored, v); err == nil {
			t.Errorf("%s: %v is taken", stored, v)
		}
	}
}

func TestResultTypeForPeople(t *testing.T) {
	t.Parallel()
	type receipt struct {
		Ref   string   `json:"ref"`
		Lines []string `json:"lines"`
		By    map[string]int8
	}
	const want = `{"By": {*: int8} or null, "lines": [string] or null, "ref": string}`
	if got := readShape(resultType[receipt]()).String(); got != want {
		t.Errorf("got %s", got)
	}
	_, err := conform(resultType[receipt](), map[string]string{"secret": "DE00"})
	if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") || strings.Contains(err.Error(), "DE00") {
		t.Errorf("got %v", err)
	}
	// If a type's description is too long to store, only the outermost kind is stored.
	var fields []reflect.StructField
	for n := range 200 {
		name := "F" + strings.Repeat("x", n)
		fields = append(fields, reflect.StructField{Name: name, Type: reflect.TypeFor[string]()})
	}
	stored := storedShape(reflect.StructOf(fields))
	if _, err := conform(stored, map[string]int{"a": 1}); err != nil || len(stored) > maxShape {
		t.Errorf("%d bytes, %v", len(stored), err)
	}
	if _, err := conform(stored, 1); err == nil {
		t.Error("a number is taken for an object")
	}
}

// ownJSON reads its JSON itself.
type ownJSON struct{}

func (*ownJSON) UnmarshalJSON([]byte) error { return nil }
