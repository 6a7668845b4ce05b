package reaper

import (
	"context"
	"encoding/binary"
	"errors"
	"testing"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/dialect"
)

var (
	errAgain  = errors.New("rolled back")
	errLocked = errors.New("locked")
)

// fake returns a reaper without a database, whose rows wait for locks.
func fake() *Reaper {
	return &Reaper{
		retryable: func(err error) bool { return errors.Is(err, errAgain) || errors.Is(err, errLocked) },
		dialect: &dialect.Dialect{
			Sweep: dialect.Sweep{WaitsForRows: true},
			Classify: func(err error) dialect.Class {
				if errors.Is(err, errLocked) {
					return dialect.Busy
				}
				return dialect.Other
			},
		},
		transact: func(ctx context.Context, f func(context.Context, core.Querier) error) error { return f(ctx, nil) },
	}
}

func TestAgain(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	final := errors.New("final")
	for _, c := range []struct {
		name   string
		errs   []error // one for each attempt; the last one repeats
		tries  int
		target error
	}{
		{"at once", []error{nil}, 1, nil},
		{"at the third try", []error{errAgain, errAgain, nil}, 3, nil},
		{"final", []error{errAgain, final}, 2, final},
		{"never", []error{errAgain}, core.DefaultAttempts, holdfast.ErrRetry},
		{"in doubt", []error{&holdfast.UnknownError{Err: final}}, 1, holdfast.ErrUnknown},
	} {
		tries := 0
		err := fake().again(ctx, func() error {
			tries++
			return c.errs[min(tries, len(c.errs))-1]
		})
		if tries != c.tries || !errors.Is(err, c.target) {
			t.Errorf("%s: %d tries, %v", c.name, tries, err)
		}
	}
	tries := 0
	err := fake().again(ctx, func() error { tries++; cancel(); return errAgain })
	if tries != 1 || !errors.Is(err, context.Canceled) || !errors.Is(err, errAgain) {
		t.Errorf("cancelled: %d tries, %v", tries, err)
	}
}

// lockedRows is a task in which other transactions have locked some rows.
type lockedRows struct {
	task
	locked func(n uint16) bool
	writes int
}

func (l *lockedRows) clear(_ context.Context, _ core.Querier, _ int64, found []row) (int64, error) {
	l.writes++
	for _, f := range found {
		if l.locked(binary.BigEndian.Uint16(f.key)) {
			return 0, errLocked
		}
	}
	return int64(len(found)), nil
}

// TestLockedRows checks that a few locked rows are found by halving and skipped, and that many
// end the pass.
func TestLockedRows(t *testing.T) {
	t.Parallel()
	found := make([]row, 500)
	for i := range found {
		found[i].key = binary.BigEndian.AppendUint16(nil, uint16(i))
	}
	one := &lockedRows{locked: func(n uint16) bool { return n == 77 }}
	p := &pass{Reaper: fake(), ctx: t.Context()}
	if n, err := p.clear(one, &TaskReport{}, found); n != 499 || err != nil || p.waits > 10 {
		t.Errorf("one locked: %d cleared, %v, after %d waits", n, err, p.waits)
	}
	all := &lockedRows{locked: func(n uint16) bool { return n >= 250 }}
	p = &pass{Reaper: fake(), ctx: t.Context()}
	if n, err := p.clear(all, &TaskReport{}, found); n != 250 || !errors.Is(err, holdfast.ErrRetry) || !errors.Is(err, errLocked) || p.waits != lockedWaits {
		t.Errorf("half locked: %d cleared, %v, after %d waits", n, err, p.waits)
	}
}
