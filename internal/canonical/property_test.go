package canonical

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math/big"
	"slices"
	"strings"
	"testing"
	"unicode/utf16"

	"pgregory.net/rapid"

	"github.com/holdfast-go/holdfast/internal/test/property"
)

// number is digits * 10^exponent. Its digits do not begin with 0; zero is "0".
type number struct {
	negative bool
	digits   string
	exponent int
}

// members are an object. The other values are []any, string, number, bool and nil.
type members map[string]any

func texts() *rapid.Generator[string] {
	return rapid.Map(property.Text(20), func(s string) string { return strings.ToValidUTF8(s, "😀") })
}

// numbers are of up to 40 digits, in the range of a double and far below it.
func numbers() *rapid.Generator[number] {
	return rapid.Custom(func(t *rapid.T) number {
		n := number{negative: rapid.Bool().Draw(t, "negative"), digits: rapid.SampledFrom([]*rapid.Generator[string]{
			rapid.StringMatching(`[1-9][0-9]{14,21}`), rapid.Just("0"), rapid.StringMatching(`[1-9][0-9]{0,3}`), rapid.StringMatching(`[1-9][0-9]{30,40}`), rapid.StringMatching(`[1-9]0{15,20}[0-9]`),
		}).Draw(t, "length").Draw(t, "digits")}
		switch rapid.IntRange(0, 3).Draw(t, "size") {
		case 0:
			n.exponent = rapid.IntRange(-30, 10).Draw(t, "exponent")
		case 1:
			n.exponent = rapid.IntRange(-400, 260).Draw(t, "exponent")
		}
		return n
	})
}

func values(depth int) *rapid.Generator[any] {
	leaves := rapid.OneOf(rapid.Map(numbers(), toAny), rapid.Map(texts(), toAny), rapid.Map(rapid.Bool(), toAny), rapid.Just[any](nil))
	if depth == 0 {
		return leaves
	}
	inner := rapid.Deferred(func() *rapid.Generator[any] { return values(depth - 1) })
	return rapid.OneOf(
		rapid.Map(rapid.MapOfN(texts(), inner, 0, 5), func(m map[string]any) any { return members(m) }),
		rapid.Map(rapid.SliceOfN(inner, 0, 5), toAny),
		leaves,
	)
}

func toAny[T any](v T) any { return v }

// spelled draws one of the texts of a value.
func spelled(t *rapid.T, v any) string {
	space := func() string { return rapid.SampledFrom([]string{"", "", " ", "\n\t", "\r"}).Draw(t, "space") }
	text := "null"
	switch v := v.(type) {
	case members:
		list := []string{}
		for _, k := range permuted(t, slices.Sorted(maps.Keys(v))) {
			member := space() + quoted(t, k) + space() + ":" + spelled(t, v[k])
			if rapid.IntRange(0, 5).Draw(t, "repeated") == 0 {
				list = append(list, quoted(t, k)+`:{"old":[1]}`) // the last one counts
			}
			list = append(list, member)
		}
		text = "{" + strings.Join(list, ",") + space() + "}"
	case []any:
		list := []string{}
		for _, e := range v {
			list = append(list, spelled(t, e))
		}
		text = "[" + strings.Join(list, ",") + space() + "]"
	case string:
		text = quoted(t, v)
	case number:
		text = v.spelled(t)
	case bool:
		text = fmt.Sprint(v)
	}
	return space() + text + space()
}

func permuted(t *rapid.T, keys []string) []string {
	if len(keys) < 2 {
		return keys
	}
	return rapid.Permutation(keys).Draw(t, "order")
}

func quoted(t *rapid.T, s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range s {
		switch {
		case r < ' ' || r != '\ufffd' && rapid.IntRange(0, 4).Draw(t, "escape") == 0:
			for _, unit := range utf16.Encode([]rune{r}) {
				_, _ = fmt.Fprintf(&b, rapid.SampledFrom([]string{`\u%04x`, `\u%04X`}).Draw(t, "digits"), unit)
			}
		case r == '"' || r == '\\':
			b.WriteString(`\` + string(r))
		case r == '/' && rapid.Bool().Draw(t, "slash"):
			b.WriteString(`\/`)
		default:
			b.WriteRune(r)
		}
	}
	return b.String() + `"`
}

func (n number) spelled(t *rapid.T) string {
	zeros := rapid.IntRange(0, 3).Draw(t, "zeros")
	digits, exponent := n.digits+strings.Repeat("0", zeros), n.exponent-zeros
	point := rapid.IntRange(0, len(digits)).Draw(t, "point")
	whole, fraction := digits[:point], digits[point:]
	exponent += len(fraction)
	if point == 0 {
		before := rapid.IntRange(0, 3).Draw(t, "zeros before")
		whole, fraction, exponent = "0", strings.Repeat("0", before)+fraction, exponent+before
	}
	if whole = strings.TrimLeft(whole, "0"); whole == "" {
		whole = "0"
	}
	text := whole
	if fraction != "" {
		text += "." + fraction
	}
	if n.negative {
		text = "-" + text
	}
	if exponent != 0 || rapid.Bool().Draw(t, "e0") {
		text += rapid.SampledFrom([]string{"e", "E"}).Draw(t, "e") + fmt.Sprintf(rapid.SampledFrom([]string{"%d", "%+d", "%+03d"}).Draw(t, "sign"), exponent)
	}
	return text
}

func (n number) rat() *big.Rat {
	r, _ := new(big.Rat).SetString(fmt.Sprintf("%se%d", n.digits, n.exponent))
	if n.negative {
		r.Neg(r)
	}
	return r
}

// changed draws a value that differs from v in one place.
func changed(t *rapid.T, v any) any {
	switch v := v.(type) {
	case members:
		keys := slices.Sorted(maps.Keys(v))
		m := maps.Clone(v)
		fresh := texts().Filter(func(s string) bool { _, used := v[s]; return !used })
		if len(keys) == 0 {
			return rapid.SampledFrom([]any{members{"": nil}, []any{}, nil, "{}", members{"a": members{}}}).Draw(t, "of an empty object")
		}
		k := rapid.SampledFrom(keys).Draw(t, "member")
		switch rapid.IntRange(0, 4).Draw(t, "change") {
		case 0:
			delete(m, k)
		case 1:
			m[fresh.Draw(t, "added")] = nil
		case 2:
			m[fresh.Draw(t, "renamed")] = v[k]
			delete(m, k)
		default:
			m[k] = changed(t, v[k])
		}
		return m
	case []any:
		if len(v) == 0 {
			return rapid.SampledFrom([]any{members{}, nil, "[]", []any{[]any{}}, []any{nil}}).Draw(t, "of an empty array")
		}
		i := rapid.IntRange(0, len(v)-1).Draw(t, "element")
		list := slices.Clone(v)
		switch rapid.IntRange(0, 4).Draw(t, "change") {
		case 0:
			return slices.Delete(list, i, i+1)
		case 1:
			return append(list, nil)
		case 2:
			if i+1 < len(list) && definite(list[i]) != definite(list[i+1]) {
				list[i], list[i+1] = list[i+1], list[i]
				return list
			}
			return []any{v}
		}
		list[i] = changed(t, v[i])
		return list
	case string:
		if other := strings.ToValidUTF8(property.Other(t, v), ""); other != v {
			return other
		}
		return v + "x"
	case number:
		other := v
		change := rapid.IntRange(0, 3).Draw(t, "change")
		switch {
		case change == 3:
			return definite(v) // a text
		case change == 1 && v.digits != "0":
			other.negative = !v.negative
		case change == 2 && v.digits != "0":
			other.exponent--
		default:
			digits := []byte(v.digits)
			at := len(digits) - 1 - rapid.IntRange(0, len(digits)-1).Draw(t, "digit") // mostly one of the last
			digits[at] = '1' + (digits[at]-'0')%9                                     // 1 to 9, and another one
			other.digits = string(digits)
		}
		return other
	case bool:
		return rapid.SampledFrom([]any{!v, fmt.Sprint(v), nil}).Draw(t, "of a bool")
	}
	return rapid.SampledFrom([]any{false, "null", "", members{}, []any{}, number{digits: "0"}}).Draw(t, "of null")
}

// definite is one text for equal values, and another one for each other value.
func definite(v any) string {
	switch v := v.(type) {
	case members:
		text := "{"
		for _, k := range slices.Sorted(maps.Keys(v)) {
			text += fmt.Sprintf("%q:%s,", k, definite(v[k]))
		}
		return text + "}"
	case []any:
		text := "["
		for _, e := range v {
			text += definite(e) + ","
		}
		return text + "]"
	case string:
		return fmt.Sprintf("%q", v)
	case number:
		return v.rat().RatString()
	}
	return fmt.Sprint(v)
}

// parsed reads the canonical form back.
func parsed(v any) any {
	switch v := v.(type) {
	case map[string]any:
		m := members{}
		for k := range v {
			m[k] = parsed(v[k])
		}
		return m
	case []any:
		list := []any{}
		for _, e := range v {
			list = append(list, parsed(e))
		}
		return list
	case json.Number:
		text, exponent, _ := strings.Cut(v.String(), "e")
		text, negative := strings.CutPrefix(text, "-")
		whole, fraction, _ := strings.Cut(text, ".")
		n := number{negative, whole + fraction, -len(fraction)}
		if exponent != "" {
			var e int
			_, _ = fmt.Sscanf(exponent, "%d", &e)
			n.exponent += e
		}
		return n
	}
	return v
}

func formOf(t *rapid.T, text string) string {
	var b bytes.Buffer
	if err := Write(&b, []byte(text)); err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	return b.String()
}

// TestEverySpellingIsOneRequest spells a value twice: the order of members, white space, escapes, how a number
// is written and members that a later one replaces do not matter. The form has every value, to the last digit, and is its own form.
func TestEverySpellingIsOneRequest(t *testing.T) {
	t.Parallel()
	property.Check(t, func(t *rapid.T) {
		v := values(3).Draw(t, "value")
		one, two := spelled(t, v), spelled(t, v)
		form := formOf(t, one)
		if other := formOf(t, two); other != form {
			t.Fatalf("%q is %q, and %q is %q", one, form, two, other)
		}
		if again := formOf(t, form); again != form {
			t.Fatalf("%q is %q, and that is %q", one, form, again)
		}
		d := json.NewDecoder(strings.NewReader(form))
		d.UseNumber()
		var read any
		property.Must(t, d.Decode(&read))
		if got, want := definite(parsed(read)), definite(v); got != want {
			t.Fatalf("%q is %q: %s, want %s", one, form, got, want)
		}
	})
}

// TestEveryChangeIsAnotherRequest changes a value in one place: a digit, a sign, a type, a character, the name of a member, the
// order of an array, a member or an element more or less.
func TestEveryChangeIsAnotherRequest(t *testing.T) {
	t.Parallel()
	property.Check(t, func(t *rapid.T) {
		v := rapid.OneOf(rapid.Map(numbers(), toAny), values(3)).Draw(t, "value")
		other := changed(t, v)
		if definite(v) == definite(other) {
			t.Fatalf("the test changed nothing: %v, %v", v, other)
		}
		one, two := spelled(t, v), spelled(t, other)
		if form := formOf(t, one); form == formOf(t, two) {
			t.Fatalf("%q and %q are both %q", one, two, form)
		}
	})
}
