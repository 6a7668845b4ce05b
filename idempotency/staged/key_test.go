package staged

import (
	"errors"
	"regexp"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/idempotency/internal/once"
)

// TestProviderKeys checks that the keys fit the providers, differ with every part of the
// scope, and never change: a restored backup sends them again.
func TestProviderKeys(t *testing.T) {
	t.Parallel()
	base := []string{"default", "shop-7", "refund", "42/1"}
	f := KeyFormat{Length: defaultProviderKey}
	if err := f.check(); err != nil {
		t.Fatal(err)
	}
	key := f.derive(once.HashKey(base...), "pay")
	if key != "e56nuv5d3vjz2opdkfhedwboqjscwnszuamhxykp" {
		t.Errorf("the key is %q: keys that providers were given must not change", key)
	}
	for name, most := range map[string]int{"Square": 45, "Adyen": 64, "PayPal": 108, "Stripe": 255} {
		if len(key) > most || len(key) < 10 {
			t.Errorf("%s does not take a key of %d characters", name, len(key))
		}
	}
	seen := map[string]bool{key: true}
	for i := range base {
		other := append([]string{}, base...)
		other[i] += "x"
		seen[f.derive(once.HashKey(other...), "pay")] = true
	}
	seen[f.derive(once.HashKey(base...), "payx")] = true
	if len(seen) != len(base)+2 {
		t.Errorf("%d different keys", len(seen))
	}
	if u := (KeyFormat{UUID: true}).derive(once.HashKey(base...), "pay"); !regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`).MatchString(u) {
		t.Errorf("%q is no UUID of version 8", u)
	}
	if short := (KeyFormat{Length: 26}).derive(once.HashKey(base...), "pay"); !strings.HasPrefix(key, short) || len(short) != 26 {
		t.Errorf("%q", short)
	}
	for _, bad := range []int{-1, 25, 53} {
		if err := (KeyFormat{Length: bad}).check(); !errors.Is(err, holdfast.ErrInvalid) {
			t.Errorf("%d: %v", bad, err)
		}
	}
}
