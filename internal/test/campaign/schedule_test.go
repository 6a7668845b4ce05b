//go:build unix

package campaign

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// A kind is a kind of fault.
type kind string

const (
	kill        kind = "kill"        // a client, with SIGKILL; another takes its place
	stop        kind = "stop"        // a client, with SIGSTOP, for longer than the TTL
	cut         kind = "cut"         // a client's connections; some new ones are refused for a while
	hole        kind = "hole"        // no data passes to and from a client; it is delivered afterwards
	slow        kind = "slow"        // all data passes late
	lostCommit  kind = "lostcommit"  // the answer to a COMMIT, with its connection
	lostReply   kind = "lostreply"   // the answer to some request, with its connection
	lostRequest kind = "lostrequest" // a request, with its connection
	server      kind = "server"      // all its processes, with SIGKILL, then a restart; with SQLite, all clients
	failover    kind = "failover"    // the server, with SIGKILL, and its synchronous standby takes its place; PostgreSQL
	noRoom      kind = "noroom"      // the server has no connection left
	noSpace     kind = "nospace"     // the disk is full; PostgreSQL and SQLite
	clock       kind = "clock"       // the database's clock, and back
	clientClock kind = "clientclock" // a client's wall clock, and back
	lock        kind = "lock"        // another session has SQLite's only write lock
)

// kinds lists all kinds in the order of the report.
var kinds = []kind{kill, stop, cut, hole, slow, lostCommit, lostReply, lostRequest, server, failover, noRoom, noSpace, clock, clientClock, lock}

// A fault begins at a time since the campaign's start and lasts for a while.
type fault struct {
	At     time.Duration
	Kind   kind
	Client int           // for faults that hit one client
	Length time.Duration // until it is over; for a lost reply, until the fault is given up
	By     time.Duration // how far a clock moves, or how late data passes
	Nth    int           // which request or reply is lost
}

func (f fault) String() string {
	s := fmt.Sprintf("%8.3fs %s", f.At.Seconds(), f.Kind)
	if !slices.Contains([]kind{server, failover, noRoom, noSpace, clock, lock}, f.Kind) {
		s += fmt.Sprintf(" client %d", f.Client)
	}
	if f.By != 0 {
		s += fmt.Sprintf(" by %v", f.By)
	}
	if f.Nth != 0 {
		s += fmt.Sprintf(" number %d", f.Nth)
	}
	return s + fmt.Sprintf(" for %v", f.Length)
}

// endsSessions reports whether the fault may end connections of its client, and endsAllSessions
// whether it may end those of all clients.
func (f fault) endsSessions() bool {
	return slices.Contains([]kind{kill, cut, lostCommit, lostReply, lostRequest}, f.Kind)
}

func (f fault) endsAllSessions() bool {
	return slices.Contains([]kind{server, failover, noRoom, noSpace}, f.Kind)
}

// gap is the average time between the starts of two faults. Most faults last longer, so they
// overlap.
const gap = 1200 * time.Millisecond

// draw deals out the kinds, each once, again and again: the same seed, duration and kinds give
// the same schedule. No fault begins in the last fifth of a short campaign, or the last six
// seconds of a longer one. With waits a full disk takes the server away, as a crash does, and each of the two
// is in every other deal: nothing else can be tested while it is down. So are a crash and a failover, and the seed
// says which of the two comes first: a short campaign has one deal.
func draw(seed uint64, duration time.Duration, kinds []kind, clients int, waits bool) (all []fault) {
	rng := rand.New(rand.NewPCG(seed, 0))
	end := duration - min(duration/5, 6*time.Second)
	at := time.Second
	for deal := seed; at < end; deal++ {
		deck := make([]kind, 0, len(kinds))
		for _, k := range kinds {
			if k == server && deal%2 != 0 || (k == failover || k == noSpace && waits) && deal%2 == 0 {
				continue
			}
			deck = append(deck, k)
		}
		rng.Shuffle(len(deck), func(i, j int) { deck[i], deck[j] = deck[j], deck[i] })
		for _, k := range deck {
			if at >= end {
				break
			}
			f := deal1(rng, k, clients)
			f.At = at.Truncate(time.Millisecond)
			all = append(all, f)
			at += gap/2 + time.Duration(rng.Int64N(int64(gap)))
		}
	}
	return all
}

func deal1(rng *rand.Rand, k kind, clients int) fault {
	between := func(a, b time.Duration) time.Duration {
		return (a + time.Duration(rng.Int64N(int64(b-a)))).Truncate(time.Millisecond)
	}
	f := fault{Kind: k, Client: rng.IntN(clients), Length: between(300*time.Millisecond, 3*time.Second)}
	switch k {
	case stop:
		f.Length = between(ttl+200*time.Millisecond, 2*ttl)
	case slow:
		f.By = between(5*time.Millisecond, 150*time.Millisecond)
	case lostReply, lostRequest:
		f.Nth = 1 + rng.IntN(40)
	case server, failover:
		f.Length = between(0, 700*time.Millisecond)
	case clock, clientClock:
		f.By = []time.Duration{
			between(20*time.Millisecond, margin/4), -between(20*time.Millisecond, margin), // within the assumption
			between(margin, 10*time.Second), between(time.Minute, time.Hour), -between(time.Second, time.Minute),
		}[rng.IntN(5)]
	}
	return f
}

// text formats a schedule for readers.
func text(all []fault) string {
	var s strings.Builder
	for _, f := range all {
		fmt.Fprintf(&s, "\n  %v", f)
	}
	return s.String()
}
