// Package property runs properties: facts that hold for every input and for every sequence of calls, which
// pgregory.net/rapid draws. The draws are the same in each run, so that CI does not fail on one day alone. A
// failure is made small and printed with its seed.
//
//	RAPID_SEED=0 RAPID_CHECKS=400 go test ./internal/test/property -run TestSumsOfALimit    # other draws, and more
//	RAPID_SEED=42 go test ./internal/test/property -run TestSumsOfALimit                    # the seed of a failure
package property

import (
	"flag"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/holdfast-go/holdfast/internal/test/race"
)

// defaults are rapid's flags: how many draws a property has, and how many steps a sequence of calls has on average. The
// command line and rapid's variables, such as RAPID_SEED, go before. A failure leaves no file behind.
var defaults = map[string]string{"checks": "200", "steps": "20", "seed": "1", "nofailfile": "true", "shrinktime": "10s"}

func init() { //nolint:gochecknoinits // before the flags are parsed
	for name, value := range defaults {
		set(name, value)
	}
}

// Checks changes how many draws the properties of a package have, for those that a database answers. Call it from TestMain.
func Checks(n int) { set("checks", strconv.Itoa(n)) }

func set(name, value string) {
	if _, given := os.LookupEnv("RAPID_" + strings.ToUpper(name)); given {
		return
	}
	if err := flag.Set("rapid."+name, value); err != nil {
		panic(err)
	}
}

// Check fails the test if a draw breaks the property. The property fails by its own t, never by the test's.
func Check(t *testing.T, property func(t *rapid.T)) {
	t.Helper()
	if race.Enabled {
		t.Skip("not under the race detector: a property calls from one goroutine")
	}
	rapid.Check(t, property)
}

// Often is Check with five times as many draws, for properties without a database.
func Often(t *testing.T, property func(t *rapid.T)) {
	t.Helper()
	Check(t, func(t *rapid.T) {
		for range 5 {
			property(t)
		}
	})
}

// Must fails the property on an error.
func Must(t *rapid.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// confusable are texts that are taken for each other where case, white space, accents, zero bytes, escapes,
// separators or bytes that are no UTF-8 are not compared exactly.
var confusable = map[string][]string{
	"a": {"A", "а", "a\u0301"}, "A": {"a"}, "é": {"e\u0301", "e", "É"}, "e\u0301": {"é"}, " ": {"", "\t", "\u00a0", "  "}, "\x00": {"", "\x00\x00", " "},
	"/": {"%2F", "%2f", "//"}, "%2F": {"/", "%252F"}, "%": {"%25", "%%"}, "ß": {"ss", "ẞ"}, "ﬁ": {"fi"}, "0": {"00", "O"}, "1": {"01", "１"}, "\xff": {"\xfe", "\ufffd"},
	"'": {"''", `\'`}, `\`: {`\\`}, "_": {"-", "%"}, "l": {"L", "I"},
}

// Text draws a text that is easily taken for others. Some are about as long as the bound of n bytes: a byte less, as long, or a byte more.
func Text(n int) *rapid.Generator[string] {
	part := rapid.SampledFrom(slices.Sorted(maps.Keys(confusable)))
	return rapid.Custom(func(t *rapid.T) string {
		text := strings.Join(rapid.SliceOfN(part, 0, 6).Draw(t, "parts"), "")
		if long := rapid.IntRange(-1, 9).Draw(t, "more than the bound"); long <= 1 {
			text = strings.Repeat("k", max(n+long-len(text), 0)) + text
		}
		for len(text) > n+1 {
			text = text[1:]
		}
		return text
	})
}

// Other draws a text that is not text, and is easily taken for it.
func Other(t *rapid.T, text string) string {
	var others []string
	for from, to := range confusable {
		for at := 0; ; {
			i := strings.Index(text[at:], from)
			if i < 0 {
				break
			}
			for _, other := range to {
				others = append(others, text[:at+i]+other+text[at+i+len(from):])
			}
			at += i + len(from)
		}
	}
	if text != "" {
		others = append(others, text[:len(text)-1], text[1:])
	}
	others = append(others, text+" ", text+"a", " "+text, text+"\x00")
	slices.Sort(others)
	return rapid.SampledFrom(slices.Compact(others)).Draw(t, "other")
}
