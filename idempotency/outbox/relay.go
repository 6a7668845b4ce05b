package outbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/idempotency/internal/once"
	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/options"
)

// Options configures a Relay. The zero value of each field is its default.
type Options struct {
	// Lease is how long a relay has a message. It must be longer than publishing takes: the context
	// of the publisher ends at nine tenths of it. When a relay dies, its messages wait that long.
	// Default: a minute; 50 ms to 24 h, by the database's clock.
	Lease time.Duration
	// Keys is how many keys a relay publishes at the same time. Default: 8; at most 10,000.
	Keys int
	// Batch is how many messages of a key are published before that is noted in the database. After
	// the death of a relay, at most so many are published again. Default: 20; at most 10,000.
	Batch int
	// MaxAttempts is how often a relay begins with a message, crashes included, before it becomes a
	// dead letter. Default: 10; 3 to 1,000,000.
	MaxAttempts int
	// Backoff is the pause after the first failed attempt. It doubles with each attempt, up to
	// MaxBackoff, and has jitter. Defaults: a second, 5 minutes. Both: 1 ms to 24 h.
	Backoff, MaxBackoff time.Duration
	// Poll is the pause after a pass that found nothing. Wake ends it early. Default: a second; 1 ms to 24 h.
	Poll time.Duration
	// Keep is how long published and discarded messages are kept. Run deletes them after that.
	// Default: 7 days; 50 ms to 100 years, or [holdfast.Forever].
	Keep time.Duration
	// Logger logs the database's errors of Run. Default: slog.Default().
	Logger *slog.Logger
}

func (o *Options) withDefaults() error {
	d := func(v *time.Duration, fallback time.Duration) {
		if *v == 0 {
			*v = fallback
		}
	}
	n := func(v *int, fallback int) {
		if *v == 0 {
			*v = fallback
		}
	}
	d(&o.Lease, time.Minute)
	d(&o.Backoff, time.Second)
	d(&o.MaxBackoff, max(5*time.Minute, o.Backoff))
	d(&o.Poll, time.Second)
	d(&o.Keep, 7*24*time.Hour)
	n(&o.Keys, 8)
	n(&o.Batch, 20)
	n(&o.MaxAttempts, 10)
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	if o.MaxAttempts > 0 && o.MaxAttempts < 3 {
		return once.Invalid("Options.MaxAttempts", fmt.Sprintf("%d is less than 3: a message may count an attempt for one behind it that killed the relay", o.MaxAttempts))
	}
	if err := cmp.Or(
		options.Lease.Check("Options.Lease", o.Lease),
		options.Many.Of("keys").Check("Options.Keys", int64(o.Keys)),
		options.Many.Of("messages").Check("Options.Batch", int64(o.Batch)),
		options.Attempts.Check("Options.MaxAttempts", int64(o.MaxAttempts)),
		options.Pause.Check("Options.Backoff", o.Backoff),
		options.Pause.Check("Options.MaxBackoff", o.MaxBackoff),
		options.Pause.Check("Options.Poll", o.Poll),
	); err != nil {
		return err
	}
	if o.MaxBackoff < o.Backoff {
		return once.Invalid("Options.MaxBackoff", "is shorter than Backoff")
	}
	if o.Keep == holdfast.Forever {
		return nil
	}
	return options.Life.Or("the default; holdfast.Forever keeps all").Check("Options.Keep", o.Keep)
}

// Publish hands a message to the broker. It must return nil only when the broker has it. It must
// respect ctx, which ends before another relay may publish the message. After an error the message
// is published again later, unless the error is that of [Permanent]. A panic is such an error, with its
// stack as the reason, and is logged.
type Publish func(ctx context.Context, d Delivery) error

// Permanent returns the error with which a publisher makes a message a dead letter at once, because
// it would fail each time.
func Permanent(err error) error { return &permanent{err} }

type permanent struct{ err error }

func (p *permanent) Error() string { return p.err.Error() }
func (p *permanent) Unwrap() error { return p.err }

// Relay publishes the messages of an outbox. It is safe for concurrent use. Any number of relays, in
// any number of processes, share the keys.
type Relay[Tx any] struct {
	box     *Outbox[Tx]
	publish Publish
	options Options
	wake    chan struct{}
}

// NewRelay makes a relay of an outbox.
//
// Errors: [holdfast.ErrInvalid].
func NewRelay[Tx any](box *Outbox[Tx], publish Publish, opts ...Options) (*Relay[Tx], error) {
	if box == nil || publish == nil {
		return nil, once.Invalid("box, publish", "one is nil")
	}
	o, err := options.One(opts)
	if err != nil {
		return nil, err
	}
	if err := o.withDefaults(); err != nil {
		return nil, err
	}
	return &Relay[Tx]{box, publish, o, make(chan struct{}, 1)}, nil
}

// Wake makes Run look for messages at once. Call it after the COMMIT of a Write, so that its messages
// do not wait for Options.Poll.
func (r *Relay[Tx]) Wake() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// Run publishes messages until ctx ends, and returns its cause. It logs errors of the database and
// goes on. Messages whose publisher is interrupted by the end of ctx are released at once.
func (r *Relay[Tx]) Run(ctx context.Context) error {
	cleared := time.Time{}
	failed := core.NewBackoff()
	for ctx.Err() == nil {
		n, err := r.Pass(ctx)
		if err == nil && r.options.Keep >= 0 && time.Since(cleared) > time.Minute {
			cleared = time.Now()
			_, err = r.box.Clear(ctx, r.options.Keep)
		}
		switch {
		case ctx.Err() != nil:
		case err != nil:
			r.options.Logger.ErrorContext(ctx, "outbox: a pass failed", "outbox", r.box.name, "error", err)
			_ = failed.Sleep(ctx)
		case n == 0:
			failed = core.NewBackoff()
			r.pause(ctx)
		}
	}
	return context.Cause(ctx)
}

func (r *Relay[Tx]) pause(ctx context.Context) {
	t := time.NewTimer(time.Duration((0.75 + rand.Float64()/2) * float64(r.options.Poll)))
	defer t.Stop()
	select {
	case <-t.C:
	case <-r.wake:
	case <-ctx.Done():
	}
}

// Pass reads some hundred of the messages that are due, takes their keys, and publishes each key until
// nothing is left or a message fails. It returns how many messages were published. Errors of
// the publisher are no errors of Pass.
//
// Errors: those of the driver, and of ctx. Messages that were published and not noted are published
// again after the lease.
func (r *Relay[Tx]) Pass(ctx context.Context) (published int, err error) {
	due, err := r.due(ctx)
	if err != nil {
		return 0, err
	}
	// Relays that read the same list do not try it in the same order.
	rand.Shuffle(len(due), func(i, j int) { due[i], due[j] = due[j], due[i] })
	work := make(chan found, len(due))
	for _, k := range due {
		work <- k
	}
	close(work)
	var wg sync.WaitGroup
	var total atomic.Int64
	errs := make([]error, min(r.options.Keys, len(due)))
	for i := range errs {
		wg.Go(func() {
			for k := range work {
				n, err := r.drain(ctx, k)
				total.Add(int64(n))
				if err != nil || ctx.Err() != nil {
					errs[i] = err
					return
				}
			}
		})
	}
	wg.Wait()
	return int(total.Load()), errors.Join(errs...)
}

const (
	// dueLimit bounds the messages that a pass reads.
	dueLimit = 500
	// behindDead is how long messages behind a dead letter are put off. A relay may do so just after
	// the letter was decided on, so it is short.
	behindDead = time.Minute
)

// first is the first waiting message of a key.
type first struct {
	owner, key string
	seq        int64
	starts     int
}

// found is a key with due messages, and the last of them that a pass has read.
type found struct {
	key
	last int64
}

// due lists the keys that have due messages.
func (r *Relay[Tx]) due(ctx context.Context) (list []found, err error) {
	rows, err := r.box.sql.due.Query(ctx, r.box.access.Pool, r.box.name, dueLimit)
	if err != nil {
		return nil, err
	}
	at := map[key]int{}
	_, err = core.Collect(rows, func(row core.Row) (none struct{}, err error) {
		var f found
		var text []byte
		err = row.Scan(&f.owner, &text, &f.last)
		f.key.key = string(text)
		if i, seen := at[f.key]; seen {
			list[i].last = max(list[i].last, f.last)
		} else {
			at[f.key] = len(list)
			list = append(list, f)
		}
		return none, err
	})
	return list, err
}

// head returns the first message of a key if it may be published now. If not, it puts off the messages
// behind it for as long, so that they do not hide other keys from later passes: only those that the
// pass has found, because the relay that publishes the first message sees them when it is done.
func (r *Relay[Tx]) head(ctx context.Context, k found) (*first, error) {
	f := first{owner: k.owner, key: k.key.key}
	var held, dead int64
	args := []any{k.owner, r.box.name, []byte(f.key)}
	exists, err := r.box.sql.head.QueryRow(ctx, r.box.access.Pool, []any{&f.seq, &f.starts, &held, &dead}, args...)
	switch {
	case err != nil || !exists:
		return nil, err
	case dead != 0 && dead < f.seq:
		f.seq, held = dead, behindDead.Microseconds()
	case held <= 0 || f.starts == 0: // one that was never started has no holder
		return &f, nil
	}
	_, err = r.box.sql.postpone.Exec(ctx, r.box.access.Pool, append(args, f.seq, k.last, held)...)
	return nil, err
}

// backoff is the pause after the n-th attempt.
func (r *Relay[Tx]) backoff(n int) time.Duration {
	d := min(float64(r.options.MaxBackoff), float64(r.options.Backoff)*math.Pow(2, float64(min(n, 60)-1)))
	return time.Duration(d * (0.5 + rand.Float64()/2))
}
