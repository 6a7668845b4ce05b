package sqllock

import (
	"context"
	"fmt"

	"github.com/holdfast-go/holdfast/sqllock/internal/keeper"
)

// Term is one grant of a lock: an owner's key, a fencing token, and the tables that they belong to.
// Terms are comparable. A renewal does not change the term. The terms of a lease and of the one that
// resumed it differ: see [Locker.Resume].
type Term keeper.Term

// Owner returns the owner of the key: see [Locker.For].
func (t Term) Owner() string { return keeper.Term(t).Owner() }

// String returns the key and the token. The rest of a term is in the lease's handle, a secret.
func (t Term) String() string { return fmt.Sprintf("%q, token %d", t.Key(), t.Token()) }

// Key returns the key that the term's lease protects.
func (t Term) Key() string { return keeper.Term(t).Key() }

// Token returns the fencing token. It is above zero and above the tokens of all earlier terms
// of the key.
func (t Term) Token() int64 { return keeper.Term(t).Token() }

// Lease is a granted lock, until it is released or lost. It is safe for concurrent use.
type Lease keeper.Lease

func (l *Lease) kept() *keeper.Lease { return (*keeper.Lease)(l) }

// Key returns the key that the lease protects.
func (l *Lease) Key() string { return l.kept().Key() }

// Token returns the fencing token. It is above zero and above the tokens of all earlier terms
// of the key. Give it to a service that compares tokens, or store it in a column of your own.
func (l *Lease) Token() int64 { return l.kept().Token() }

// Term returns the lease's term, for [Locker.Guard].
func (l *Lease) Term() Term { return Term(l.kept().Term()) }

// Context returns a context that ends before any other caller can be granted the lock. It ends
// at start + TTL - margin, where start is when the acquire, or the last committed renewal, was
// sent. It also ends when the lease is released, when it is found to be lost, and when its
// Locker is closed. Its cause is [ErrLost], [ErrReleased] or [ErrClosed]. Within [Locker.Do] it
// also ends with the context that Do was given, with that context's cause, unless there is an
// AcquireOptions.Reentry. It has the values of the context that Acquire was given.
//
// Its Err reads the clock. Its Done channel is closed by a timer, which a busy machine may run
// late.
//
// Use it for work outside the database. In a process that was stopped, it may end too late. So
// write to the database in [Locker.InTx], on a context of the caller's own.
func (l *Lease) Context() context.Context { return l.kept().Context() }

// Release ends the lease and its context, and hands the lock to the next waiter: a waiter of
// this process first. It works even if ctx has ended, for at most five seconds, and
// waits for transactions that are guarded by the lease. Further calls return the same result; but with a Reentry, each
// call counts until the last one releases: call it once for each acquisition.
//
// It returns nil only if no conflicting term was granted before, regardless of the clocks. The
// lease's context may still have ended earlier.
//
// Errors: [ErrLost] when another term may have been granted since the context ended, or the
// lock was taken away; this does not affect other holders. [holdfast.ErrUnknown] when an answer
// of the database was lost, also that to another call whose statement the release shared: the lock is
// released, but it is unknown whether the term had ended before. The driver's: the lock is released in the background, or ends with its TTL.
func (l *Lease) Release(ctx context.Context) error { return l.kept().Release(ctx) }
