package once

import (
	"bytes"
	"strings"
	"testing"
	"unicode/utf8"
)

// FuzzParseID checks that an id is read only from the bytes that it gives.
func FuzzParseID(f *testing.F) {
	f.Add([]byte(nil))
	f.Add(make([]byte, 31))
	f.Add(ID{Owner: "o"}.Bytes())
	f.Add(append(make([]byte, 32), 0xff))
	f.Fuzz(func(t *testing.T, b []byte) {
		id, ok := ParseID(b)
		if ok && !bytes.Equal(id.Bytes(), b) {
			t.Fatalf("%x became %x", b, id.Bytes())
		}
		if ok && (!utf8.ValidString(id.Owner) || strings.Contains(id.Owner, "\x00") || len(id.Owner) > 128) {
			t.Fatalf("the owner %q was accepted", id.Owner)
		}
	})
}
