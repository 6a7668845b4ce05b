package register

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/options"
)

// The default and the bounds of [WatchOptions.Interval].
const (
	defaultWatchInterval = time.Second
	minWatchInterval     = 10 * time.Millisecond
	maxWatchInterval     = time.Hour
)

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
//			return err
//		}
//		...
//	}
//
// It sends one read by primary key per Interval. The read returns the value only if
// it is new. Between two reads the watch holds no connection, and it does not read
// while the loop's body runs.
//
// Errors, each of which ends the watch: [holdfast.ErrInvalid]; ctx's cause; an error of the database that
// lasts for five seconds, and is neither a lost connection nor one of a server that fails over or asks for
// another try. After an error the pause doubles, up to ten seconds.
func (r *Register[Tx]) Watch(ctx context.Context, name string, opts ...WatchOptions) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		o, err := options.One(opts)
		err = cmp.Or(err, o.check(), r.checkName(name))
		if err == nil {
			err = r.watch(ctx, o.Interval, func() (bool, error) {
				e, found, err := r.scan(ctx, r.work.Access.Pool, r.readNewer, name, o.After)
				if !found {
					return true, err
				}
				o.After = e.Revision
				return yield(e, nil), nil
			})
		}
		if err != nil {
			yield(Entry{}, err)
		}
	}
}

func (r *Register[Tx]) watch(ctx context.Context, every time.Duration, read func() (goes bool, err error)) error {
	return core.Watch(ctx, every, r.work.Access.Dialect.Passes, nil, read)
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
