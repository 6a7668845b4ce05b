package history_test

import (
	"container/heap"
	"math/rand/v2"
	"time"

	"github.com/holdfast-go/holdfast/internal/test/history"
)

// A bug is a defect of a simulated lock.
type bug string

const (
	correct        bug = "correct"
	tokenReset     bug = "release deletes the row, and tokens begin at 1 again"
	releaseByName  bug = "release does not look at the token"
	renewByName    bug = "renewal does not look at the token"
	earlyExpiry    bug = "the lease expires before the holder's context"
	grantsHeld     bug = "a held lease is granted now and then"
	refusesFree    bug = "a free lease is refused now and then"
	commitsExpired bug = "the guard does not look at the token"
)

const (
	ttl    = 1000 * time.Microsecond
	margin = 100 * time.Microsecond
)

// A row is a lease in the simulated database.
type row struct {
	last    int64
	held    bool
	expires time.Duration
}

// A sim runs clients against leases in virtual time: one event after another, so that a seed
// determines the history.
type sim struct {
	rng     *rand.Rand
	bug     bug
	keys    int
	limit   int // of operations
	rows    map[history.Key]*row
	h       history.History
	events  events
	crashes bool // answers get lost, holders die
}

func simulate(seed uint64, b bug, clients, keys, limit int) history.History {
	s := &sim{
		rng: rand.New(rand.NewPCG(seed, 0)), bug: b, keys: keys, limit: limit,
		rows: make(map[history.Key]*row), crashes: b != refusesFree,
	}
	for c := range clients {
		s.at(s.short(), func(t time.Duration) { s.acquire(t, c) })
	}
	for len(s.events) > 0 {
		e, _ := heap.Pop(&s.events).(event)
		e.do(e.at)
	}
	return s.h
}

func (s *sim) at(t time.Duration, do func(time.Duration)) { heap.Push(&s.events, event{t, do}) }

func (s *sim) short() time.Duration { return time.Duration(1+s.rng.IntN(50)) * time.Microsecond }

func (s *sim) chance(percent int) bool { return s.crashes && s.rng.IntN(100) < percent }

// call makes an operation: it takes effect after a delay, and the answer arrives after another
// delay, or is lost.
func (s *sim) call(t time.Duration, op history.Op, effect func(t time.Duration, op *history.Op) (again bool), then func(t time.Duration, op history.Op)) {
	op.ID, op.Call = len(s.h), t
	s.h = append(s.h, op)
	var try func(time.Duration)
	try = func(t time.Duration) {
		answer := op
		if effect(t, &answer) {
			s.at(t+ttl/10+s.short(), try)
			return
		}
		s.at(t+s.short(), func(t time.Duration) {
			if s.chance(2) {
				answer = op // lost
			} else {
				answer.Return = t
				s.h[op.ID] = answer
			}
			then(t, answer)
		})
	}
	s.at(t+s.short(), try)
}

// acquire is the life of a client: it starts again while operations are left.
func (s *sim) acquire(t time.Duration, client int) {
	if len(s.h) >= s.limit {
		return
	}
	key := history.Key([]byte{'a' + byte(s.rng.IntN(s.keys))})
	if s.rows[key] == nil {
		s.rows[key] = &row{}
	}
	waits := s.rng.IntN(2) == 0
	s.call(t, history.Op{Client: client, Kind: history.KindGrant, Key: key}, func(now time.Duration, op *history.Op) bool {
		return s.grant(s.rows[key], now, op, waits && len(s.h) < s.limit)
	}, func(t time.Duration, op history.Op) {
		if op.Outcome != history.OK || t >= op.Until {
			if op.Outcome == history.OK {
				s.h[op.ID] = history.Op{ID: op.ID, Client: client, Kind: op.Kind, Key: key, Call: op.Call}
			}
			s.at(t+s.short(), func(t time.Duration) { s.acquire(t, client) })
			return
		}
		s.hold(t, op)
	})
}

func (s *sim) grant(r *row, now time.Duration, op *history.Op, waits bool) (again bool) {
	taken := r.held && now < r.expires
	if taken && s.bug == grantsHeld && s.rng.IntN(100) == 0 {
		taken = false
	}
	if !taken && s.bug == refusesFree && s.rng.IntN(20) == 0 {
		taken = true
	}
	if taken {
		op.Outcome = history.Refused
		return waits
	}
	r.last++
	r.held, r.expires = true, now+ttl
	if s.bug == earlyExpiry {
		r.expires = now + ttl/2
	}
	op.Outcome, op.Token, op.Until = history.OK, r.last, max(op.Call, now-margin)+ttl-margin
	return false
}

// hold uses a lease that was granted, or renewed, until op.Until.
func (s *sim) hold(t time.Duration, op history.Op) {
	next := func(t time.Duration) { s.at(t+s.short(), func(t time.Duration) { s.acquire(t, op.Client) }) }
	mine := history.Op{Client: op.Client, Key: op.Key, Token: op.Token}
	r := s.rows[op.Key]
	current := func() bool { return r.held && r.last == op.Token }
	switch {
	case s.chance(5): // a crash: another client takes its place
		next(t)
	case s.chance(10): // the context ends, and the holder releases without noticing
		s.at(op.Until+s.short(), func(now time.Duration) {
			mine.ID, mine.Kind, mine.Outcome, mine.Call, mine.Return = len(s.h), history.KindEnded, history.OK, op.Until, now
			s.h = append(s.h, mine)
			s.at(now+10*s.short(), func(t time.Duration) {
				s.use(t, mine, history.KindCommit, s.bug == commitsExpired, current, func(time.Duration, history.Op) {})
				s.use(t, mine, history.KindRenew, s.bug == renewByName, current, func(time.Duration, history.Op) {})
			})
			s.at(now+20*s.short(), func(t time.Duration) { s.release(t, mine, current, next) })
		})
	case s.chance(30):
		s.use(t, mine, history.KindRenew, s.bug == renewByName, current, func(t time.Duration, answer history.Op) {
			if answer.Until > t {
				s.hold(t, answer)
			} else {
				next(t)
			}
		})
	default:
		s.at(min(t+s.short(), op.Until), func(t time.Duration) { s.release(t, mine, current, next) })
	}
}

func (s *sim) use(t time.Duration, op history.Op, kind history.Kind, always bool, current func() bool, then func(time.Duration, history.Op)) {
	op.Kind, op.Outcome, op.Return = kind, "", 0
	r := s.rows[op.Key]
	s.call(t, op, func(now time.Duration, op *history.Op) bool {
		op.Outcome = history.Lost
		if current() && (now < r.expires || kind == history.KindCommit) || always {
			op.Outcome = history.OK
			if kind == history.KindRenew {
				op.Until = op.Call + ttl - margin
				r.expires = max(r.expires, now+ttl)
			}
		}
		return false
	}, then)
}

func (s *sim) release(t time.Duration, op history.Op, current func() bool, next func(time.Duration)) {
	op.Kind, op.Outcome, op.Return = history.KindRelease, "", 0
	r := s.rows[op.Key]
	s.call(t, op, func(_ time.Duration, op *history.Op) bool {
		op.Outcome = history.Lost
		if current() || s.bug == releaseByName {
			op.Outcome = history.OK
			r.held = false
			if s.bug == tokenReset {
				r.last = 0
			}
		}
		return false
	}, func(t time.Duration, _ history.Op) { next(t) })
}

type event struct {
	at time.Duration
	do func(time.Duration)
}

type events []event

func (e *events) Len() int           { return len(*e) }
func (e *events) Less(i, j int) bool { return (*e)[i].at < (*e)[j].at }
func (e *events) Swap(i, j int)      { (*e)[i], (*e)[j] = (*e)[j], (*e)[i] }
func (e *events) Push(x any)         { v, _ := x.(event); *e = append(*e, v) }
func (e *events) Pop() any {
	old := *e
	last := old[len(old)-1]
	*e = old[:len(old)-1]
	return last
}
