package core_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/holdfast-go/holdfast/internal/core"
)

func TestPages(t *testing.T) {
	t.Parallel()
	failed := errors.New("failed")
	var asked []int
	// The numbers up to 7, three at a time, and an error after bad.
	list := func(err error, after, bad int) func(func(int, error) bool) {
		asked = nil
		return core.Pages(err, after, 3, func(after int) (page []int, err error) {
			asked = append(asked, after)
			if after == bad {
				return nil, failed
			}
			for n := after + 1; n <= 7 && len(page) < 3; n++ {
				page = append(page, n)
			}
			return page, nil
		})
	}
	for name, c := range map[string]struct {
		err        error
		after, bad int
		n          int
		want       []int
		asked      []int
		fails      error
	}{
		"all":                  {bad: -1, n: 99, want: []int{1, 2, 3, 4, 5, 6, 7}, asked: []int{0, 3, 6}},
		"after an item":        {after: 1, bad: -1, n: 99, want: []int{2, 3, 4, 5, 6, 7}, asked: []int{1, 4, 7}},
		"nothing":              {after: 7, bad: -1, n: 99, asked: []int{7}},
		"a loop that ends":     {bad: -1, n: 3, want: []int{1, 2, 3}, asked: []int{0}},
		"an error of read":     {bad: 3, n: 99, asked: []int{0, 3}, fails: failed},
		"an error before that": {err: failed, n: 99, fails: failed},
	} {
		l := list(c.err, c.after, c.bad)
		for range 2 { // a list can be read again
			asked = nil
			got, err := core.First(c.n, l)
			if !slices.Equal(got, c.want) || !slices.Equal(asked, c.asked) || !errors.Is(err, c.fails) {
				t.Errorf("%s: %v, %v after %v", name, got, err, asked)
			}
		}
	}
}
