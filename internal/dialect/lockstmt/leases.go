package lockstmt

import (
	"math"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/dialect"
	"github.com/holdfast-go/holdfast/internal/lockname"
)

// LeaseStatements are the statements of the leases.
// Their model is internal/test/model/lease.pml.
type LeaseStatements struct {
	// Make inserts the row of a lock and grants the lock. Take grants a lock whose row exists,
	// and makes the row if MakeFirst never asks for it. HandOver grants the lock of one attempt to
	// another one.
	Make, Take, HandOver Grant
	// MakeMany and TakeMany do the same for several locks.
	MakeMany, TakeMany GrantMany

	Release     Release
	ReleaseMany ReleaseMany
	Renew       Renew
	Remaining   Remaining
	Waits       Waits
	// Rivals reads for which locks other processes wait, and Waited for which they do since the present term began.
	Rivals, Waited Waited
	// LookFirst: Make and Take may wait, so Look comes before them.
	LookFirst bool
	Batching  Batching

	makes bool // Make exists
}

// Batching says when requests for the same statement are worth a batch.
type Batching struct {
	// Alone is how many statements run alone at the same time. Least is the smallest batch.
	Alone, Least int
	// Spread is how many run alone instead, at most, while few requests wait and the pool has twice as many
	// connections. 0: always Alone.
	Spread int
	// Life is how long a running statement delays other requests.
	Life time.Duration
}

var (
	manyWriters = Batching{Alone: 4, Least: 8, Life: 10 * time.Millisecond}
	// oneWriter is for a database with one writer, where concurrent requests would only fail.
	oneWriter = Batching{Alone: 1, Least: 2, Life: time.Second}
	// noBatches is for an engine without the statements for several locks.
	noBatches = Batching{Alone: math.MaxInt, Least: math.MaxInt}
)

// SpreadOf returns Spread, or half of a pool of most connections, if that is less; 0 is no bound.
func (b Batching) SpreadOf(most int) int {
	if most > 0 {
		return min(b.Spread, most/2)
	}
	return b.Spread
}

// Leases compiles the statements of the leases, for batches of at most most. holder names the
// process, and self identifies it among the waiters.
func (t *Tables) Leases(most int, holder string, self AttemptID) *LeaseStatements {
	d := &t.dialect.Leases
	grant := func(name string, g dialect.Grant) Grant {
		return Grant{stmt: t.Compile(name, g.Text), holder: holder, byInsertID: g.ByInsertID, look: t.Look()}
	}
	l := &LeaseStatements{
		Make: grant("make", d.Make), Take: grant("take", d.Take), HandOver: grant("hand over", d.HandOver),
		MakeMany:    GrantMany{stmts: map[int]core.Stmt{}, holder: holder, bound: d.TakeBound},
		TakeMany:    GrantMany{stmts: map[int]core.Stmt{}, holder: holder, bound: d.TakeBound},
		Release:     Release{t.Compile("release", d.Release), self[:], d.ReleaseTells},
		ReleaseMany: ReleaseMany{stmts: map[int]core.Stmt{}, states: map[int]core.Stmt{}, tells: d.ReleaseTells},
		Renew:       Renew{t, d.Renew, d.Renewed},
		Remaining:   Remaining{t, d.Remaining},
		Waits:       Waits{t, d.Waits},
		Rivals:      Waited{t, "rivals", d.Rivals},
		Waited:      Waited{t, "waited", dialect.WaitedLeases},
		Batching:    manyWriters,
		LookFirst:   d.LookFirst,
		makes:       d.Make.Text != "",
	}
	l.Take.bound = d.TakeBound
	l.Batching.Spread = d.Spread
	if d.TakeBound.Before != nil {
		l.Batching = oneWriter
	}
	if d.Alone {
		l.Batching = noBatches
		return l
	}
	granted := map[int]core.Stmt{}
	for n := range core.PowersOfTwo(most) {
		rows := make([]string, n)
		for i := range rows {
			rows[i] = strings.NewReplacer("{name}", param(2+i), "{attempt}", param(2+n+i), "{ttl}", param(2+2*n+i)).Replace(d.ManyRow)
		}
		r := strings.NewReplacer("{rows}", strings.Join(rows, d.ManyJoin), "{names}", params(2, n))
		l.MakeMany.stmts[n], l.TakeMany.stmts[n] = t.Compile("make", r.Replace(d.MakeMany)), t.Compile("take", r.Replace(d.TakeMany))
		granted[n] = t.List("granted", d.Granted, 1, n)
		l.ReleaseMany.stmts[n] = t.List("release", strings.ReplaceAll(d.ReleaseMany, "{waiter}", param(1+2*n)), 1, n)
		l.ReleaseMany.states[n] = t.List("released", d.Released, 1, n)
	}
	if d.Granted != "" {
		l.MakeMany.granted, l.TakeMany.granted = granted, granted
	}
	return l
}

// MakeFirst reports whether Make, or MakeMany, must make the row of a lock before Take. known
// has the names whose rows are known to exist.
func (l *LeaseStatements) MakeFirst(known interface{ Has(name lockname.Name) bool }, name lockname.Name) bool {
	return l.makes && !known.Has(name)
}

// Listen returns the statement that subscribes a connection to the notifications on channel.
// ok is false if the engine has no notifications.
func (t *Tables) Listen(channel string) (statement string, ok bool) {
	text := t.dialect.Leases.Listen
	return strings.ReplaceAll(text, "{channel}", t.dialect.Ident(channel)), text != ""
}

// Notify sends a notification. Parameters: channel, payload.
func (t *Tables) Notify() core.Stmt { return t.Compile("notify", t.dialect.Leases.Notify) }
