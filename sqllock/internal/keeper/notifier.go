package keeper

import (
	"context"
	"encoding/hex"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/lockname"
	"github.com/holdfast-go/holdfast/sqllock/internal/schedule"
)

const (
	// idleListener is how long an idle LISTEN connection stays open, and
	// arrival how long a notification may take to arrive.
	idleListener = 10 * time.Second
	arrival      = 2 * time.Second
	// retryListen is the pause after a test notification that did not arrive, for example
	// behind PgBouncer in transaction mode.
	retryListen = time.Minute
)

// Listen subscribes to notifications with a statement, and calls each for each of them, until an
// error. It calls ready first.
type Listen func(ctx context.Context, statement string, ready func(), each func(payload string)) error

// Notifier wakes other processes when a lock is released, on engines with notifications. One
// connection of a process listens while calls wait. Polling continues, so a lost notification
// costs one poll interval.
type Notifier struct {
	k      *Keeper
	listen Listen
	name   string
	notify core.Stmt
	stmt   string        // subscribes to name
	within time.Duration // arrival, except in tests

	hears  atomic.Bool
	sends  *schedule.Schedule[string]
	mu     sync.Mutex
	needed time.Time     // when a waiter last needed the connection
	ended  chan struct{} // closed when the goroutine that listens ends; nil while none runs
	never  bool          // the engine or the handle cannot listen
	after  time.Time     // do not listen before this time
	pause  time.Duration // the last one; only the goroutine that listens uses it
}

func newNotifier(k *Keeper, listen Listen) *Notifier {
	b := &Notifier{k: k, listen: listen, within: arrival, name: "holdfast_" + hex.EncodeToString([]byte(k.Statements.ID)), notify: k.Statements.Notify()}
	stmt, supported := k.Statements.Listen(b.name)
	b.stmt, b.never = stmt, !supported
	b.sends = schedule.New(k.Ctx, 0, b.send)
	return b
}

// Listening reports whether notifications currently arrive.
func (b *Notifier) Listening() bool { return b.hears.Load() }

// Mute reports whether no other process is notified.
func (b *Notifier) Mute() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.never
}

// Notify notifies the other processes that a lock is free, and the watches of this one.
func (b *Notifier) Notify(name lockname.Name) {
	b.k.Mu.Lock()
	b.k.wakeWatches(name)
	b.k.Mu.Unlock()
	_, payload := b.Notice(name)
	b.sends.Set(payload, time.Now())
}

// Notice returns the channel and the payload with which other processes are notified of a lock. A statement that
// has granted the lock adds a slash and the attempt.
func (b *Notifier) Notice(name lockname.Name) (channel, payload string) {
	return b.name, strings.Join([]string{hex.EncodeToString([]byte(name.Owner)), hex.EncodeToString(name.Row()), b.k.Statements.Self.String()}, "/")
}

// Arrival sets how long a notification may take, for tests: a busy machine is no reason to give up
// notifications.
func (b *Notifier) Arrival(within time.Duration) { b.within = within }

// parse reads the payload of a notification that another process has sent. granted is the attempt that it has
// granted the lock to, or nil.
func (b *Notifier) parse(payload string) (name lockname.Name, granted []byte, ok bool) {
	part := strings.Split(payload, "/")
	if len(part) < 3 || len(part) > 4 || part[2] == b.k.Statements.Self.String() {
		return name, nil, false
	}
	var bad error
	if len(part) == 4 {
		granted, bad = hex.DecodeString(part[3])
	}
	o, err := hex.DecodeString(part[0])
	r, wrong := hex.DecodeString(part[1])
	name, ok = lockname.Parse(string(o), r)
	return name, granted, ok && err == nil && wrong == nil && bad == nil
}

func (b *Notifier) send(ctx context.Context, payloads []string) {
	ctx, cancel := context.WithTimeout(ctx, b.within)
	defer cancel()
	for _, p := range payloads {
		err := b.k.Statements.OnConn(ctx, func(q core.Querier) error {
			_, err := b.notify.Exec(ctx, q, b.name, p)
			return err
		})
		if err != nil {
			return // the other processes poll
		}
	}
}

// Need opens the connection, or keeps it open.
func (b *Notifier) Need() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.needed = time.Now()
	if b.never || b.ended != nil || b.needed.Before(b.after) || b.k.Ctx.Err() != nil {
		return
	}
	b.ended = make(chan struct{})
	go b.run(b.ended)
}

// wait waits until the goroutines have ended; the keeper's Ctx has ended.
func (b *Notifier) wait() {
	b.sends.Wait()
	b.mu.Lock()
	ended := b.ended
	b.mu.Unlock()
	if ended != nil {
		<-ended
	}
}

// run listens until the connection is idle for idleListener, or an error ends it. The next
// waiter opens another connection.
func (b *Notifier) run(ended chan struct{}) {
	defer close(ended)
	ctx, cancel := context.WithCancel(b.k.Ctx)
	defer cancel()
	var opened atomic.Int64 // when the test notification was sent
	go b.watch(ctx, cancel, &opened)
	test := b.k.NewAttemptID().String()
	err := b.listen(ctx, b.stmt, func() {
		opened.Store(time.Now().UnixNano())
		b.sends.Set(test, time.Now())
	}, func(payload string) {
		if payload == test {
			b.hears.Store(true)
			b.k.missed()
		} else if name, granted, ok := b.parse(payload); ok {
			b.k.notified(name, granted)
		}
	})
	heard, pause := b.hears.Swap(false), firstRetry
	if !heard && opened.Load() != 0 {
		pause = retryListen
	}
	if err != nil && ctx.Err() == nil && !errors.Is(err, core.ErrNoListener) {
		b.k.failed(err)
		if !heard {
			pause = max(pause, min(2*b.pause, mostRetry))
		}
	}
	b.mu.Lock()
	b.pause = pause
	b.ended = nil
	b.never = b.never || errors.Is(err, core.ErrNoListener)
	b.after = time.Now().Add(pause)
	b.mu.Unlock()
	b.k.missed()
}

// watch closes a connection that is idle, or that does not receive its test notification.
func (b *Notifier) watch(ctx context.Context, cancel context.CancelFunc, opened *atomic.Int64) {
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		b.mu.Lock()
		idle := time.Since(b.needed) > idleListener
		b.mu.Unlock()
		at := opened.Load()
		if idle || at != 0 && !b.hears.Load() && time.Since(time.Unix(0, at)) > b.within {
			cancel()
		}
	}
}
