package staged

import (
	"errors"
	"testing"

	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/idempotency/internal/inside"
	"github.com/holdfast-go/holdfast/idempotency/internal/once"
)

// FuzzStored checks that any stored record decodes to a value or an error.
func FuzzStored(f *testing.F) {
	for _, s := range []string{"json\x00{}", "json\x00", "", "bytes\x00\xff", "json+aes\x00x", "json\x00{\"Code\":1}", "\x00", "id\x00a"} {
		f.Add([]byte(s))
	}
	s := &idempotency.Store[struct{}]{}
	rows := &transitions[struct{}]{store: inside.Of(s)}
	f.Fuzz(func(t *testing.T, stored []byte) {
		var text string
		var raw []byte
		var rejection idempotency.Rejection
		var id idempotency.ID
		for _, to := range []any{&text, &raw, &rejection, &id, new(map[string]any)} {
			err := rows.unpack(once.ID{}, verdict(false), stored, to)
			var refused *idempotency.ResultError
			if err != nil && !errors.As(err, &refused) {
				t.Fatalf("%q as %T: %v", stored, to, err)
			}
		}
	})
}
