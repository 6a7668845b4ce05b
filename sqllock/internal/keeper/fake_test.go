//go:build !race

// Its goroutines are ordered by virtual time (testing/synctest), which the race detector does not know.

package keeper

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/dialect"
	"github.com/holdfast-go/holdfast/internal/dialect/lockstmt"
	"github.com/holdfast-go/holdfast/internal/lockname"
	"github.com/holdfast-go/holdfast/internal/trace"
)

// The tests of this package run in bubbles of testing/synctest, beside a server that a test writes down:
// each moment is exact.

var (
	errDown   = errors.New("the server is down")
	errLocked = errors.New("the row is locked")
)

// fake is what a test says of a server, and what was asked of it.
type fake struct {
	t     *testing.T
	began time.Time
	k     *Keeper
	kind  *kind

	// renew answers a renewal. It returns how long terms that were not renewed last: without one, they
	// are gone.
	renew func(ctx context.Context, batch []*Lease) (renewed map[AttemptID]bool, left map[AttemptID]time.Duration, err error)
	// row answers a statement that returns one row.
	row func(ctx context.Context, statement string) ([]any, error)
	// sweep reports whether an abandoned term is released. Nil: each is.
	sweep func(a Abandoned) bool
	// spares returns an error if the pool spares no connection.
	spares error

	// here, waited and down say whether calls of this process wait, for which locks those of others do, and
	// with which error that is answered.
	here   bool
	waited map[lockname.Name]bool
	down   error

	tracer *trace.Tracer

	mu        sync.Mutex
	renewals  []asked
	looks     []asked // for waiting calls
	remaining int     // how often it was asked how long terms last
	left      map[AttemptID]time.Duration
	swept     []AttemptID
	ended     []*Lease
	over      []*Lease // those of ended that were lost
	released  []*Lease
	releasing func(l *Lease) // what Release does first
	finished  []bool         // whether they ended by that
	closed    []string
	stopping  time.Duration // how long Stop waits
}

// asked is a renewal: when it was asked for, since the test began, and of how many.
type asked struct {
	at time.Duration
	n  int
}

// keep returns a keeper whose server is f, closed when the test ends.
func (f *fake) keep(t *testing.T, of ...func(d *dialect.Dialect)) *Keeper {
	f.t, f.began = t, time.Now()
	d := &dialect.Dialect{
		Leases: dialect.LeaseSQL{
			Wake:     dialect.Wake{Await: "await"},
			Liveness: dialect.Liveness{Server: "server", Hold: "hold", Confirm: "confirm", Ended: "ended"},
		},
		Classify: func(err error) dialect.Class {
			if errors.Is(err, errLocked) {
				return dialect.Busy
			}
			return dialect.Other
		},
		RolledBack: func(error) bool { return false },
	}
	for _, change := range of {
		change(d)
	}
	process := NewProcess()
	s := &Statements{
		Tables: lockstmt.New(d, func(name string) string { return name }), Dialect: d, Process: process, Self: process.NewAttemptID(), ID: "store",
		onConn: func(_ context.Context, _ string, run func(q core.Querier) error) error { return run(f) },
	}
	f.k = New(s, Options{}, f.tracer, nil, func(_ context.Context, _ int, run func(q core.Querier) error) error {
		if f.spares != nil {
			return f.spares
		}
		return run(f)
	})
	f.kind = Of(f.k, func() *kind { return &kind{f} })
	t.Cleanup(func() { _ = f.k.Close(context.Background()) })
	return f.k
}

// since is how long the test runs.
func (f *fake) since() time.Duration { return time.Since(f.began) }

// lease keeps a lease of 30 seconds with a margin of three, which was sent now.
func (f *fake) lease(key string, once bool) *Lease {
	f.t.Helper()
	return f.leaseOf("", key, once)
}

func (f *fake) leaseOf(owner, key string, once bool) *Lease {
	f.t.Helper()
	l := f.newLeaseOf(owner, key, once, time.Now())
	f.k.Mu.Lock()
	defer f.k.Mu.Unlock()
	if !f.k.Keep(l) {
		f.t.Fatal("the keeper does not keep a lease that was just granted")
	}
	return l
}

const ttl, margin = 30 * time.Second, 3 * time.Second

func (f *fake) newLease(key string, once bool, sent time.Time) *Lease {
	f.t.Helper()
	return f.newLeaseOf("", key, once, sent)
}

func (f *fake) newLeaseOf(owner, key string, once bool, sent time.Time) *Lease {
	f.t.Helper()
	name, err := lockname.Of(lockname.Lease, core.Owner{ID: owner}, key)
	if err != nil {
		f.t.Fatal(err)
	}
	a := lockstmt.NewAttempt(name, f.k.NewAttemptID(), ttl)
	return f.k.NewLease(f.kind, 7, "lease", a, Settings{TTL: ttl, Margin: margin, Once: once, Values: context.Background()}, sent)
}

// ends waits until a lease ends, for an hour, and returns when it did, since the test began: 0 if it
// did not.
func (f *fake) ends(l *Lease) time.Duration {
	pause := time.Second / 2 // between the moments at which its timer ends it
	for range int(time.Hour / time.Second) {
		select {
		case <-l.Context().Done():
			return f.since()
		case <-time.After(pause):
		}
		pause = time.Second
		if l.Context().Err() != nil { // it reads the clock
			return f.since()
		}
	}
	return 0
}

// kind is a Kind whose statements fake answers.
type kind struct{ *fake }

func (s *kind) Renew(ctx context.Context, _ time.Duration, batch []*Lease) (map[AttemptID]bool, error) {
	s.mu.Lock()
	s.renewals = append(s.renewals, asked{s.since(), len(batch)})
	s.mu.Unlock()
	renewed, left, err := s.renew(ctx, batch)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.left = left
	return renewed, err
}

func (s *kind) Remaining(context.Context, []*Lease) (map[AttemptID]time.Duration, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.remaining++
	return s.left, nil
}

func (s *kind) Release(_ context.Context, l *Lease) error {
	if s.releasing != nil {
		s.releasing(l)
	}
	s.k.Mu.Lock()
	defer s.k.Mu.Unlock()
	s.released = append(s.released, l)
	s.finished = append(s.finished, s.k.Finish(l))
	return nil
}

func (s *kind) Sweep(_ context.Context, due []Abandoned) {
	for _, a := range due {
		s.mu.Lock()
		s.swept = append(s.swept, a.ID)
		s.mu.Unlock()
		s.k.Swept(a, s.sweep == nil || s.sweep(a))
	}
}

func (s *kind) WaitsHere(*Lease) bool { return s.here }

func (s *kind) Waited(_ context.Context, names []lockname.Name) (map[lockname.Name]bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.looks = append(s.looks, asked{s.since(), len(names)})
	waited := map[lockname.Name]bool{}
	for _, name := range names {
		waited[name] = s.waited[name]
	}
	return waited, s.down
}

func (s *kind) Ended(l *Lease, lost bool) {
	s.ended = append(s.ended, l)
	if lost {
		s.over = append(s.over, l)
	}
}

func (*kind) Notified(lockname.Name, []byte) {}
func (*kind) Missed()                        {}
func (*kind) Woken(Process)                  {}

// Close, Wait and Stop note their order.
func (s *kind) Close()               { s.closed = append(s.closed, "close") }
func (s *kind) Wait(context.Context) { s.closed = append(s.closed, "wait") }
func (s *kind) Stop() {
	time.Sleep(s.stopping)
	s.closed = append(s.closed, "stop")
}

// Exec and Query implement core.Querier: no statement of this package uses them here.
func (f *fake) Exec(context.Context, string, ...any) (core.Result, error) {
	return core.Result{}, errDown
}
func (f *fake) Query(context.Context, string, ...any) (core.Rows, error) { return nil, errDown }

// QueryRow implements core.RowQuerier.
func (f *fake) QueryRow(ctx context.Context, dest []any, query string, _ ...any) (bool, error) {
	row, err := f.row(ctx, query)
	if err != nil || row == nil {
		return false, err
	}
	for i, d := range dest {
		switch d := d.(type) {
		case *string:
			*d = row[i].(string)
		case **int64:
			*d = nil
			if n, is := row[i].(int); is {
				wide := int64(n)
				*d = &wide
			}
		}
	}
	return true, nil
}

// all says of every lease in a batch that it is renewed.
func all(batch []*Lease) map[AttemptID]bool {
	renewed := map[AttemptID]bool{}
	for _, l := range batch {
		renewed[l.attempt.ID] = true
	}
	return renewed
}

// asks returns the renewals so far.
func (f *fake) asks() []asked {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.renewals)
}
