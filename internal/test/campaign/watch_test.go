//go:build unix

package campaign

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/internal/test/history"
	"github.com/holdfast-go/holdfast/sqllock"
)

// runWatch watches the lease that all epochs share, in two clients, and records the events.
func (c *client[Tx]) runWatch(ctx context.Context) {
	if c.Client%3 != 0 {
		return
	}
	for n := 0; ctx.Err() == nil; n++ {
		seen := 0
		for e, err := range c.locks.Watch(ctx, always) {
			if err != nil {
				break // the server was down for too long
			}
			if seen++; c.Control == watchBlind && seen%4 == 0 {
				continue
			}
			c.sees(n, e)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

func (c *client[Tx]) sees(session int, e sqllock.Event) {
	b := c.books.begin()
	defer c.books.end(b)
	b.told(answer{Job: watch, Key: always, ID: fmt.Sprintf("%d.%d.%d", c.Client, c.Life, session), Outcome: verdict(e.Kind), Value: fmt.Sprint(e.Token, " ", e.Missed, " ", history.Now())})
	b.told(answer{Job: watch, Outcome: finished})
}

// An eventSeen is a change of the term that a watch saw.
type eventSeen struct {
	watch         string
	kind          sqllock.EventKind
	before, token int64 // of the event before it, and of this one
	missed        int64
	from, at      history.Stamp // of the event before it, and of this one
}

// auditWatch collects the events of an epoch. Their order within a watch is that of the records.
func (c *campaign) auditWatch(epoch int, answers []answer) {
	for _, a := range answers {
		if a.Job != watch {
			continue
		}
		e := eventSeen{watch: a.ID, kind: sqllock.EventKind(a.Outcome), before: c.watched[a.ID].token, from: c.watched[a.ID].at}
		if _, err := fmt.Sscan(a.Value, &e.token, &e.missed, &e.at); err != nil {
			c.must(err)
		}
		if e.token < e.before || e.kind == sqllock.EventGranted && e.token == e.before {
			c.violationf("epoch %d: the watch %s saw %s with the token %d after %d", epoch, a.ID, e.kind, e.token, e.before)
		}
		if c.watched[a.ID] = e; e.before > 0 && e.token != e.before {
			c.seen = append(c.seen, e)
		}
	}
	c.judgeGaps(epoch)
}

// judgeGaps compares what the watches missed with the grants that the histories know. There may be
// more grants: those whose answer was lost. When the clock leaps, the reaper deletes the row of the
// lock while it is in use, and the watch may report too few.
func (c *campaign) judgeGaps(epoch int) {
	tokens := make([]int64, 0, len(c.tokens))
	for _, op := range c.tokens {
		tokens = append(tokens, op.Token)
	}
	slices.Sort(tokens)
	for _, e := range c.seen {
		from, _ := slices.BinarySearch(tokens, e.before+1)
		to, _ := slices.BinarySearch(tokens, e.token)
		if known := int64(to - from); e.missed >= 0 && known > e.missed && !c.leapt(e.from, e.at) {
			c.violationf("epoch %d: the watch %s saw %s with the token %d after %d and reported %d missed terms: at least %d were granted between them", epoch, e.watch, e.kind, e.token, e.before, e.missed, known)
		}
	}
	c.seen = c.seen[:0]
}

// leapt reports whether the database's clock has leapt between two moments, or shortly before.
func (c *campaign) leapt(from, to history.Stamp) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.ContainsFunc(c.outside, func(p pause) bool {
		return p.client == everybody && p.from < to && (p.to == 0 || p.to > from-time.Second)
	})
}
