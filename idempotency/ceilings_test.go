package idempotency

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
)

// TestCeilings checks what time gives back, and that owners who have nothing to say are forgotten.
func TestCeilings(t *testing.T) {
	t.Parallel()
	o := Options{MaxNew: 60}
	if err := o.growthDefaults(); err != nil {
		t.Fatal(err)
	}
	c, now := newCeilings(&o), time.Now()
	take := func(owner string) (after time.Duration) {
		_, err := c.take(owner, now)
		var many *TooManyError
		if errors.As(err, &many) {
			return many.RetryAfter
		}
		return 0
	}
	for range 60 {
		if after := take("eve"); after != 0 {
			t.Fatalf("refused for %v", after)
		}
	}
	if after := take("eve"); after.Round(time.Millisecond) != time.Minute {
		t.Errorf("refused for %v, want a minute: one key of 60 an hour", after)
	}
	if now = now.Add(time.Minute + time.Millisecond); take("eve") != 0 || take("eve") == 0 {
		t.Error("a minute gives back one key")
	}
	for n := range 10 * fewTallies {
		if take(fmt.Sprint(n)) != 0 {
			t.Fatal("another owner is refused")
		}
		now = now.Add(time.Minute)
	}
	if n := len(c.owners); n > fewTallies {
		t.Errorf("%d owners are kept", n)
	}
	if newCeilings(&Options{MaxNew: holdfast.Unlimited}) != nil {
		t.Error("no bound costs something")
	}
}

// TestRefusedLives checks how long a rejection is kept for each combination of options.
func TestRefusedLives(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	for _, c := range []struct {
		o                 Options
		want, result, key time.Duration
	}{
		{Options{}, defaultRejectionTTL, 30 * day, 30 * day},
		{Options{ResultTTL: day}, defaultRejectionTTL, day, 30 * day},
		{Options{ResultTTL: 90 * day}, defaultRejectionTTL, 30 * day, 30 * day},
		{Options{ResultTTL: day, KeyTTL: 90 * day}, 90 * day, day, 90 * day},
		{Options{RejectionTTL: day}, day, day, day},
		{Options{ResultTTL: 3 * day, KeyTTL: 90 * day, RejectionTTL: 2 * day}, 2 * day, 2 * day, 2 * day},
		{Options{RejectionTTL: holdfast.Forever}, holdfast.Forever, 0, 0},
		{Options{KeyTTL: holdfast.Forever}, holdfast.Forever, 0, 0},
		{Options{ResultTTL: day, KeyTTL: holdfast.Forever}, holdfast.Forever, day, 0},
		{Options{KeyTTL: holdfast.Forever, RejectionTTL: day}, day, day, day},
		{Options{ResultTTL: day, RejectionTTL: holdfast.Forever}, holdfast.Forever, day, 0},
	} {
		o := c.o
		if err := o.withDefaults(); err != nil || o.RejectionTTL != c.want {
			t.Errorf("%+v: %v, %v", c.o, o.RejectionTTL, err)
		}
		if result, key := o.refusedFor(); ttl(result) != ttl(c.result) || ttl(key) != ttl(c.key) {
			t.Errorf("%+v: %v and %v, want %v and %v", c.o, result, key, c.result, c.key)
		}
	}
}
