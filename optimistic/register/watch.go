package register

import (
	"context"
	"fmt"
	"iter"
	"math/rand/v2"
	"time"

	"github.com/holdfast-go/holdfast/internal/options"
)

// The default and the bounds of [WatchOptions.Interval].
const (
	defaultWatchInterval = time.Second
	minWatchInterval     = 10 * time.Millisecond
	maxWatchInterval     = time.Hour
)

const maxWatchPause = time.Minute

// WatchOptions configure [Register.Watch]. The zero value of each field is its
// default.
type WatchOptions struct {
	// After is the revision that the caller knows already. The watch yields only
	// newer ones. Default: 0, so that an existing value is yielded at once.
	After int64
	// Interval is the pause between two reads, from the end of one to the start of
	// the next. It varies by a tenth, so that many watches do not read in step.
	// Default: 1 s. Bounds: 10 ms to
	// 1 h.
	Interval time.Duration
}

// Watch reads name again and again and yields it whenever its revision has changed:
// the latest one, not each one between two reads. A deletion is yielded as an Entry
// whose Value is nil.
//
//	for entry, err := range values.Watch(ctx, "limits") {
//		if err != nil {
//			log.Print(err) // and go on, or break
//			continue
//		}
//		...
//	}
//
// It sends one read by primary key per Interval. The read returns the value only if
// it is new. Between two reads the watch holds no connection, and it does not read
// while the loop's body runs.
//
// Errors: the watch yields [holdfast.ErrInvalid] once and ends. When ctx ends, it
// yields the cause and ends. When a read fails, it yields the error; if the body
// goes on, the next read comes after twice the pause, up to a minute.
func (r *Register[Tx]) Watch(ctx context.Context, name string, opts ...WatchOptions) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		o, err := options.One(opts)
		if err == nil {
			err = o.check()
		}
		if err == nil {
			err = r.checkName(name)
		}
		if err != nil {
			yield(Entry{}, err)
			return
		}
		r.watch(ctx, name, o, yield)
	}
}

func (r *Register[Tx]) watch(ctx context.Context, name string, o WatchOptions, yield func(Entry, error) bool) {
	pause := o.Interval
	for {
		e, found, err := r.scan(ctx, r.work.Access.Pool, r.readNewer, name, o.After)
		if ctx.Err() != nil {
			yield(Entry{}, context.Cause(ctx))
			return
		}
		if err != nil {
			pause = max(min(2*pause, maxWatchPause), o.Interval)
		} else {
			pause = o.Interval
		}
		if found {
			o.After = e.Revision
		}
		if (found || err != nil) && !yield(e, err) {
			return
		}
		if err := sleep(ctx, pause); err != nil {
			yield(Entry{}, err)
			return
		}
	}
}

func (o *WatchOptions) check() error {
	if o.Interval == 0 {
		o.Interval = defaultWatchInterval
	}
	if o.After < 0 {
		return invalid("WatchOptions.After", fmt.Sprintf("%d is negative: give a revision that was read, or 0", o.After))
	}
	return options.Interval.Or("the default").UpTo(maxWatchInterval).Check("WatchOptions.Interval", o.Interval)
}

// sleep waits for d, plus or minus a tenth.
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
