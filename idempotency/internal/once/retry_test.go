package once

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/dialect/postgres"
)

// TestAttemptsBoundEveryPath checks that, for every outcome of a transaction, its function
// runs at most as often as the limit of attempts allows.
func TestAttemptsBoundEveryPath(t *testing.T) {
	t.Parallel()
	lost := errors.New("unexpected EOF")
	for name, answers := range map[string][]error{
		"unknown":           {&holdfast.UnknownError{Err: lost}},
		"rolled back":       {&holdfast.RetryError{Attempts: 1, Err: lost}},
		"unknown, then cut": {&holdfast.UnknownError{Err: lost}, lost},
	} {
		runs := 0
		c := Retry[struct{}]{
			ExpectNew: new(ExpectNew), Wait: time.Hour, Limit: 3,
			Dialect: &postgres.Dialect,
			Read:    func(context.Context) (*struct{}, error) { return nil, nil },
			Try: func(context.Context) (*struct{}, error) {
				runs++
				return nil, answers[min(runs, len(answers))-1]
			},
		}
		_, _, err := c.Run(t.Context())
		want := holdfast.ErrUnknown
		if name == "rolled back" {
			want = holdfast.ErrRetry
		}
		if runs != 3 || !errors.Is(err, want) {
			t.Errorf("%s: %v after %d runs", name, err, runs)
		}
	}
}
