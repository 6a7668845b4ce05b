package simulation

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/sqllock"
	"github.com/holdfast-go/holdfast/sqllock/fairlock"
)

// script is a world in which a test says what happens, and not a seed.
type script struct {
	*world

	t     *testing.T
	scene *tickets
	holds string // statements that are not answered: the beginning of their key
	calls int
}

// play runs f in a world of two processes.
func play(t *testing.T, f func(s *script)) {
	t.Helper()
	open(t)
	w := newWorld(ticketScene, 1)
	w.traced = true
	synctest.Test(t, func(t *testing.T) {
		w.open(t, 0)
		w.open(t, 1)
		defer w.end()
		f(&script{world: w, t: t, scene: w.scene.(*tickets), holds: "none"})
	})
}

// outcome is what a call returned.
type outcome struct {
	lease *lease
	err   error
	over  bool
}

type acquisition = func(context.Context, string, ...sqllock.AcquireOptions) (*lease, error)

// ask begins a call.
func (s *script) ask(ctx context.Context, f acquisition) *outcome {
	o := &outcome{}
	s.calls++
	ctx = context.WithValue(ctx, callerKey{}, s.calls)
	go func() {
		o.lease, o.err = f(ctx, "a")
		o.over = true
	}()
	return o
}

// until answers all statements but those that are held, and lets time pass, until something holds.
func (s *script) until(what string, holds func() bool) {
	s.t.Helper()
	for range 1000 {
		synctest.Wait()
		if holds() {
			return
		}
		answers := false
		for _, one := range s.ready() {
			switch ended := context.Cause(one.ctx); {
			case ended != nil:
				s.strike(one, ended, failed)
			case strings.HasPrefix(one.key(), s.holds):
				continue
			default:
				s.strike(one, nil, answered)
			}
			answers = true
			break
		}
		if !answers {
			s.sleep(1)
		}
	}
	s.t.Fatalf("never: %s\n%s", what, strings.Join(s.trace, "\n"))
}

// sent reports whether a statement waits.
func (s *script) sent(key string) bool { return s.find(key) != nil }

func (s *script) find(key string) *statement {
	for _, one := range s.ready() {
		if strings.HasPrefix(one.key(), key) {
			return one
		}
	}
	return nil
}

func (s *script) tickets() int { return len(s.scene.records.committed.tickets) }

// TestGrantIsOfTheTicketThatWasJudged lets two readers get their turn; while the statement that grants to the first one takes long, both
// tickets expire, a writer gets the lock, and the second reader enters again, behind it. Its new ticket is not granted.
func TestGrantIsOfTheTicketThatWasJudged(t *testing.T) {
	play(t, func(s *script) {
		writer := s.ask(context.Background(), s.scene.fairs[0].Acquire)
		s.until("a writer has it", func() bool { return writer.over })
		readers := []*outcome{s.ask(context.Background(), s.scene.fairs[1].AcquireShared), s.ask(context.Background(), s.scene.fairs[1].AcquireShared)}
		s.until("readers wait", func() bool { return s.tickets() == 3 })
		s.holds = "p1 -1 confirm"
		released := s.ask(context.Background(), func(ctx context.Context, _ string, _ ...sqllock.AcquireOptions) (*lease, error) {
			return nil, writer.lease.Release(ctx)
		})
		s.until("it is the readers' turn", func() bool { return released.over && s.sent("p1 -1 confirm") })
		s.frozen[1] = time.Now().Add(time.Hour)
		next := s.ask(context.Background(), s.scene.fairs[0].Acquire)
		s.until("another writer has it", func() bool { return next.over })
		s.frozen[1] = s.frozen[0]
		s.until("a reader enters again", func() bool { return s.tickets() == 3 })
		s.holds = "none"
		s.until("the grants are over", func() bool { return !s.sent("p1 -1 confirm") })
		for _, reader := range readers {
			if reader.over && next.lease.Context().Err() == nil {
				t.Errorf("a reader has the lock beside a writer: %v", reader.err)
			}
		}
	})
}

// TestTryPassesOverExpiredTickets lets a reader try, and another reader's ticket expire whenever it looks: there is room for both.
func TestTryPassesOverExpiredTickets(t *testing.T) {
	play(t, func(s *script) {
		const looks = "p1 1 look in line"
		try := s.ask(context.Background(), s.scene.fairs[1].TryAcquireShared)
		for n := range int64(8) {
			s.holds = looks
			s.until("it looks, or is over", func() bool { return try.over || s.sent(looks) })
			if try.over {
				break
			}
			c := &s.scene.records.committed
			c.tickets = append(slices.Clip(c.tickets), record{"", []byte("fa"), n + 1, make([]byte, attemptLength), int64(1), int64(fairlock.MaxPermits), "gone", n, n, n})
			s.strike(s.find(looks), nil, answered)
		}
		if try.err != nil {
			t.Error(try.err)
		}
	})
}

// quiet is a context that has ended, but whose Done has not told so yet.
type quiet struct {
	context.Context

	ended atomic.Bool
}

func (c *quiet) Err() error {
	if c.ended.Load() {
		return context.Canceled
	}
	return c.Context.Err()
}

// TestGrantThatComesTooLateIsGivenBack lets a ticket enter so late that its grant is not to be trusted any more when the answer comes, and its
// call gives up in that moment. The ticket is removed at once.
func TestGrantThatComesTooLateIsGivenBack(t *testing.T) {
	play(t, func(s *script) {
		ctx := &quiet{Context: context.Background()}
		late := s.ask(ctx, s.scene.fairs[0].Acquire)
		s.holds = "p0 -1 draw"
		s.until("its entry is on its way", func() bool { return s.sent(s.holds) })
		s.sleep(int(ttl / tick))
		ctx.ended.Store(true)
		s.holds = "none"
		s.until("it has given up", func() bool { return late.over })
		s.sleep(1)
		s.until("its ticket is gone", func() bool {
			return s.tickets() == 0 || expired(s.scene.records.committed.tickets[0], micros(time.Now()))
		})
		if late.err == nil || s.tickets() != 0 {
			t.Errorf("%v, and %d tickets", late.err, s.tickets())
		}
	})
}
