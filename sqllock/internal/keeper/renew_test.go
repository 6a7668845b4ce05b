//go:build !race

// Its goroutines are ordered by virtual time (testing/synctest), which the race detector does not know.

package keeper

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/internal/dialect"
)

// answer is what one renewal meets.
type answered struct {
	takes time.Duration // until the answer comes
	err   error         // instead of one
	lasts time.Duration // it was not renewed, and lasts so long: a guarded transaction has its row
	gone  bool          // it was not renewed, and there is no such term
	hangs bool          // no answer comes before the renewal's own bound
}

// TestRenewal checks when a lease of 30 seconds with a margin of three ends, and when its renewals are asked
// for: a window of trust is counted from before the statement that was committed last, less the margin.
func TestRenewal(t *testing.T) {
	t.Parallel()
	const s = time.Second
	ok, down := answered{}, answered{err: errDown}
	const soon = ttl / retryPart // a renewal is tried again within
	for _, c := range []struct {
		name    string
		answers []answered      // the last one comes again and again
		asked   []time.Duration // the first renewals: each at most soon/4 before
		ends    time.Duration   // 0: it does not
		reason  string
		err     error // LostError's
	}{
		{"every time", []answered{ok}, []time.Duration{10 * s, 20 * s, 30 * s}, 0, "", nil},
		{"every time, slowly", []answered{{takes: 3 * s}}, []time.Duration{10 * s, 20 * s, 30 * s}, 0, "", nil},
		{"once, at once", []answered{ok, down}, []time.Duration{10 * s, 20 * s, 20*s + soon}, 37 * s, "over before a renewal", errDown},
		{"once, slowly", []answered{{takes: 5 * s}, down}, []time.Duration{10 * s, 20 * s, 20*s + soon}, 37 * s, "over before a renewal", errDown},
		{"never", []answered{down}, []time.Duration{10 * s, 10*s + soon}, 27 * s, "over before a renewal", errDown},
		{"never: no answer", []answered{{hangs: true}}, []time.Duration{10 * s, 20*s + soon}, 27 * s, "over before a renewal", context.DeadlineExceeded},
		{"too late", []answered{{hangs: true}, {takes: 8 * s}}, []time.Duration{10 * s, 20*s + soon}, 27 * s, "over before a renewal", context.DeadlineExceeded},
		{"after an error", []answered{down, ok}, []time.Duration{10 * s, 10*s + soon, 20*s + soon}, 0, "", nil},
		{"gone", []answered{{gone: true}}, []time.Duration{10 * s}, 10 * s, "another's by now", nil},
		{"gone, after an error and a renewal", []answered{down, ok, {gone: true}}, []time.Duration{10 * s, 10*s + soon, 20*s + soon}, 20*s + soon, "another's by now", nil},
		{"expired", []answered{{lasts: -1}}, []time.Duration{10 * s}, 10 * s, "another's by now", nil},
		{"locked, and lasts longer", []answered{{lasts: 25 * s}, down}, []time.Duration{10 * s, 10*s + soon}, 32 * s, "over before a renewal", errDown},
		{"locked, and lasts less", []answered{{lasts: 5 * s}, down}, []time.Duration{10 * s, 10*s + soon}, 27 * s, "over before a renewal", errDown},
		{"locked, then renewed", []answered{{lasts: 20 * s}, ok}, []time.Duration{10 * s, 10*s + soon, 20*s + soon}, 0, "", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				answers := c.answers
				f := &fake{renew: func(ctx context.Context, batch []*Lease) (map[AttemptID]bool, map[AttemptID]time.Duration, error) {
					a := answers[0]
					answers = answers[min(1, len(answers)-1):]
					if a.hangs {
						<-ctx.Done()
						return nil, nil, ctx.Err()
					}
					time.Sleep(a.takes)
					switch {
					case a.gone || a.err != nil:
						return nil, nil, a.err
					case a.lasts != 0:
						return nil, map[AttemptID]time.Duration{batch[0].attempt.ID: a.lasts}, nil
					}
					return all(batch), nil, nil
				}}
				f.keep(t)
				l := f.lease("key", false)
				ended := f.ends(l)
				if early := c.ends - ended; early < 0 || early > soon/4 && c.ends != 0 || early != 0 && strings.HasPrefix(c.reason, "over") {
					t.Errorf("it ended after %v, want %v", ended, c.ends)
				}
				if want := c.answers[0].lasts + c.answers[len(c.answers)-1].lasts; (f.remaining > 0) != (want != 0 || strings.Contains(c.reason, "another's")) {
					t.Errorf("it asked %d times how long the lease lasts", f.remaining)
				}
				asks := f.asks()
				for i, want := range c.asked {
					if i >= len(asks) || asks[i].at > want || asks[i].at < want-soon/4 || want%(10*s) == 0 && asks[i].at != want {
						t.Errorf("renewals are asked for at %v, want %v", asks, c.asked)
						break
					}
				}
				if c.ends == 0 {
					if n := int(time.Hour / (10 * s)); len(asks) < n-1 || len(asks) > n+1 {
						t.Errorf("%d renewals in an hour", len(asks))
					}
					return
				}
				lost := (*LostError)(nil)
				if cause := context.Cause(l.Context()); !errors.As(cause, &lost) || !strings.Contains(lost.Reason, c.reason) || !errors.Is(lost.Err, c.err) || (lost.Err == nil) != (c.err == nil) {
					t.Errorf("it ended with %v, want %q and %v", cause, c.reason, c.err)
				}
				if len(f.over) != 1 || f.over[0] != l {
					t.Errorf("its kind was told of %d lost leases", len(f.over))
				}
			})
		})
	}
}

// TestRenewalOfOne checks that a renewal counts for each lease of a batch alone, that one which ended
// in between stays ended, and that one without renewals has none.
func TestRenewalOfOne(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var gone, released *Lease
		f := &fake{}
		f.renew = func(ctx context.Context, batch []*Lease) (map[AttemptID]bool, map[AttemptID]time.Duration, error) {
			renewed := all(batch)
			delete(renewed, gone.attempt.ID)
			if !slices.IsSortedFunc(batch, func(a, b *Lease) int { return a.attempt.Name.Compare(b.attempt.Name) }) {
				t.Error("they are not in the order of their names")
			}
			if err := released.Release(ctx); err != nil {
				t.Error(err)
			}
			return renewed, nil, nil
		}
		k := f.keep(t)
		kept, once := f.lease("kept", false), f.lease("once", true)
		gone, released = f.lease("gone", false), f.lease("released", false)
		at := map[*Lease]time.Duration{}
		var mu sync.Mutex
		for _, l := range []*Lease{kept, once, gone, released} {
			context.AfterFunc(l.Context(), func() {
				mu.Lock()
				defer mu.Unlock()
				at[l] = f.since()
			})
		}
		time.Sleep(time.Hour)
		if err := kept.Context().Err(); err != nil {
			t.Error(err)
		}
		for l, want := range map[*Lease]struct {
			cause error
			at    time.Duration
		}{gone: {ErrLost, 10 * time.Second}, released: {ErrReleased, 10 * time.Second}, once: {ErrLost, ttl - margin}} {
			if cause := context.Cause(l.Context()); !errors.Is(cause, want.cause) || at[l] != want.at {
				t.Errorf("%s ended after %v with %v, want %v after %v", l.Key(), at[l], cause, want.cause, want.at)
			}
		}
		if first, last := f.asks()[0].n, f.asks()[len(f.asks())-1].n; first != 3 || last != 1 {
			t.Errorf("the first renewal is of %d leases, and the last one of %d", first, last)
		}
		k.Mu.Lock()
		held, renewals := k.Held()
		k.Mu.Unlock()
		if len(held) != 1 || renewals > 1 {
			t.Errorf("%d leases are held, and %d renewals are due", len(held), renewals)
		}
	})
}

// TestRenewedAlone checks that leases are renewed one by one after a statement for all of them waited in
// vain for a locked row, on an engine that cannot skip one: none but the locked one ends.
func TestRenewedAlone(t *testing.T) {
	t.Parallel()
	for _, alone := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			var locked *Lease
			f := &fake{renew: func(_ context.Context, batch []*Lease) (map[AttemptID]bool, map[AttemptID]time.Duration, error) {
				if slices.Contains(batch, locked) {
					time.Sleep(time.Second)
					return nil, nil, errLocked
				}
				return all(batch), nil, nil
			}}
			f.keep(t, func(d *dialect.Dialect) { d.Leases.Alone = alone })
			locked = f.lease("locked", false)
			var others []*Lease
			for i := range 2 * renewAtOnce {
				others = append(others, f.lease(fmt.Sprint(i, " of the others"), false))
			}
			every := 1 + len(others)
			if ended := f.ends(locked); ended != ttl-margin {
				t.Errorf("the locked one ended after %v", ended)
			}
			for _, l := range others {
				if err := l.Context().Err(); (err == nil) != alone {
					t.Errorf("alone is %t, and %s ended with %v", alone, l.Key(), err)
				}
			}
			alones := 0
			asks := f.asks()
			for _, a := range asks[1:min(1+every, len(asks))] { // at once
				if a.n == 1 && a.at == 11*time.Second {
					alones++
				}
			}
			if alone && alones != every || !alone && alones != 0 {
				t.Errorf("%d of %d leases were renewed alone at once: %v", alones, every, asks)
			}
			for _, a := range asks[1:] {
				if alone && a.n == every {
					t.Errorf("the locked one is renewed among others: %v", asks)
				}
			}
		})
	}
}

// TestRenewedTogether checks that the leases of many owners, each of which takes a statement, are all renewed, a
// few at a time.
func TestRenewedTogether(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var now, most int
		f := &fake{}
		f.renew = func(_ context.Context, batch []*Lease) (map[AttemptID]bool, map[AttemptID]time.Duration, error) {
			f.mu.Lock()
			now++
			most = max(most, now)
			f.mu.Unlock()
			time.Sleep(time.Second)
			f.mu.Lock()
			now--
			f.mu.Unlock()
			return all(batch), nil, nil
		}
		f.keep(t)
		var leases []*Lease
		for i := range 3 * renewAtOnce {
			leases = append(leases, f.leaseOf(strings.Repeat("o", i), "key", false))
		}
		time.Sleep(time.Hour)
		for _, l := range leases {
			if l.Context().Err() != nil {
				t.Errorf("the lease of %q ended: %v", l.attempt.Name.Owner, context.Cause(l.Context()))
			}
		}
		if most != renewAtOnce {
			t.Errorf("%d statements at a time, want %d", most, renewAtOnce)
		}
	})
}

// TestErrorOfRenewals checks that a lease which is lost names the reason, and not the end of its time, which
// has cut the last renewal off.
func TestErrorOfRenewals(t *testing.T) {
	t.Parallel()
	denied, cut := errors.New("denied"), fmt.Errorf("sent: %w", context.DeadlineExceeded)
	for _, c := range [][3]error{{nil, denied, denied}, {nil, cut, cut}, {denied, cut, denied}, {cut, denied, denied}, {cut, cut, cut}} {
		if got := better(c[0], c[1]); got != c[2] { //nolint:errorlint // the error itself
			t.Errorf("%v, then %v: %v", c[0], c[1], got)
		}
	}
}
