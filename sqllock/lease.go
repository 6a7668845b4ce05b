package sqllock

import (
	"context"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast"
)

// Term is one grant of a lease. It can be compared, and stays the same however
// often the lease is renewed.
type Term struct {
	kind  kind
	key   string
	token int64
	store string
}

// Key is what the term's lease protects.
func (t Term) Key() string { return t.key }

// Token is the fencing token: above zero, and above those of all former terms
// of the key.
func (t Term) Token() int64 { return t.token }

// Lease is a lock that was granted, until it is released or lost. It is safe
// for concurrent use.
type Lease struct {
	m *manager
	attempt
	margin time.Duration
	once   bool // is not renewed
	by     *Owner
	claim  *claim // its place in a line, nil of a lease
	outer  *Lease // under whose context a claim was made
	term   Term
	ctx    context.Context
	cancel context.CancelCauseFunc
	timer  *time.Timer

	releasing sync.Once
	released  error

	since time.Time // when it was asked for, once it is granted

	// Under m.mu:
	live       bool
	again      int       // how often its owner acquired it beyond the first time
	until      time.Time // the trust window's end
	renewError error     // of the last renewal
}

// Key is what the lease protects.
func (l *Lease) Key() string { return l.term.key }

// Token is the fencing token: above zero, and above those of all former terms
// of the key. Give it to whatever can compare it, such as a row's own column.
func (l *Lease) Token() int64 { return l.term.token }

// Term is what Guard takes.
func (l *Lease) Term() Term { return l.term }

// Context ends before anybody else can be granted the lock, or when the lease
// is released: it ends at the trust window's end, which is the TTL less the
// margin after the grant, or after the last renewal that was committed, was
// asked for. Its cause is ErrLost, ErrReleased or ErrClosed. It has the values
// of the context that Acquire was given, and not its end.
//
// It is for work outside the database, and ends too late for a process that was
// stopped meanwhile. Guard protects what is written to the database: begin that
// transaction on a context of the caller's own, for it may outlive this one.
func (l *Lease) Context() context.Context { return l.ctx }

// Release ends the lease and its context, and gives the lock to the next who
// waits for it in this process, or to anybody. It works on a context that has
// ended, for at most holdfast.CleanupTimeout. Called again it says the same.
//
// Errors: [ErrLost] when the term had ended before, which harms nobody; the
// driver's, and then the lock is released in the background, or ends with its
// TTL. It waits for transactions that are guarded by the lease.
func (l *Lease) Release(ctx context.Context) error {
	if l.m.leaves(l) {
		return nil
	}
	l.releasing.Do(func() {
		ctx, op := l.m.tellOf(ctx, l.lock(), "release")
		defer func() { op.End(l.released, outcome) }()
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), holdfast.CleanupTimeout)
		defer cancel()
		l.released = l.m.release(ctx, l)
	})
	return l.released
}

func (l *Lease) lost(reason string) *LostError {
	return &LostError{Key: l.term.key, Token: l.term.token, Reason: reason, Err: l.renewError}
}
