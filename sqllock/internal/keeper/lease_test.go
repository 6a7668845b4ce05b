//go:build !race

// Its goroutines are ordered by virtual time (testing/synctest), which the race detector does not know.

package keeper

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/dialect/lockstmt"
	"github.com/holdfast-go/holdfast/internal/lockname"
	"github.com/holdfast-go/holdfast/internal/trace"
)

var errCaller = errors.New("the caller gave up")

func renewsAll() *fake {
	return &fake{renew: func(_ context.Context, batch []*Lease) (map[AttemptID]bool, map[AttemptID]time.Duration, error) {
		return all(batch), nil, nil
	}}
}

// locked runs f while the keeper's Mu is held.
func (f *fake) locked(do func()) {
	f.k.Mu.Lock()
	defer f.k.Mu.Unlock()
	do()
}

// TestKept checks which grants become leases, by the moment at which their answer comes, and when they end
// if nothing renews them.
func TestKept(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		after  time.Duration // since the request was sent
		closed bool
		kept   bool
	}{
		"at once":             {kept: true},
		"late":                {after: 20 * time.Second, kept: true},
		"just in time":        {after: ttl - margin - 1, kept: true},
		"at the margin":       {after: ttl - margin},
		"within the margin":   {after: ttl - 1},
		"too late":            {after: 2 * ttl},
		"at once, but closed": {closed: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f := renewsAll()
				k := f.keep(t)
				l := f.newLease("key", true, time.Now())
				time.Sleep(c.after)
				kept := false
				f.locked(func() {
					k.Closed = c.closed
					kept = k.Keep(l)
				})
				if kept != c.kept || !kept && !errors.Is(context.Cause(l.Context()), ErrLost) {
					t.Fatalf("it is kept: %t; %v", kept, context.Cause(l.Context()))
				}
				synctest.Wait()
				if swept := len(f.swept); swept == 1 == kept {
					t.Errorf("it is kept: %t, and %d grants are released", kept, swept)
				}
				if !kept {
					return
				}
				if l.Since() != f.began {
					t.Errorf("it was requested at %v, want %v", l.Since(), f.began)
				}
				if ended := f.ends(l); ended != ttl-margin {
					t.Errorf("it ended after %v", ended)
				}
			})
		})
	}
}

// TestLateTimer checks that a lease whose window is over has ended, regardless of the timer: it runs late in a
// process that was stopped.
func TestLateTimer(t *testing.T) {
	t.Parallel()
	for name, ends := range map[string]func(l *Lease) error{
		"its context is asked": func(l *Lease) error {
			err, cause := l.Context().Err(), context.Cause(l.Context())
			if (err == nil) != (cause == nil) {
				return errCaller
			}
			return cause
		},
		"it is released":       func(l *Lease) error { _ = l.Release(context.Background()); return context.Cause(l.Context()) },
		"the keeper is closed": func(l *Lease) error { _ = l.keeper.Close(context.Background()); return context.Cause(l.Context()) },
		"one use is left": func(l *Lease) error {
			l.again = 1
			return l.Release(context.Background())
		},
		"it is acquired again": func(l *Lease) error {
			switch {
			case l.Again(nil) || l.Again("another"):
				return errCaller
			case l.Again("somebody"):
				l.again = 0
				return nil
			}
			return context.Cause(l.Context())
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, late := range []bool{true, false} {
				synctest.Test(t, func(t *testing.T) {
					f := renewsAll()
					f.keep(t)
					l := f.lease("key", true)
					l.by = "somebody"
					if late {
						l.timer.Stop()
						time.Sleep(ttl - margin)
					}
					trusted := false
					f.locked(func() { trusted = l.Trusted() })
					if trusted == late {
						t.Errorf("its window is over: %t, and it is trusted: %t", late, trusted)
					}
					if err := ends(l); errors.Is(err, ErrLost) != late {
						t.Errorf("its window is over: %t, and it ended with %v", late, err)
					}
					_ = l.Release(context.Background())
					if wants := []bool{!late && name != "the keeper is closed"}; len(f.ended) != 1 || !slices.Equal(f.finished, wants) {
						t.Errorf("it ended %d times, by its release: %v, want %v", len(f.ended), f.finished, wants)
					}
				})
			}
		})
	}
}

// TestTicketWaits checks that a ticket is renewed while it waits, and has no window; that its window begins
// with its grant; and that one without renewals has none from then on.
func TestTicketWaits(t *testing.T) {
	t.Parallel()
	for _, once := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			f := renewsAll()
			k := f.keep(t)
			l := f.newLease("key", once, time.Now())
			f.locked(func() { k.KeepWaiting(l, time.Now()) })
			time.Sleep(5*time.Minute + time.Second)
			if n := len(f.asks()); n != 30 || l.Context().Err() != nil {
				t.Errorf("in five minutes it was renewed %d times; %v", n, context.Cause(l.Context()))
			}
			var until time.Time
			f.locked(func() {
				if l.Granted() {
					t.Error("it is granted")
				}
				k.Grant(l)
				until = l.Until()
			})
			if rest := until.Sub(f.began); rest != 5*time.Minute+ttl-margin || l.Since() != f.began.Add(f.since()) {
				t.Errorf("its window ends after %v, and it was granted at %v", rest, l.Since())
			}
			ended, want := f.ends(l), time.Duration(0)
			if once {
				want = 5*time.Minute + ttl - margin
			}
			if n := len(f.asks()); ended != want || once && n != 30 || !once && n < 30+350 {
				t.Errorf("renewals end: %t; it ended after %v, and was renewed %d times", once, ended, n)
			}
		})
	}
}

// TestTicketInSilence checks that a ticket which waits does not end while the server does not answer: it has no window.
// Its end is told by the row.
func TestTicketInSilence(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		first, gone := true, false
		f := &fake{renew: func(_ context.Context, batch []*Lease) (map[AttemptID]bool, map[AttemptID]time.Duration, error) {
			switch {
			case first:
				first = false
				return all(batch), nil, nil
			case gone:
				return nil, nil, nil
			}
			return nil, nil, errDown
		}}
		k := f.keep(t)
		l := f.newLease("key", false, time.Now())
		f.locked(func() { k.KeepWaiting(l, time.Now()) })
		if ended := f.ends(l) + f.ends(l); ended != 0 {
			t.Errorf("it ended after %v: %v", ended, context.Cause(l.Context()))
		}
		gone = true
		if ended := f.ends(l); ended == 0 || len(f.over) != 1 {
			t.Errorf("its row is gone, and %d tickets are lost", len(f.over))
		}
	})
}

// TestWithin checks that the context of a lease within Do ends with the call, and that the lease does not.
func TestWithin(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := renewsAll()
		k := f.keep(t)
		call, cancel := context.WithCancelCause(t.Context())
		type key struct{}
		name, err := lockname.Of(lockname.Lease, core.Owner{}, "key")
		if err != nil {
			t.Fatal(err)
		}
		l := k.NewLease(f.kind, 7, "lease", lockstmt.NewAttempt(name, k.NewAttemptID(), ttl),
			Settings{TTL: ttl, Margin: margin, Values: context.WithValue(t.Context(), key{}, "value"), Within: call}, time.Now())
		f.locked(func() { k.Keep(l) })
		if v := l.Context().Value(key{}); v != "value" {
			t.Errorf("its context has the value %v", v)
		}
		cancel(errCaller)
		synctest.Wait()
		if cause := context.Cause(l.Context()); !errors.Is(cause, errCaller) || !l.Live() {
			t.Errorf("its context ended with %v; it lives: %t", cause, l.Live())
		}
		if l.Key() != "key" || l.Token() != 7 || !k.TermOf(lockname.Lease, core.Owner{}, "key", 7).covers(l.Term()) || k.TermOf(lockname.Lease, core.Owner{}, "", 7) != (Term{}) {
			t.Errorf("its term is %+v", l.Term())
		}
	})
}

// TestAbandoned checks for how long, and how often, an unwanted grant is released, and for how long Close
// waits for it.
func TestAbandoned(t *testing.T) {
	t.Parallel()
	for _, done := range []int{1, 3, 1000} {
		synctest.Test(t, func(t *testing.T) {
			f := renewsAll()
			var at []time.Duration
			k := f.keep(t)
			f.sweep = func(Abandoned) bool {
				at = append(at, f.since())
				return len(at) == done
			}
			l := f.newLease("key", true, time.Now())
			k.Abandon(f.kind, l.attempt)
			if k.Pending.Load() != 1 {
				t.Error("Close would not wait for it")
			}
			time.Sleep(firstPause / 2)
			first := k.Pending.Load()
			time.Sleep(firstPause) // it was released for the second time, and its next pause is owedPause
			if last := k.Pending.Load(); (first == 0) != (done == 1) || last != 0 {
				t.Errorf("Close waits for %d after the first time, and for %d after the second; done is %d", first, last, done)
			}
			time.Sleep(time.Hour)
			if n := k.Pending.Load(); n != 0 {
				t.Errorf("Close waits for %d after the last time", n)
			}
			want := []time.Duration{0, firstPause, 3 * firstPause, 7 * firstPause, 15 * firstPause, 31 * firstPause, 63 * firstPause, 127 * firstPause, 255 * firstPause}
			want = want[:min(done, len(want))]
			if len(at) != len(want) || at[len(at)-1] != want[len(want)-1] {
				t.Errorf("it was released at %v, want %v", at, want)
			}
		})
	}
}

// TestClose checks what Close ends and releases, and in which order, and that nothing begins afterwards.
func TestClose(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := renewsAll()
		k := f.keep(t)
		a, b, ticket := f.lease("a", false), f.lease("b", true), f.newLease("ticket", false, time.Now())
		f.locked(func() { k.KeepWaiting(ticket, time.Now()) })
		if a.Again(nil) || b.Again(nil) {
			t.Error("a lease that nobody may acquire again was")
		}
		abandoned := f.newLease("abandoned", true, time.Now())
		f.sweep = func(Abandoned) bool { return f.since() >= firstPause }
		k.Abandon(f.kind, abandoned.attempt)
		if err := k.Close(t.Context()); err != nil {
			t.Error(err)
		}
		if f.since() < firstPause || len(f.swept) != 2 {
			t.Errorf("Close took %v, and released what was abandoned %d times", f.since(), len(f.swept))
		}
		for _, l := range []*Lease{a, b, ticket} {
			if cause := context.Cause(l.Context()); !errors.Is(cause, ErrClosed) {
				t.Errorf("%s ended with %v", l.Key(), cause)
			}
			if slices.Contains(f.released, l) != (l != ticket) {
				t.Errorf("%d leases are released", len(f.released))
			}
		}
		if want := []string{"close", "wait", "stop"}; !slices.Equal(f.closed, want) || len(f.over) != 0 {
			t.Errorf("the kind is closed by %q, want %q; %d leases are lost", f.closed, want, len(f.over))
		}
		kept := true
		f.locked(func() { kept = k.Keep(f.newLease("later", true, time.Now())) })
		if held, renewals := k.Held(); kept || len(held) != 0 || renewals != 0 || k.Ctx.Err() == nil {
			t.Errorf("after the end: %t, %d leases, %d renewals, %v", kept, len(held), renewals, k.Ctx.Err())
		}
	})
}

// TestCloseWithin checks that Close does not wait longer than its context.
func TestCloseWithin(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := renewsAll()
		k := f.keep(t)
		f.lease("a", false)
		k.Pending.Add(1) // a statement without an answer
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := k.Close(ctx); err != nil || f.since() > time.Second+10*time.Millisecond || len(f.released) != 1 {
			t.Errorf("%v after %v, %d leases are released", err, f.since(), len(f.released))
		}
	})
	synctest.Test(t, func(t *testing.T) {
		f := renewsAll()
		k := f.keep(t)
		f.lease("a", false)
		f.releasing = func(*Lease) { time.Sleep(4 * time.Second) } // it waits for a guarded transaction
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := k.Close(ctx); !errors.Is(err, context.DeadlineExceeded) || f.since() > 1200*time.Millisecond {
			t.Errorf("%v after %v", err, f.since())
		}
		time.Sleep(4 * time.Second)
	})
	synctest.Test(t, func(t *testing.T) {
		f := renewsAll()
		k := f.keep(t)
		f.stopping = 4 * time.Second // a statement that its driver does not end
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := k.Close(ctx); !errors.Is(err, context.DeadlineExceeded) || f.since() > 1200*time.Millisecond {
			t.Errorf("%v after %v", err, f.since())
		}
		time.Sleep(4 * time.Second)
	})
}

// TestLeave checks that a lease which its holder acquired three times ends with the third release.
func TestLeave(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]error{"released": nil, "lost": ErrLost, "closed": nil} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f := renewsAll()
				k := f.keep(t)
				l := f.lease("key", true)
				l.by = "somebody"
				f.locked(func() { l.Again("somebody"); l.Again("somebody") })
				switch name {
				case "lost":
					time.Sleep(ttl)
				case "closed":
					f.locked(func() { k.End(l, ErrClosed) })
				}
				if name != "released" {
					f.locked(func() {
						if l.Again("somebody") {
							t.Error("it was acquired again when it had ended")
						}
					})
				}
				for n := range 2 {
					if err := l.Release(t.Context()); !errors.Is(err, want) || len(f.released) != 0 || name == "released" && l.Context().Err() != nil {
						t.Errorf("release %d: %v, %v", n+1, err, l.Context().Err())
					}
				}
				f.releasing = func(l *Lease) {
					f.locked(func() {
						if l.Again("somebody") {
							t.Error("it was acquired while its last release was under way")
						}
					})
				}
				_ = l.Release(t.Context())
				_ = l.Release(t.Context())
				if len(f.released) != 1 || l.Context().Err() == nil || len(f.ended) != 1 {
					t.Errorf("it was released %d times, and ended %d times", len(f.released), len(f.ended))
				}
				f.locked(func() {
					if k.End(l, ErrReleased) {
						t.Error("it ended again")
					}
				})
				if _, renewals := k.Held(); renewals != 0 {
					t.Error("it is still renewed")
				}
			})
		})
	}
}

// heard notes the events of a keeper.
type heard struct{ events []trace.Event }

func (h *heard) Start(ctx context.Context, c trace.Call) (context.Context, func(trace.CallResult)) {
	return ctx, func(r trace.CallResult) {
		h.events = append(h.events, trace.Event{Name: c.Name, Outcome: r.Outcome, Err: r.Err, Count: r.Rows})
	}
}

func (h *heard) Event(_ context.Context, e trace.Event) { h.events = append(h.events, e) }

// TestEvents checks which events and calls a lease reports.
func TestEvents(t *testing.T) {
	t.Parallel()
	type said struct {
		name, outcome, cause string
		lasted               time.Duration
		rows                 int64
	}
	granted := said{name: trace.LeaseGranted}
	released := said{name: "lease.release"}
	renewed := said{name: "lease.renew", rows: 1}
	for name, c := range map[string]struct {
		do   func(f *fake, l *Lease)
		want []said
	}{
		"released": {
			func(_ *fake, l *Lease) { time.Sleep(time.Second); _ = l.Release(context.Background()) },
			[]said{granted, {name: trace.LeaseEnded, outcome: trace.Released, lasted: time.Second}, released},
		},
		"closed": {
			func(f *fake, _ *Lease) { _ = f.k.Close(context.Background()) },
			[]said{granted, {name: trace.LeaseEnded, outcome: trace.Closed}, released},
		},
		"renewed, then gone": {func(f *fake, _ *Lease) {
			time.Sleep(15 * time.Second)
			f.renew = func(context.Context, []*Lease) (map[AttemptID]bool, map[AttemptID]time.Duration, error) {
				return nil, nil, nil
			}
			time.Sleep(15 * time.Second)
		}, []said{granted, renewed, {name: "lease.renew"}, {name: trace.LeaseEnded, outcome: trace.Lost, lasted: 20 * time.Second}, {name: trace.LeaseLost, cause: trace.CauseTaken}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				h := &heard{}
				f := renewsAll()
				f.tracer = &trace.Tracer{Listeners: []trace.Listener{h}, Outcome: func(error) string { return "" }}
				f.keep(t)
				l := f.lease("key", false)
				c.do(f, l)
				synctest.Wait()
				var got []said
				for _, e := range h.events {
					got = append(got, said{e.Name, e.Outcome, e.Cause, e.Duration, e.Count})
				}
				if !slices.Equal(got, c.want) {
					t.Errorf("got\n%v, want\n%v", got, c.want)
				}
			})
		})
	}
}
