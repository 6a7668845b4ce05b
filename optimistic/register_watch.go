package optimistic

import (
	"context"
	"fmt"
	"iter"
	"math/rand/v2"
	"time"
)

// The bounds of [WatchOptions.Interval].
const (
	DefaultWatchInterval = time.Second
	MinWatchInterval     = 10 * time.Millisecond
	MaxWatchInterval     = time.Hour
)

// MaxWatchPause is how far errors spread the reads of a watch.
const MaxWatchPause = time.Minute

// WatchOptions are the settings of [Register.Watch]; the zero value is the default.
type WatchOptions struct {
	// After is the revision that is known already. Default: 0, so that a value
	// that is there comes at once.
	After int64
	// Interval is the time between two reads, from the end of one to the
	// beginning of the next, and varied by a tenth so that many watches do not
	// read in step. Default: DefaultWatchInterval (1 s); MinWatchInterval (10 ms)
	// to MaxWatchInterval (1 h).
	Interval time.Duration
}

// Watch reads name again and again, and yields it whenever its revision is
// another than the last one: the latest, not each that was between two reads. A
// deletion comes as an Entry whose Value is nil.
//
//	for entry, err := range register.Watch(ctx, "limits", optimistic.WatchOptions{}) {
//		if err != nil {
//			log.Print(err) // and go on, or break
//			continue
//		}
//		...
//	}
//
// It costs one read by primary key an Interval, which brings the value only
// where it is new, holds no connection in between, and does not read while the
// loop's body runs.
//
// Errors: [holdfast.ErrInvalid], once, and the iteration ends. Of a read that
// failed the error is yielded, and where the body goes on the next read comes
// after twice the time, and so on up to [MaxWatchPause]. When ctx ends, its
// cause is yielded and the iteration ends.
func (r *Register[Tx]) Watch(ctx context.Context, name string, opts WatchOptions) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		opts := opts // each iteration's own
		if err := opts.check(name); err != nil {
			yield(Entry{}, err)
			return
		}
		pause := opts.Interval
		for {
			e, found, err := r.newerThan(ctx, name, opts.After)
			switch {
			case ctx.Err() != nil:
				yield(Entry{}, context.Cause(ctx))
				return
			case err != nil:
				pause = max(min(2*pause, MaxWatchPause), opts.Interval)
				if !yield(Entry{}, err) {
					return
				}
			default:
				pause = opts.Interval
				if found {
					opts.After = e.Revision
					if !yield(e, nil) {
						return
					}
				}
			}
			if err := sleep(ctx, pause); err != nil {
				yield(Entry{}, err)
				return
			}
		}
	}
}

func (o *WatchOptions) check(name string) error {
	if o.Interval == 0 {
		o.Interval = DefaultWatchInterval
	}
	switch {
	case o.After < 0:
		return invalid("WatchOptions.After", fmt.Sprintf("%d is no revision", o.After))
	case o.Interval < MinWatchInterval || o.Interval > MaxWatchInterval:
		return invalid("WatchOptions.Interval", fmt.Sprintf("%v is not between %v and %v", o.Interval, MinWatchInterval, MaxWatchInterval))
	}
	return checkName(name)
}

func (r *Register[Tx]) newerThan(ctx context.Context, name string, revision int64) (e Entry, found bool, err error) {
	e, gone := Entry{Name: name}, 0
	found, err = r.newer.QueryRow(ctx, r.access.Pool, []any{&e.Revision, &gone, &e.Value}, []byte(name), revision)
	if gone == 0 {
		e.Value = present(e.Value)
	}
	return e, found, err
}

// sleep waits for d, give or take a tenth.
func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(time.Duration((0.9 + 0.2*rand.Float64()) * float64(d)))
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
