package canonical

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"math/big"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf16"
	"unicode/utf8"
)

// decodedForm returns the canonical form by its definition: RFC 8785's form of what encoding/json
// has decoded, with the digits of each number.
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
	return appendValue(nil, v)
}

func appendValue(b []byte, v any) (_ []byte, err error) {
	switch v := v.(type) {
	case map[string]any:
		keys := slices.SortedFunc(maps.Keys(v), func(x, y string) int {
			return slices.Compare(utf16.Encode([]rune(x)), utf16.Encode([]rune(y)))
		})
		b = append(b, '{')
		for i, k := range keys {
			if i > 0 {
				b = append(b, ',')
			}
			if b, err = appendValue(append(appendString(b, k), ':'), v[k]); err != nil {
				return nil, err
			}
		}
		return append(b, '}'), nil
	case []any:
		b = append(b, '[')
		for i := range v {
			if i > 0 {
				b = append(b, ',')
			}
			if b, err = appendValue(b, v[i]); err != nil {
				return nil, err
			}
		}
		return append(b, ']'), nil
	case string:
		return appendString(b, v), nil
	case json.Number:
		_, err := v.Float64()
		text, small := exactForm(v.String())
		if err != nil || small {
			return nil, ErrNumber
		}
		return append(b, text...), nil
	}
	return fmt.Append(b, map[any]string{nil: "null", true: "true", false: "false"}[v]), nil
}

func appendString(b []byte, s string) []byte {
	b = append(b, '"')
	for _, r := range s {
		switch i := strings.IndexRune("\b\t\n\f\r\"\\", r); {
		case i >= 0:
			b = append(b, '\\', `btnfr"\`[i])
		case r < ' ':
			b = fmt.Appendf(b, `\u%04x`, r)
		default:
			b = utf8.AppendRune(b, r)
		}
	}
	return append(b, '"')
}

// exactForm is Number::toString of ECMA-262 for a number of any digits. small means that it is below
// 1e-9999.
func exactForm(number string) (text string, small bool) {
	mantissa, exponent, _ := strings.Cut(strings.ToLower(number), "e")
	whole, fraction, _ := strings.Cut(mantissa, ".")
	digits, ok := new(big.Int).SetString(whole+fraction, 10)
	n, _ := new(big.Int).SetString("0"+exponent, 10)
	if strings.HasPrefix(exponent, "-") || strings.HasPrefix(exponent, "+") {
		n, _ = new(big.Int).SetString(exponent, 10)
	}
	switch {
	case !ok || digits.Sign() == 0:
		return "0", false
	case digits.Sign() < 0:
		text, small = exactForm(number[1:])
		return "-" + text, small
	}
	s := digits.String()
	n.Add(n, big.NewInt(int64(len(s)-len(fraction))))
	if n.Cmp(big.NewInt(-9998)) < 0 {
		return "", true
	}
	return layout(strings.TrimRight(s, "0"), int(n.Int64())), false
}

// ecmaScript is Number::toString of ECMA-262, step by step.
func ecmaScript(f float64) string {
	switch {
	case f == 0:
		return "0"
	case f < 0:
		return "-" + ecmaScript(-f)
	}
	mantissa, exponent, _ := strings.Cut(strconv.FormatFloat(f, 'e', -1, 64), "e")
	n, _ := strconv.Atoi(exponent)
	return layout(strings.Replace(mantissa, ".", "", 1), n+1)
}

// layout writes the digits s of the number 0.s * 10^n.
func layout(s string, n int) string {
	switch k := len(s); {
	case k <= n && n <= 21:
		return s + strings.Repeat("0", n-k)
	case 0 < n && n <= 21:
		return s[:n] + "." + s[n:]
	case -6 < n && n <= 0:
		return "0." + strings.Repeat("0", -n) + s
	case k == 1:
		return fmt.Sprintf("%se%+d", s, n-1)
	default:
		return fmt.Sprintf("%s.%se%+d", s[:1], s[1:], n-1)
	}
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
		`[1.0,1e2,100,-0.0,1E30,4.50,2e-3,0.000000000000000000000000001,333333333.33333329,9007199254740993,123456789012345678901,1234567890123456789012,1e-400]`,
		`[1e-9999,10e-10000,9.99e-9999]`, `1e-10000`, `0e99999999999999999999`, `0.000e-99999999999999999999`, `1e-99999999999999999999`, `1e99999999999999999999`, `1.7976931348623157e308`,
		`1.7976931348623159e308`, `[9007199254740993.10,9007199254740993.90,1.000000000000000001,123456789012345678901e-21,4.9e-324,0.00000012345678901234567890]`,
		"{\"\ufb33\":1,\"😀\":2,\"\ue000\":3,\"\ud7ff\":4}",
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

// TestNumbersOfTheRFC has the samples of RFC 8785, appendix B.
func TestNumbersOfTheRFC(t *testing.T) {
	t.Parallel()
	for bits, want := range map[uint64]string{
		0x0000000000000000: "0", 0x8000000000000000: "0", 0x0000000000000001: "5e-324", 0x8000000000000001: "-5e-324",
		0x7fefffffffffffff: "1.7976931348623157e+308", 0xffefffffffffffff: "-1.7976931348623157e+308",
		0x4340000000000000: "9007199254740992", 0xc340000000000000: "-9007199254740992", 0x4430000000000000: "295147905179352830000",
		0x44b52d02c7e14af5: "9.999999999999997e+22", 0x44b52d02c7e14af6: "1e+23", 0x44b52d02c7e14af7: "1.0000000000000001e+23",
		0x444b1ae4d6e2ef4e: "999999999999999700000", 0x444b1ae4d6e2ef4f: "999999999999999900000", 0x444b1ae4d6e2ef50: "1e+21",
		0x3eb0c6f7a0b5ed8c: "9.999999999999997e-7", 0x3eb0c6f7a0b5ed8d: "0.000001",
		0x41b3de4355555553: "333333333.3333332", 0x41b3de4355555554: "333333333.33333325", 0x41b3de4355555555: "333333333.3333333",
		0x41b3de4355555556: "333333333.3333334", 0x41b3de4355555557: "333333333.33333343",
		0xbecbf647612f3696: "-0.0000033333333333333333", 0x43143ff3c1cb0959: "1424953923781206.2",
	} {
		f := math.Float64frombits(bits)
		if got := ecmaScript(f); got != want {
			t.Errorf("%#x: %s by the definition, want %s", bits, got, want)
		}
		if got := form(t, want); got != want {
			t.Errorf("%#x: %s, want %s", bits, got, want)
		}
	}
}

// TestSamplesOfTheRFC has the samples of RFC 8785, sections 3.2.2 and 3.2.3. Numbers keep their digits.
func TestSamplesOfTheRFC(t *testing.T) {
	t.Parallel()
	if got := form(t, `{
     "numbers": [333333333.33333329, 1E30, 4.50, 2e-3, 0.000000000000000000000000001],
     "string": "\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/",
     "literals": [null, true, false]
   }`); got != `{"literals":[null,true,false],"numbers":[333333333.33333329,1e+30,4.5,0.002,1e-27],"string":"€$\u000f\nA'B\"\\\\\"/"}` {
		t.Error(got)
	}
	if got := form(t, `{
     "\u20ac": "Euro Sign", "\r": "Carriage Return", "\ufb33": "Hebrew Letter Dalet With Dagesh",
     "1": "One", "\ud83d\ude00": "Emoji: Grinning Face", "\u0080": "Control", "\u00f6": "Latin Small Letter O With Diaeresis"
   }`); got != `{"\r":"Carriage Return","1":"One","`+"\u0080"+`":"Control","ö":"Latin Small Letter O With Diaeresis","€":"Euro Sign","😀":"Emoji: Grinning Face","`+"\ufb33"+`":"Hebrew Letter Dalet With Dagesh"}` {
		t.Error(got)
	}
}

func form(t *testing.T, text string) string {
	t.Helper()
	var b bytes.Buffer
	if err := Write(&b, []byte(text)); err != nil {
		t.Fatal(err)
	}
	return b.String()
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
		"a long number":  strings.Repeat("1", n) + "e-" + strconv.Itoa(n),
		"long numbers":   "[" + strings.Repeat("1.2345678901234567890123,", n/25) + "0]",
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
