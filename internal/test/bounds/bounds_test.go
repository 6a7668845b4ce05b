// Package bounds_test tests that every duration and every size of the public API has bounds, and that a
// number without its unit is refused.
package bounds_test

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
)

func TestMain(m *testing.M) { dbtest.VerifyNoLeaks(m) }

const (
	ms      = time.Millisecond
	day     = 24 * time.Hour
	century = 100 * 366 * day
)

// bound is the floor and the ceiling of a duration or a size. The call with a value between them does not
// fail with ErrInvalid, any other does. special are values with a meaning of their own, such as 0.
type bound struct {
	least, most int64
	special     []int64
	duration    bool
	call        func(n int64) error
}

func span(least, most time.Duration, call func(time.Duration) error, special ...int64) bound {
	return bound{int64(least), int64(most), special, true, func(n int64) error { return call(time.Duration(n)) }}
}

func size(least, most int64, call func(int) error, special ...int64) bound {
	return bound{least, most, special, false, func(n int64) error { return call(int(n)) }}
}

// TestBounds tries each duration and size of the API at its bounds and beyond them, and with the usual slips.
func TestBounds(t *testing.T) {
	t.Parallel()
	for name, b := range inputs(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, n := range append([]int64{b.least, b.most}, b.special...) {
				if err := b.call(n); errors.Is(err, holdfast.ErrInvalid) {
					t.Errorf("%d: %v", n, err)
				}
			}
			bad := []int64{b.least - 1, -1, -2, math.MinInt64}
			if b.most < math.MaxInt64 {
				bad = append(bad, b.most+1)
			}
			if b.duration {
				bad = append(bad, 1, 3, 24, 30, 60, 3600, 86_400, 604_800)
			}
			for _, n := range bad {
				if slices.Contains(b.special, n) {
					continue
				}
				err := b.call(n)
				var invalid *holdfast.InputError
				if !errors.As(err, &invalid) {
					t.Errorf("%d is not refused: %v", n, err)
					continue
				}
				says := fmt.Sprint(n)
				if b.duration {
					says = time.Duration(n).String()
				}
				if !strings.Contains(err.Error(), says) && n > 0 && !strings.Contains(err.Error(), "unit") {
					t.Errorf("%s: the error does not say so: %v", says, err)
				}
				if b.duration && n > 0 && n < b.least && !strings.Contains(err.Error(), "unit") {
					t.Errorf("%s: the error does not speak of the unit: %v", says, err)
				}
			}
		})
	}
}

// TestEveryBoundIsListed walks the public packages: each duration and each number that the API takes is in
// the table of TestBounds, or is listed as something else.
func TestEveryBoundIsListed(t *testing.T) {
	t.Parallel()
	listed, found := inputs(t), public(t)
	if len(found) < 150 {
		t.Errorf("only %d durations and numbers are found", len(found))
	}
	for name := range found {
		_, bounded := listed[name]
		if other := isNoBound(name); bounded == other {
			t.Errorf("%s: has bounds: %v; is listed as no bound: %v", name, bounded, other)
		}
	}
	for name := range listed {
		if !found[name] {
			t.Errorf("%s is listed, and the API does not have it", name)
		}
	}
}
