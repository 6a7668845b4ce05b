package leases

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/test/conformance"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
	"github.com/holdfast-go/holdfast/internal/test/faultproxy"
	"github.com/holdfast-go/holdfast/sqllock"
	"github.com/holdfast-go/holdfast/sqllock/fairlock"
)

// Releases is the suite of the result of a release, for every kind of lock. A release returns
// nil only where no other call acquired the lock before it.
func Releases[Tx any](t *testing.T, h conformance.Handle[Tx]) {
	t.Helper()
	for name, test := range map[string]func(*env[Tx]){
		"Late": releaseLate[Tx], "LostReply": releaseLostReply[Tx], "LostReplyTaken": releaseLostReplyTaken[Tx],
		"AfterGuard": releaseAfterGuard[Tx], "GrantedTwice": releaseGrantedTwice[Tx], "PassedGrantedTwice": passedGrantedTwice[Tx],
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(t, h, test)
		})
	}
}

// lockKind is a kind of lock that ends with Lease.Release.
type lockKind[Tx any] struct {
	name string
	// get acquires the lock, and rival acquires a conflicting one.
	get, rival func(ctx context.Context, l *sqllock.Locker[Tx], key string, opts ...sqllock.AcquireOptions) (*sqllock.Lease, error)
	// expire makes the row expire, as a clock that leaps forward would.
	expire string
	prefix string // of its rows' names
}

func lockKinds[Tx any]() []lockKind[Tx] {
	permits := func(n int) func(context.Context, *sqllock.Locker[Tx], string, ...sqllock.AcquireOptions) (*sqllock.Lease, error) {
		return func(ctx context.Context, l *sqllock.Locker[Tx], key string, opts ...sqllock.AcquireOptions) (*sqllock.Lease, error) {
			s, err := fairlock.New(l).Semaphore(key, 2)
			if err != nil {
				return nil, err
			}
			return s.Acquire(ctx, n, opts...)
		}
	}
	plain := func(ctx context.Context, l *sqllock.Locker[Tx], key string, opts ...sqllock.AcquireOptions) (*sqllock.Lease, error) {
		return l.Acquire(ctx, key, opts...)
	}
	fair := func(ctx context.Context, l *sqllock.Locker[Tx], key string, opts ...sqllock.AcquireOptions) (*sqllock.Lease, error) {
		return fairlock.New(l).Acquire(ctx, key, opts...)
	}
	shared := func(ctx context.Context, l *sqllock.Locker[Tx], key string, opts ...sqllock.AcquireOptions) (*sqllock.Lease, error) {
		return fairlock.New(l).AcquireShared(ctx, key, opts...)
	}
	const lease, claim = `UPDATE holdfast_locks SET expires_at = 0 WHERE owner = '' AND name = $1`, `UPDATE holdfast_tickets SET expires_at = 0 WHERE owner = '' AND name = $1`
	return []lockKind[Tx]{
		{"lease", plain, plain, lease, "l"},
		{"fair", fair, fair, claim, "f"},
		{"shared", shared, fair, claim, "f"},
		{"semaphore", permits(1), permits(2), claim, "s"},
	}
}

// lateHolder is contained in each request for a lease, and in no other request.
const lateHolder = "of a late request"

// releaser has a Locker behind a proxy, where the engine has connections, and a second Locker.
type releaser[Tx any] struct {
	*env[Tx]

	pool      conformance.Pool[Tx] // the Locker's own
	l, beside *sqllock.Locker[Tx]
	proxy     *faultproxy.Proxy // nil on SQLite
}

func (e *env[Tx]) releaser() *releaser[Tx] {
	e.Helper()
	o := sqllock.Options{TTL: time.Hour, Holder: lateHolder}
	r := &releaser[Tx]{env: e, pool: e.Pool, beside: e.LockerWith(sqllock.Options{TTL: time.Hour})}
	if e.Engine != dbtest.SQLite {
		r.proxy, r.pool = e.proxied()
	}
	r.l = e.LockerOn(r.pool.DB, o)
	if l, can := any(r.l).(interface{ LooksLater() }); can { // a look for other processes names the lock, as its release does
		l.LooksLater()
	} else {
		e.Fatal("the suite runs in package sqllock's tests, which export it")
	}
	return r
}

// granted acquires a lock that is not renewed. With lapsed, it waits until the end of the trust
// window.
func (r *releaser[Tx]) granted(k lockKind[Tx], key string, lapsed bool) *sqllock.Lease {
	r.Helper()
	opts := sqllock.AcquireOptions{NoRenewal: true}
	if lapsed {
		opts.TTL = conformance.ShortTTL
	}
	lease, err := k.get(r.Ctx, r.l, key, opts)
	r.Check(err)
	if lapsed {
		r.WantEnded(lease, sqllock.ErrLost)
	}
	return lease
}

// taken lets another Locker acquire and release the lock.
func (r *releaser[Tx]) taken(k lockKind[Tx], key string) {
	r.Helper()
	r.Must(k.expire, append([]byte(k.prefix), key...))
	next, err := k.rival(r.Ctx, r.beside, key)
	r.Check(err)
	r.Check(next.Release(r.Ctx))
}

// released releases a lease and loses the first answer, where the engine has answers to lose.
func (r *releaser[Tx]) released(lease *sqllock.Lease) error {
	r.Helper()
	if r.proxy == nil {
		return lease.Release(r.Ctx)
	}
	fault := r.proxy.LoseReply(sends(lease.Key()), faultproxy.Close)
	defer fault.Disarm()
	err := lease.Release(r.Ctx)
	if !fault.Fired() {
		r.Errorf("%s: no reply was lost", lease.Key())
	}
	return err
}

// releaseLate releases after the trust window. The release frees the lock and returns nil where
// no other call acquired it, and returns ErrLost otherwise.
func releaseLate[Tx any](e *env[Tx]) {
	r := e.releaser()
	for _, k := range lockKinds[Tx]() {
		key := k.name + " late"
		if err := r.granted(k, key, true).Release(e.Ctx); err != nil {
			e.Errorf("%s, nobody else had it: %v", key, err)
		}
		lease := r.granted(k, key, true)
		r.taken(k, key)
		if err := lease.Release(e.Ctx); !errors.Is(err, sqllock.ErrLost) {
			e.Errorf("%s, another had it: %v, want ErrLost", key, err)
		}
	}
}

// releaseLostReply loses the answer of a release. The release runs again, finds no row of its
// own, and sees that no other call had the lock.
func releaseLostReply[Tx any](e *env[Tx]) {
	r := e.releaser()
	for _, k := range lockKinds[Tx]() {
		for _, lapsed := range []bool{false, true} {
			if err := r.released(r.granted(k, k.name, lapsed)); err != nil {
				e.Errorf("%s, lapsed %t: %v", k.name, lapsed, err)
			}
		}
		next, err := k.rival(e.Ctx, r.beside, k.name)
		e.Check(err)
		e.Check(next.Release(e.Ctx))
	}
}

// releaseLostReplyTaken does the same after another call acquired the lock. A lapsed lease was
// lost; otherwise the result is unknown, because the clock leapt.
func releaseLostReplyTaken[Tx any](e *env[Tx]) {
	r := e.releaser()
	for _, k := range lockKinds[Tx]() {
		for _, lapsed := range []bool{false, true} {
			lease := r.granted(k, k.name, lapsed)
			r.taken(k, k.name)
			want := holdfast.ErrUnknown
			if lapsed || r.proxy == nil {
				want = sqllock.ErrLost
			}
			if err := r.released(lease); !errors.Is(err, want) {
				e.Errorf("%s, lapsed %t: %v, want %v", k.name, lapsed, err, want)
			}
		}
	}
}

// releaseAfterGuard checks that the lease's context ends once a guard reports that the term is
// over. The release reports it too, even if the row changes afterwards.
func releaseAfterGuard[Tx any](e *env[Tx]) {
	r := e.releaser()
	for _, k := range lockKinds[Tx]() {
		lease := r.granted(k, k.name, false)
		r.taken(k, k.name)
		err := r.pool.DB.InTx(e.Ctx, func(ctx context.Context, tx Tx) error {
			return r.l.Guard(ctx, tx, lease.Term())
		})
		if !errors.Is(err, sqllock.ErrLost) {
			e.Errorf("%s: the guard says %v, want ErrLost", k.name, err)
		}
		if cause := context.Cause(lease.Context()); !errors.Is(cause, sqllock.ErrLost) {
			e.Errorf("%s: after the guard the context's cause is %v, want ErrLost", k.name, cause)
		}
		if err := r.released(lease); !errors.Is(err, sqllock.ErrLost) {
			e.Errorf("%s: the release says %v, want ErrLost", k.name, err)
		}
	}
}

// releaseGrantedTwice delays the request of an attempt, so that it is granted a second time
// after another's term. The release of the first term does not release the second.
func releaseGrantedTwice[Tx any](e *env[Tx]) {
	r := e.releaser()
	if r.proxy == nil || e.Engine == dbtest.TiDB {
		return // a call within the process is never late, and a late write is not committed
	}
	if err := r.grantedTwice("twice").Release(e.Ctx); err == nil {
		e.Error("the release says ok, and another had the lock before")
	}
	e.MustRelease(e.wantFree(r.beside, "twice"))
}

// passedGrantedTwice does the same while the next call of the process waits for the lock.
func passedGrantedTwice[Tx any](e *env[Tx]) {
	r := e.releaser()
	if r.proxy == nil || e.Engine == dbtest.TiDB {
		return // a call within the process is never late, and a late write is not committed
	}
	lease := r.grantedTwice("passed")
	arrived := make(chan arrival, 1)
	e.queue(e.Ctx, r.l, "passed", 0, 1, arrived)
	if err := lease.Release(e.Ctx); err == nil {
		e.Error("the release says ok, and another had the lock before")
	}
	next := <-arrived
	e.Check(next.err)
	e.MustRelease(next.lease)
}

// grantedTwice returns a lease whose attempt has a second term in the table.
func (r *releaser[Tx]) grantedTwice(key string) *sqllock.Lease {
	r.Helper()
	r.MustRelease(r.wantFree(r.l, key)) // the Locker takes over a known key and does not insert it
	late := r.proxy.Hold(sends(lateHolder), faultproxy.Close)
	lease := r.MustAcquire(r.l, key, sqllock.AcquireOptions{NoRenewal: true})
	if !late.Fired() {
		r.Fatal("no request was late")
	}
	r.taken(lockKinds[Tx]()[0], key)
	r.Check(late.Deliver())
	if held := r.rowInt(key, `CASE WHEN attempt IS NULL THEN 0 ELSE 1 END`); held != 1 {
		r.Fatal("the late request was granted nothing")
	}
	return lease
}
