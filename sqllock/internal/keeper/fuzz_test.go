package keeper

import (
	"bytes"
	"encoding/hex"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/lockname"
)

// FuzzPayload checks that a notification, which any session of the database may send, is read only if it
// names a lock, and then that lock.
func FuzzPayload(f *testing.F) {
	self := NewProcess().NewAttemptID()
	other := NewProcess().NewAttemptID().String()
	for _, s := range []string{``, `/`, `//`, `///`, `6f/6c6b/` + other, `6f/6c6b/` + self.String(), `/6c6b/x`, `6F/6C6B/x`, `zz/6c6b/x`, `6f/6c/x`, `6f/6/x`, "\xff/\x00/"} {
		f.Add(s)
	}
	b := &Notifier{k: &Keeper{Statements: &Statements{Self: self}}}
	f.Fuzz(func(t *testing.T, payload string) {
		name, granted, ok := b.parse(payload)
		if !ok {
			return
		}
		part := strings.Split(payload, "/")
		if n := len(part); n != 3 && (n != 4 || !strings.EqualFold(part[3], hex.EncodeToString(granted))) || part[2] == self.String() {
			t.Fatalf("%q was read", payload)
		}
		again := hex.EncodeToString([]byte(name.Owner)) + "/" + hex.EncodeToString(name.Row())
		if !strings.EqualFold(again, part[0]+"/"+part[1]) || len(name.Key()) == 0 {
			t.Fatalf("%q became %q", payload, again)
		}
	})
}

// TestPayload checks what is read of a notification.
func TestPayload(t *testing.T) {
	t.Parallel()
	self, other := NewProcess().NewAttemptID(), NewProcess().NewAttemptID()
	b := &Notifier{k: &Keeper{Statements: &Statements{Self: self}}}
	want, err := lockname.Of(lockname.Lease, core.Owner{ID: "o"}, "key")
	if err != nil {
		t.Fatal(err)
	}
	owner, row := hex.EncodeToString([]byte("o")), hex.EncodeToString(want.Row())
	for payload, read := range map[string]bool{
		owner + "/" + row + "/" + other.String():          true,
		owner + "/" + row + "/" + self.String():           false,
		owner + "/" + row:                                 false,
		owner + "/" + row + "/" + other.String() + "/":    true,
		owner + "/" + row + "/" + other.String() + "/x":   false,
		owner + "/" + row + "/" + other.String() + "/00/": false,
		owner + "/" + row + "/" + self.String() + "/00":   false,
		owner + "x/" + row + "/" + other.String():         false,
		owner + "/" + row + "x/" + other.String():         false,
		owner + "//" + other.String():                     false,
	} {
		if name, _, ok := b.parse(payload); ok != read || read && name != want {
			t.Errorf("%q: %v, %t", payload, name, ok)
		}
	}
	if _, granted, ok := b.parse(owner + "/" + row + "/" + other.String() + "/" + other.String()); !ok || !bytes.Equal(granted, other[:]) {
		t.Errorf("granted to %x", granted)
	}
}
