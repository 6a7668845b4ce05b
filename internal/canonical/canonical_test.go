package canonical

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"unicode/utf16"
	"unicode/utf8"
)

// decodedForm returns the canonical form by its definition: encoding/json's output for what
// encoding/json has decoded.
func decodedForm(text []byte) ([]byte, error) {
	b, err := json.Marshal(json.RawMessage(text))
	if err != nil {
		return nil, ErrSyntax
	}
	if replaced(b) {
		return nil, ErrText
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return nil, ErrSyntax
	}
	return json.Marshal(v)
}

var escape = regexp.MustCompile(`(?i)\\(?:ud[89ab][0-9a-f]{2}\\ud[c-f][0-9a-f]{2}|u[0-9a-f]{4}|.)`)

func replaced(b []byte) bool {
	for _, e := range escape.FindAll(b, -1) {
		if len(e) != len(`\uffff`) {
			continue
		}
		code, err := strconv.ParseUint(string(e[2:]), 16, 16)
		if err != nil || code == utf8.RuneError || utf16.IsSurrogate(rune(code)) {
			return true
		}
	}
	return !utf8.Valid(b)
}

// FuzzWrite checks that Write gives the form of the definition and refuses the same inputs.
func FuzzWrite(f *testing.F) {
	for _, s := range []string{
		`{"b":1,"a":[1,2]}`, `"\ud800"`, "\"\xff\"", `"\ud83d\ude00"`, `"\\ud800"`, `1e400`, `{"a":1,"a":2}`, `"\ufffd"`, "\"\ufffd\"", `[]`, `-0`, ` null `,
		`"\u2028<&>"`, "\"\u2028\u2029\x7f\"", `{"\u0061":1,"b":{"z":[{},{"y":1,"x":2}],"a":3},"a":{"c":1,"b":2}}`, `[[],[[]],{},[{}]]`, `{"":0,"a":{"":1}}`,
		` [ 1 , true , false , { } , "\b\f\n\r\t\/\"\\\u0000" ] `, `{"<":1,"\u003c":2,"é":3,"😀":4}`, `"\uD83D\u0041"`, `{"a":1,}`, ``, `"`, `{"\ud800":1,"\ud800":2}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var got bytes.Buffer
		err := Write(&got, text)
		want, wantErr := decodedForm(text)
		if !errors.Is(err, wantErr) || err == nil && !bytes.Equal(got.Bytes(), want) {
			t.Fatalf("%q: %q, %v, want %q, %v", text, got.Bytes(), err, want, wantErr)
		}
	})
}

// counter counts the bytes written to it.
type counter struct{ n int }

func (c *counter) Write(p []byte) (int, error) { c.n += len(p); return len(p), nil }

// large returns texts of about a mebibyte that need much memory in a careless decoder.
func large() map[string]string {
	const n = 1 << 20
	deep := func(open, inner, end string) string {
		const levels = 9_000 // encoding/json accepts 10,000
		return strings.Repeat(open, levels) + inner + strings.Repeat(end, levels)
	}
	return map[string]string{
		"<":              `"` + strings.Repeat("<", n) + `"`,
		"escapes":        `"` + strings.Repeat(`\u003c`, n/6) + `"`,
		"arrays":         "[" + strings.Repeat("[],", n/3) + "[]]",
		"objects":        "[" + strings.Repeat("{},", n/3) + "{}]",
		"numbers":        "[" + strings.Repeat("0,", n/2) + "0]",
		"one member":     "{" + strings.Repeat(`"":0,`, n/5) + `"":0}`,
		"escaped member": "{" + strings.Repeat(`"\n":0,`, n/7) + `"":0}`,
		"deep":           deep(`{"b":`, `"`+strings.Repeat("x", n)+`"`, `,"a":0}`),
		"white space":    strings.Repeat(" ", n) + "0",
	}
}

// TestMemoryIsLinear counts the bytes on the heap and the bytes written.
func TestMemoryIsLinear(t *testing.T) { //nolint:paralleltest // it reads the heap's counters
	for name, text := range large() {
		var before, after runtime.MemStats
		var out counter
		b := []byte(text)
		runtime.ReadMemStats(&before)
		err := Write(&out, b)
		runtime.ReadMemStats(&after)
		took := float64(after.TotalAlloc-before.TotalAlloc) / float64(len(b))
		if err != nil || took > 16 || out.n > 6*len(b) {
			t.Errorf("%s: %.1f bytes a byte, %d written for %d, %v", name, took, out.n, len(b), err)
		}
		t.Logf("%s: %.1f bytes a byte", name, took)
	}
}

// TestWriteFails checks that an error of the writer is returned.
func TestWriteFails(t *testing.T) {
	t.Parallel()
	r, w := io.Pipe()
	gone := errors.New("gone")
	_ = r.CloseWithError(gone)
	if err := Write(w, []byte(`{"a":1}`)); !errors.Is(err, gone) {
		t.Errorf("got %v", err)
	}
}
