//go:build !race

// Its goroutines are ordered by virtual time (testing/synctest), which the race detector does not know.

package keeper

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/trace"
)

// TestSessionLost checks when the leases of a session end after something happens to it, after 3.5 seconds:
// no later than another process may take them over.
func TestSessionLost(t *testing.T) {
	t.Parallel()
	const (
		at           = 3500 * time.Millisecond
		next         = 4 * time.Second // when it is confirmed next
		silent       = next + confirmBound
		first, other = 41, 42 // the server's numbers of connections
	)
	type answers struct {
		confirm func(ctx context.Context) (any, error) // once it has happened
		await   func(ctx context.Context) ([]any, error)
	}
	says := func(row []any, err error) func(context.Context) ([]any, error) {
		return func(context.Context) ([]any, error) { return row, err }
	}
	confirms := func(n any, err error) func(context.Context) (any, error) {
		return func(context.Context) (any, error) { return n, err }
	}
	hangs := func(ctx context.Context) (any, error) { <-ctx.Done(); return nil, ctx.Err() }
	lives := confirms(first, nil)
	deaf := func(ctx context.Context) ([]any, error) { <-ctx.Done(); return nil, ctx.Err() }
	hears := says([]any{1, 1, 1}, nil)
	for name, c := range map[string]struct {
		answers

		ends time.Duration
		err  error
	}{
		"nothing":                               {answers{lives, deaf}, 0, nil},
		"a connection has another number":       {answers{confirms(other, nil), deaf}, next, errNoSession},
		"a connection has no number":            {answers{confirms(nil, nil), deaf}, next, errNoSession},
		"the connection is closed":              {answers{confirms(nil, errDown), deaf}, next, errDown},
		"the connection is silent":              {answers{hangs, deaf}, silent, context.DeadlineExceeded},
		"the watcher gets the lock":             {answers{lives, hears}, at, errNoSession},
		"the watcher gets it, all else is mute": {answers{hangs, hears}, at, errNoSession},
		"the watcher does not get the lock":     {answers{lives, says([]any{1, 0, nil}, nil)}, 0, nil},
		"the watcher's wait is too long":        {answers{lives, says(nil, errLocked)}, 0, nil},
		"the watcher's connection is closed":    {answers{lives, says(nil, errDown)}, 0, nil},
		"both connections are closed":           {answers{confirms(nil, errDown), says(nil, errDown)}, at, errDown},
		"the watcher's statement is ended":      {answers{lives, says([]any{1, nil, nil}, nil)}, 0, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var sessions, happened, awaiting atomic.Int32
				f := &fake{renew: func(_ context.Context, batch []*Lease) (map[AttemptID]bool, map[AttemptID]time.Duration, error) {
					return all(batch), nil, nil
				}}
				f.row = func(ctx context.Context, statement string) ([]any, error) {
					is := f.since() >= at && sessions.Load() == 1
					switch statement {
					case "server":
						return []any{"this one"}, nil
					case "hold":
						return []any{1, first + 10*int(sessions.Add(1)-1)}, nil
					case "confirm":
						if is {
							n, err := c.confirm(ctx)
							return []any{n}, err
						}
						return []any{first + 10*int(sessions.Load()-1)}, nil
					case "await":
						awaiting.Add(1)
						defer awaiting.Add(-1)
						wait := time.Second // as MySQL does
						if before := at - f.since(); before > 0 {
							wait = min(wait, before)
						}
						select {
						case <-ctx.Done():
							return nil, ctx.Err()
						case <-time.After(wait):
						}
						if f.since() >= at && sessions.Load() == 1 {
							happened.Add(1)
							return c.await(ctx)
						}
						return []any{1, 0, nil}, nil
					}
					return nil, errDown
				}
				h := &heard{}
				f.tracer = &trace.Tracer{Listeners: []trace.Listener{h}, Outcome: func(error) string { return "" }}
				k := f.keep(t)
				of := f.lease("of no session", false)
				if err := k.Liveness.Open(t.Context()); err != nil {
					t.Fatal(err)
				}
				id := k.Identity()
				if tag := sha256.Sum256([]byte("this one")); !bytes.Equal(id[4:7], tag[:3]) {
					t.Errorf("the session %v does not name its server", id)
				}
				if !id.InSession() || k.Liveness.Number() != first {
					t.Errorf("the session is %v, of the connection %d", id, k.Liveness.Number())
				}
				l := f.lease("of the session", false)
				if ended := f.ends(l); ended != c.ends {
					t.Errorf("its lease ended after %v, want %v", ended, c.ends)
				}
				if happened.Load() == 0 && c.ends != next && c.ends != silent {
					t.Error("nobody awaits the end of the session")
				}
				if c.ends == 0 {
					return
				}
				var lost *LostError
				if cause := context.Cause(l.Context()); !errors.As(cause, &lost) || lost.Reason != sessionLost || !errors.Is(lost.Err, c.err) {
					t.Errorf("its lease ended with %v, want %v", cause, c.err)
				}
				late := f.newLease("its answer came late", false, time.Now())
				copy(late.attempt.ID[:], id[:])
				k.Mu.Lock()
				kept := k.Keep(late)
				k.Mu.Unlock()
				if kept || k.Identity().InSession() {
					t.Errorf("a grant of the lost session counts: %t; the session is %v", kept, k.Identity())
				}
				plain := f.newLease("granted before the session began", false, time.Now())
				plain.attempt.ID = k.Statements.Process.NewAttemptID()
				f.locked(func() { kept = k.Keep(plain) })
				if !kept {
					t.Error("a grant of no session is no lease")
				}
				time.Sleep(firstRetry)
				synctest.Wait()
				failed := slices.ContainsFunc(h.events, func(e trace.Event) bool { return e.Name == trace.WaitFailed && errors.Is(e.Err, c.err) })
				if !failed {
					t.Errorf("nothing is reported of %v", c.err)
				}
				if again := k.Identity(); !again.InSession() || again == id || k.Liveness.Number() != first+10 {
					t.Errorf("after a second the session is %v, of the connection %d, and was %v", again, k.Liveness.Number(), id)
				}
				next := f.lease("of the next session", false)
				time.Sleep(time.Hour)
				if n := awaiting.Load(); n != 1 {
					t.Errorf("%d connections await the end of a session", n)
				}
				if next.Context().Err() != nil || of.Context().Err() != nil {
					t.Errorf("others ended: %v, %v", context.Cause(next.Context()), context.Cause(of.Context()))
				}
			})
		})
	}
}

// TestSessionDoesNotBegin checks what Open returns when there is no session.
func TestSessionDoesNotBegin(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		hold   []any
		err    error // of the statements
		spares error
		want   error
	}{
		"another connection has the lock": {hold: []any{0, 41}, want: errNoSession},
		"no answer about the lock":        {hold: []any{nil, 41}, want: errNoSession},
		"a connection without a number":   {hold: []any{1, nil}, want: errNoSession},
		"no server":                       {hold: []any{1, 41}, err: errDown, want: errDown},
		"no connection":                   {spares: errDown, want: errDown},
		"a small pool":                    {spares: core.ErrNoListener, want: holdfast.ErrInvalid},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f := &fake{spares: c.spares, row: func(_ context.Context, statement string) ([]any, error) {
					if statement == "server" {
						return []any{"this one"}, c.err
					}
					return c.hold, nil
				}}
				k := f.keep(t)
				if err := k.Liveness.Open(t.Context()); !errors.Is(err, c.want) {
					t.Errorf("got %v, want %v", err, c.want)
				}
				if k.Identity().InSession() || k.Liveness.ID() != "" {
					t.Errorf("the session is %v", k.Identity())
				}
			})
		})
	}
}

// TestSessionEnded checks of whose session a process may say that it has ended: only its own server knows.
func TestSessionEnded(t *testing.T) {
	t.Parallel()
	id := func(server string, session bool) (p Process) {
		copy(p[:], "abcd")
		tag := sha256.Sum256([]byte(server))
		copy(p[4:7], tag[:])
		if session {
			p[7] = inSession
		}
		return p
	}
	for name, c := range map[string]struct {
		of   Process
		free any // whether its lock is free
		err  error
		want bool
	}{
		"its lock is free":                   {id("this one", true), 1, nil, true},
		"its lock is held":                   {id("this one", true), 0, nil, false},
		"no answer about its lock":           {id("this one", true), nil, nil, false},
		"the server is down":                 {id("this one", true), 1, errDown, false},
		"a session of another server":        {id("another one", true), 1, nil, false},
		"a process without a session":        {id("this one", false), 1, nil, false},
		"nobody":                             {Process{}, 1, nil, false},
		"its lock is free on another server": {id("", true), 1, nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				asked := 0
				f := &fake{row: func(_ context.Context, statement string) ([]any, error) {
					if statement != "ended" {
						return nil, errDown
					}
					asked++
					return []any{c.free, "this one"}, c.err
				}}
				s := f.keep(t).Liveness
				if s.Ended(t.Context(), c.of) != c.want || s.EndedNow(t.Context(), c.of) != c.want {
					t.Errorf("it says %t", !c.want)
				}
				if !c.of.InSession() {
					if asked != 0 {
						t.Errorf("%d statements", asked)
					}
					if s.suspect(c.of); s.Suspected(c.of) || len(s.others) != 0 {
						t.Errorf("%d sessions are known", len(s.others))
					}
					return
				}
				// Polls ask now and then, until the answer is yes; at once while there is a reason.
				polls := func(every, during time.Duration) (n int) {
					before := asked
					for range int(during / every) {
						time.Sleep(every)
						if s.EndedNow(t.Context(), c.of) != c.want {
							t.Errorf("it says %t", !c.want)
						}
					}
					return asked - before
				}
				rare, often := polls(10*time.Millisecond, time.Second), 0
				s.suspect(c.of)
				if !s.Suspected(c.of) {
					t.Error("it is not suspected")
				}
				often = polls(10*time.Millisecond, suspected)
				if s.Suspected(c.of) {
					t.Error("it is suspected for too long")
				}
				wantRare, wantOften := int(time.Second/endedEvery), int(suspected/(10*time.Millisecond))-1
				if c.want {
					wantRare, wantOften = 0, 0
				}
				if rare != wantRare || often < wantOften || often > wantOften+1 {
					t.Errorf("it asked %d times in a second, and %d times while it was suspected; want %d and %d", rare, often, wantRare, wantOften)
				}
				s.suspect(id("a second one", true))
				if len(s.others) != 2 {
					t.Errorf("%d sessions are known", len(s.others))
				}
				time.Sleep(2 * time.Minute)
				s.suspect(id("a third one", true))
				if len(s.others) != 1 {
					t.Errorf("%d sessions are known after two minutes", len(s.others))
				}
			})
		})
	}
	if one, two := NewProcess(), NewProcess(); one == two {
		t.Error("two processes have one id")
	}
	if !strings.HasPrefix(live(id("this one", true)), "holdfast_live_61626364") {
		t.Error(live(id("this one", true)))
	}
}
