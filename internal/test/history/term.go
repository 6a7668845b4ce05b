package history

import (
	"context"
	"sync"
	"time"
)

// watchInterval is how often [Term.Watch] checks a context. Two holders that overlap by less may
// go unnoticed, so it is well below the margin of any lease.
const watchInterval = time.Millisecond

// A Term is a lease that a client was granted. It is safe for concurrent use.
type Term struct {
	c     *Client
	key   string
	token int64

	mu    sync.Mutex
	alive Stamp // when the context was last seen alive
	ended bool
}

func (t *Term) begin(kind Kind) pending {
	return t.c.r.begin(Op{Client: t.c.id, Kind: kind, Key: Key(t.key), Token: t.token})
}

// Release begins the release of the term. The holder does not trust the term from here on,
// regardless of the outcome.
func (t *Term) Release() *Action { return &Action{t.begin(KindRelease)} }

// Commit begins the commit of a transaction that passed the guard of the term: call it right
// before COMMIT is sent.
func (t *Term) Commit() *Action { return &Action{t.begin(KindCommit)} }

// Renew begins a renewal.
func (t *Term) Renew() *Renewal { return &Renewal{Action{t.begin(KindRenew)}} }

// Observe checks the context of the lease and reports whether it is alive. The first time that
// it has ended, Observe records the end. Holders that work in steps may call it between them.
func (t *Term) Observe(ctx context.Context) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	at := now() // before the check: at this moment the context was certainly alive
	if ctx.Err() == nil {
		t.alive = at
		return true
	}
	t.end()
	return false
}

// Watch checks the context of the lease every millisecond until it ends or until stop is called;
// stop checks it a last time. Call stop before the history is checked.
func (t *Term) Watch(ctx context.Context) (stop func()) {
	enough, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(watchInterval)
		defer tick.Stop()
		for t.Observe(ctx) {
			select {
			case <-enough:
				t.Observe(ctx)
				return
			case <-ctx.Done():
			case <-tick.C:
			}
		}
	}()
	return sync.OnceFunc(func() {
		close(enough)
		<-done
	})
}

// Ended records that the holder trusted the term until this moment. It is for holders without a
// context. With a context, use Watch or Observe: they do not extend the trust when a check comes
// late.
func (t *Term) Ended() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.alive = now()
	t.end()
}

func (t *Term) end() {
	if t.ended {
		return
	}
	t.ended = true
	t.c.r.begin(Op{Client: t.c.id, Kind: KindEnded, Key: Key(t.key), Token: t.token, Call: t.alive}).end(OK, nil)
}

// An Action is an operation that only the holder of the current term may do.
type Action struct{ pending }

// OK records that it was done.
func (a *Action) OK() { a.end(OK, nil) }

// Lost records that it was not done because the term was over.
func (a *Action) Lost() { a.end(Lost, nil) }

// A Renewal is an attempt to renew a lease.
type Renewal struct{ action Action }

// OK records that the lease was renewed, and the time until which its context lives now.
func (r *Renewal) OK(until time.Time) {
	r.action.end(OK, func(op *Op) { op.Until = stampOf(until) })
}

// Lost records that the term was over.
func (r *Renewal) Lost() { r.action.Lost() }

// Unknown means that the renewal may take effect at any time, or never.
func (r *Renewal) Unknown() { r.action.Unknown() }

// Failed means that the renewal certainly did nothing.
func (r *Renewal) Failed() { r.action.Failed() }
