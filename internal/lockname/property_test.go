package lockname

import (
	"bytes"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/test/property"
)

type lock struct {
	kind       Kind
	owner, key string
}

// name returns the lock's name, if its owner and its key are within their bounds.
func (l lock) name(t *rapid.T) (Name, bool) {
	n, err := Of(l.kind, core.AnyOwner.Owner(l.owner), l.key)
	good := len(l.key) >= 1 && len(l.key) <= 1024 && len(l.owner) <= 128 && utf8.ValidString(l.owner) && !strings.Contains(l.owner, "\x00")
	if good != (err == nil) {
		t.Fatalf("%+v: %v", l, err)
	}
	return n, good
}

// TestEveryLockHasItsName draws locks that are easily taken for each other: no two have one row, no name is cut, and a row is read as
// the lock that has it.
func TestEveryLockHasItsName(t *testing.T) {
	t.Parallel()
	property.Often(t, func(t *rapid.T) {
		kind := rapid.SampledFrom(kinds)
		one := lock{kind.Draw(t, "kind"), property.Text(128).Draw(t, "owner"), property.Text(1024).Draw(t, "key")}
		two := one
		switch rapid.IntRange(0, 4).Draw(t, "other") {
		case 0:
			two.key = property.Other(t, one.key)
		case 1:
			two.owner = property.Other(t, one.owner)
		case 2:
			two.kind = kind.Draw(t, "kind")
		case 3: // the same bytes, cut elsewhere
			text := one.owner + one.key
			at := rapid.IntRange(0, len(text)).Draw(t, "at")
			two.owner, two.key = text[:at], text[at:]
		}
		a, ok := one.name(t)
		if !ok {
			return
		}
		if a.Owner != one.owner || a.Key() != one.key || a.Kind() != one.kind || !bytes.Equal(a.AppendRow(nil), a.Row()) {
			t.Fatalf("%+v is %+v", one, a)
		}
		if read, ok := Parse(a.Owner, a.Row()); !ok || read != a {
			t.Fatalf("%+v is read as %+v", one, read)
		}
		b, ok := two.name(t)
		if !ok {
			return
		}
		row := a.Owner == b.Owner && bytes.Equal(a.Row(), b.Row())
		if same := one == two; row != same || (a == b) != same || (a.Compare(b) == 0) != same || a.Compare(b) != -b.Compare(a) {
			t.Fatalf("%+v and %+v are the rows %q and %q", one, two, a.Row(), b.Row())
		}
	})
}
