package idempotency

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/big"
	"net/url"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/holdfast-go/holdfast/idempotency/internal/once"
	"github.com/holdfast-go/holdfast/internal/test/property"
)

// scope is what a record is found by: namespace, owner, operation and key.
type scope [4]string

func drawScope(t *rapid.T) scope {
	return scope{property.Text(10).Draw(t, "namespace"), property.Text(128).Draw(t, "owner"), property.Text(128).Draw(t, "operation"), property.Text(1024).Draw(t, "key")}
}

// confused draws another scope, or the same: a part that differs by little, or a boundary that moves.
func (s scope) confused(t *rapid.T) scope {
	at := rapid.IntRange(0, 3).Draw(t, "part")
	switch rapid.IntRange(0, 2).Draw(t, "change") {
	case 0:
		s[at] = property.Other(t, s[at])
	case 1:
		next := (at + 1) % len(s)
		text := s[at] + s[next]
		cut := rapid.IntRange(0, len(text)).Draw(t, "cut")
		s[at], s[next] = text[:cut], text[cut:]
	}
	return s
}

func (s scope) call(t *rapid.T, h *KeyHasher) (*call, bool) {
	o := Options{Namespace: s[0], HashKeys: h}
	c, err := o.check(Op{Owner: s[1], Name: s[2], Key: s[3], NoFingerprint: true})
	good := len(s[3]) >= 1 && len(s[3]) <= 1024
	for _, name := range s[1:3] {
		good = good && name != "" && len(name) <= 128 && utf8.ValidString(name) && !strings.Contains(name, "\x00")
	}
	if good != (err == nil) {
		t.Fatalf("%q: %v", s, err)
	}
	return c, good
}

func hasher(t *testing.T, letter string) *KeyHasher {
	t.Helper()
	h, err := NewKeyHasher([]byte(strings.Repeat(letter, minKeySecret)))
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// TestEveryScopeHasItsRecord draws scopes that are easily taken for each other: two have one record only if they are the same, with keys in
// clear and hashed, and nothing is cut.
func TestEveryScopeHasItsRecord(t *testing.T) {
	t.Parallel()
	hashers := []*KeyHasher{nil, hasher(t, "s")}
	property.Often(t, func(t *rapid.T) {
		one := drawScope(t)
		two := one.confused(t)
		for _, h := range hashers {
			a, ok1 := one.call(t, h)
			b, ok2 := two.call(t, h)
			if !ok1 || !ok2 {
				return
			}
			if h == nil && (a.op.Key != one[3] || a.key[0] != one[1]) || len(h.Key(one[3])) > MaxKey {
				t.Fatalf("%q is kept as %q", one, a.op.Key)
			}
			if same := one == two; (a.hash == b.hash) != same || (a.op.Key == b.op.Key) != (one[3] == two[3]) {
				t.Fatalf("%q and %q: one record is %v", one, two, a.hash == b.hash)
			}
		}
	})
}

// TestHashesOfKeys checks that a hashed key names the same operation as the key, that each key has its own under each secret, and that none is made for
// another secret's.
func TestHashesOfKeys(t *testing.T) {
	t.Parallel()
	h, foreign := hasher(t, "s"), hasher(t, "t")
	property.Check(t, func(t *rapid.T) {
		key := property.Text(64).Draw(t, "key")
		hashed := h.Key(key)
		if h.Key(hashed) != hashed || len(hashed) != len(h.Key("")) || len(key) > 8 && strings.Contains(hashed, key) {
			t.Fatalf("%q is %q, and that is %q", key, hashed, h.Key(hashed))
		}
		if other := property.Other(t, key); h.Key(other) == hashed {
			t.Fatalf("%q and %q are both %q", key, other, hashed)
		}
		if again := foreign.Key(hashed); again == hashed || foreign.Key(key) == hashed {
			t.Fatalf("another secret also has %q for %q", hashed, key)
		}
		if other := property.Other(t, hashed); h.Key(other) == other {
			t.Fatalf("%q counts as made", other)
		}
	})
}

// TestKeyOfIsRead reads the parts of a key back, so different parts never make the same key.
func TestKeyOfIsRead(t *testing.T) {
	t.Parallel()
	property.Often(t, func(t *rapid.T) {
		parts := rapid.SliceOfN(property.Text(20), 1, 4).Draw(t, "parts")
		key := KeyOf(parts...)
		read := strings.Split(key, "/")
		for i := range read {
			part, err := url.PathUnescape(read[i])
			property.Must(t, err)
			read[i] = part
		}
		if !slices.Equal(read, parts) {
			t.Fatalf("%q is %q, which is read as %q", parts, key, read)
		}
	})
}

// TestPartsOfHashes draws lists of texts: the hash of a key, and that of a Similar, is another one for every other list.
func TestPartsOfHashes(t *testing.T) {
	t.Parallel()
	property.Often(t, func(t *rapid.T) {
		one := rapid.SliceOfN(property.Text(10), 0, 5).Draw(t, "parts")
		two := slices.Clone(one)
		if len(one) == 0 || rapid.Bool().Draw(t, "longer") {
			two = append(two, "")
		} else {
			at := rapid.IntRange(0, len(one)-1).Draw(t, "at")
			cut := rapid.IntRange(0, len(one[at])).Draw(t, "cut")
			two = slices.Insert(two, at, one[at][:cut])
			two[at+1] = one[at][cut:]
		}
		if once.HashKey(one...) == once.HashKey(two...) || once.HashSimilar("n", "o", "p", one) == once.HashSimilar("n", "o", "p", two) {
			t.Fatalf("%q and %q share a hash", one, two)
		}
	})
}

// amount is whole / 10^decimals.
type amount struct {
	whole    int64
	decimals int
}

func (a amount) String() string {
	text := fmt.Sprintf("%0*d", a.decimals+1, a.whole)
	return strings.TrimSuffix(text[:len(text)-a.decimals]+"."+text[len(text)-a.decimals:], ".")
}

func rat(n json.Number) *big.Rat { r, _ := new(big.Rat).SetString(n.String()); return r }

// TestOneRequestInEveryForm gives one request as a struct, as a map, as JSON from outside with its members in another order and its numbers written otherwise:
// one fingerprint. An amount, a type, a name or an order that differs is another request.
func TestOneRequestInEveryForm(t *testing.T) {
	t.Parallel()
	type request struct {
		Order  string        `json:"order"`
		Amount json.Number   `json:"amount"`
		Cents  *big.Int      `json:"cents"`
		Lines  []json.Number `json:"lines"`
		Note   *string       `json:"note,omitempty"`
	}
	property.Check(t, func(t *rapid.T) {
		text := rapid.Map(property.Text(12), func(s string) string { return strings.ToValidUTF8(s, "?") })
		numbers := rapid.Custom(func(t *rapid.T) amount {
			return amount{rapid.OneOf(rapid.Int64Range(0, 1_000_000), rapid.Int64Min(1<<53)).Draw(t, "whole"), rapid.IntRange(0, 18).Draw(t, "decimals")}
		})
		a, lines := numbers.Draw(t, "amount"), rapid.SliceOfN(numbers, 0, 3).Draw(t, "lines")
		own := request{Order: text.Draw(t, "order"), Amount: json.Number(a.String()), Cents: new(big.Int).Mul(big.NewInt(a.whole), big.NewInt(1_000_003)), Lines: []json.Number{}}
		for _, l := range lines {
			own.Lines = append(own.Lines, json.Number(l.String()))
		}
		if rapid.Bool().Draw(t, "noted") {
			note := text.Draw(t, "note")
			own.Note = &note
		}
		asMap := map[string]any{"lines": own.Lines, "cents": own.Cents, "order": own.Order, "amount": own.Amount}
		if own.Note != nil {
			asMap["note"] = *own.Note
		}
		outside := "{"
		for _, name := range rapid.Permutation(slices.Sorted(maps.Keys(asMap))).Draw(t, "members") {
			value, err := json.Marshal(asMap[name])
			property.Must(t, err)
			if name == "amount" {
				value = fmt.Appendf(nil, "%de-%d", a.whole, a.decimals)
			}
			outside += fmt.Sprintf(" %q :\t%s,", name, value)
		}
		outside = strings.TrimSuffix(outside, ",") + "\n}"
		fingerprint := func(v any) []byte {
			p, err := takeFingerprints(Op{Request: v})
			property.Must(t, err)
			return p.own
		}
		want := fingerprint(own)
		for _, v := range []any{&own, asMap, json.RawMessage(outside)} {
			if !slices.Equal(fingerprint(v), want) {
				t.Fatalf("%+v and %s are two requests", own, v)
			}
		}
		other := maps.Clone(asMap)
		change := rapid.SampledFrom([]string{"a digit", "cents", "a type", "order", "a line", "the lines' order", "null", "a name", "less"}).Draw(t, "change")
		switch change {
		case "a digit":
			other["amount"] = json.Number(amount{a.whole ^ 1, a.decimals}.String())
		case "cents":
			other["cents"] = new(big.Int).Add(own.Cents, big.NewInt(1))
		case "a type":
			other["amount"] = a.String()
		case "order":
			if other["order"] = strings.ToValidUTF8(property.Other(t, own.Order), ""); other["order"] == own.Order {
				return
			}
		case "a line":
			other["lines"] = append(slices.Clone(own.Lines), "0")
		case "the lines' order":
			turned := slices.Clone(own.Lines)
			slices.Reverse(turned)
			if slices.EqualFunc(turned, own.Lines, func(x, y json.Number) bool { return rat(x).Cmp(rat(y)) == 0 }) {
				return
			}
			other["lines"] = append(turned, "1")
			asMap["lines"] = append(slices.Clone(own.Lines), "1")
			want = fingerprint(asMap)
		case "null":
			other["order"] = nil
		case "a name":
			other["Amount"] = other["amount"]
			delete(other, "amount")
		case "less":
			delete(other, "cents")
		}
		if slices.Equal(fingerprint(other), want) {
			t.Fatalf("%s differs, and %+v and %+v are one request", change, asMap, other)
		}
	})
}
