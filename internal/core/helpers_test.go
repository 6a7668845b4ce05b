package core

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

var (
	errAgain = errors.New("again")
	errFinal = errors.New("final")
)

func retryable(err error) bool { return errors.Is(err, errAgain) }

func TestRetry(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		errs      []error
		exhausted bool
		want      error
	}{
		"at once":        {errs: []error{nil}},
		"later":          {errs: []error{errAgain, errAgain, nil}},
		"for good":       {errs: []error{errAgain, errFinal}, want: errFinal},
		"never":          {errs: []error{errAgain, errAgain, errAgain}, exhausted: true, want: errAgain},
		"last, for good": {errs: []error{errAgain, errAgain, errFinal}, want: errFinal},
	} {
		ran := 0
		exhausted, err := Retry(t.Context(), 3, retryable, func(n int) error {
			if ran++; n != ran {
				t.Errorf("%s: attempt %d is numbered %d", name, ran, n)
			}
			return c.errs[n-1]
		})
		if exhausted != c.exhausted || !errors.Is(err, c.want) || ran != len(c.errs) {
			t.Errorf("%s: %t, %v after %d attempts", name, exhausted, err, ran)
		}
	}
}

// TestRetryEndsWithItsContext checks that no attempt starts after the context has ended.
func TestRetryEndsWithItsContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cause := errors.New("shutdown")
		ctx, cancel := context.WithCancelCause(t.Context())
		exhausted, err := Retry(ctx, 3, retryable, func(int) error {
			time.AfterFunc(time.Microsecond, func() { cancel(cause) })
			return errAgain
		})
		if exhausted || !errors.Is(err, cause) {
			t.Errorf("in a pause: %t, %v", exhausted, err)
		}
		exhausted, err = Retry(ctx, 1, retryable, func(int) error { return errAgain })
		if exhausted || !errors.Is(err, errAgain) {
			t.Errorf("in the function: %t, %v", exhausted, err)
		}
	})
}

func TestCleanupOutlivesItsContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(Stmt{Name: "n"}.under(t.Context(), nil))
		cancel()
		ctx, end := Cleanup(ctx)
		defer end()
		if ctx.Err() != nil || StatementName(ctx) != "n" {
			t.Error("the context has ended, or lost its values")
		}
		time.Sleep(CleanupTimeout)
		synctest.Wait()
		if ctx.Err() == nil {
			t.Error("it has no end")
		}
	})
}

func TestListsOfPowersOfTwo(t *testing.T) {
	t.Parallel()
	if got := slices.Collect(PowersOfTwo(9)); !slices.Equal(got, []int{1, 2, 4, 8}) {
		t.Errorf("got %v", got)
	}
	for n := 1; n < 40; n++ {
		list := make([]int, n)
		for i := range list {
			list[i] = i
		}
		padded := Pad(list)
		if l := len(padded); l&(l-1) != 0 || l < n || l >= 2*n || !slices.Equal(padded[:n], list) || padded[l-1] != n-1 {
			t.Errorf("padded to %v", padded)
		}
		var all []int
		for c := range Chunks(list, 8) {
			if l := len(c); l&(l-1) != 0 || l > 8 {
				t.Errorf("a chunk of %d", l)
			}
			all = append(all, c...)
		}
		if !slices.Equal(all, list) {
			t.Errorf("chunks of %v", all)
		}
	}
}

type fakeRows struct {
	Rows
	left       int
	err, close error
	closed     bool
}

func (r *fakeRows) Next() bool             { r.left--; return r.left >= 0 }
func (r *fakeRows) Scan(dest ...any) error { *dest[0].(*int) = r.left; return nil }
func (r *fakeRows) Err() error             { return r.err }
func (r *fakeRows) Close() error           { r.closed = true; return r.close }

func TestCollect(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		rows fakeRows
		scan func(Row) (int, error)
		want error
	}{
		"all":        {fakeRows{left: 3}, Value[int], nil},
		"cut off":    {fakeRows{left: 3, err: errFinal}, Value[int], errFinal},
		"not closed": {fakeRows{left: 3, close: errFinal}, Value[int], errFinal},
		"unreadable": {fakeRows{left: 3}, func(Row) (int, error) { return 0, errFinal }, errFinal},
	} {
		list, err := Collect(&c.rows, c.scan)
		if !errors.Is(err, c.want) || !c.rows.closed || (c.want == nil) != slices.Equal(list, []int{2, 1, 0}) {
			t.Errorf("%s: %v, %v", name, list, err)
		}
	}
}
