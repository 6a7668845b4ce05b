package idempotency

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/options"
)

const (
	newWindow  = time.Hour   // of MaxNew
	recount    = time.Minute // how long an owner with MaxRecords is refused without another count
	fewTallies = 1024        // so many are kept without a look for those that have nothing to say
)

// TooManyError says which bound an owner has reached. errors.Is(err, ErrTooMany) holds.
type TooManyError struct {
	// Limit is the bound: the store's MaxRecords if Held is true, and its MaxNew otherwise.
	Limit int
	Held  bool
	// RetryAfter is how long to wait at least. It is more than 0.
	RetryAfter time.Duration
}

func (e *TooManyError) Error() string {
	what := "new keys an hour"
	if e.Held {
		what = "records"
	}
	return fmt.Sprintf("%v: at most %d %s: ask again with the same key after %v", ErrTooMany, e.Limit, what, e.RetryAfter.Round(time.Millisecond))
}

// Is reports whether target is ErrTooMany.
func (e *TooManyError) Is(target error) bool { return target == ErrTooMany }

// growthDefaults fills in and checks the options that bound the number of records.
func (o *Options) growthDefaults() error {
	switch {
	case o.MaxNew != 0:
	case o.owners == core.OneOwner:
		o.MaxNew = holdfast.Unlimited
	default:
		o.MaxNew = defaultMaxNew
	}
	if o.RejectionTTL != holdfast.Forever {
		if err := options.Life.Or("the default; Forever keeps rejections").Check("Options.RejectionTTL", o.RejectionTTL); err != nil {
			return err
		}
	}
	if o.MaxNew != holdfast.Unlimited {
		if err := options.Rows.Of("keys").Or("the default; Unlimited is no bound").Check("Options.MaxNew", int64(o.MaxNew)); err != nil {
			return err
		}
	}
	if o.MaxRecords == holdfast.Unlimited {
		o.MaxRecords = 0
	}
	return options.Rows.Check("Options.MaxRecords", int64(o.MaxRecords))
}

// ceilings bounds the new keys of each owner.
type ceilings struct {
	perHour, records int // MaxNew and MaxRecords; 0 is no bound

	mu      sync.Mutex
	owners  map[string]*tally
	pruneAt int
}

// tally is what one owner has used.
type tally struct {
	// used are the keys of the last hour, as of at. It falls evenly, by the bound in an hour.
	used float64
	at   time.Time
	// uncounted are the new keys since the last count of the records; -1 before the first.
	uncounted int
	counting  bool      // a call counts
	fullUntil time.Time // the last count has found as many as allowed
}

// newCeilings returns nil if there is no bound.
func newCeilings(o *Options) *ceilings {
	c := &ceilings{perHour: max(o.MaxNew, 0), records: o.MaxRecords, owners: map[string]*tally{}, pruneAt: fewTallies}
	if c.perHour == 0 && c.records == 0 {
		return nil
	}
	return c
}

// admit counts a new key of owner, or returns a *TooManyError. claims is 1 if the call has claimed its key
// already, and 0 otherwise.
func (s *Store[Tx]) admit(ctx context.Context, q core.Querier, owner string, claims int) error {
	c := s.ceilings
	if c == nil {
		return nil
	}
	count, err := c.take(owner, time.Now())
	if err != nil || !count {
		return err
	}
	var n int
	_, err = s.sql.count.QueryRow(ctx, q, []any{&n}, owner, c.records+claims)
	if err = c.counted(owner, time.Now(), n-claims, err); err != nil {
		c.giveBack(owner)
		return s.explain(err)
	}
	return nil
}

// take counts a new key at now. count reports that the caller has to count the owner's records, and to
// call counted.
func (c *ceilings) take(owner string, now time.Time) (count bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.of(owner, now)
	if now.Before(t.fullUntil) {
		return false, &TooManyError{Limit: c.records, Held: true, RetryAfter: t.fullUntil.Sub(now)}
	}
	if c.perHour > 0 {
		if over := t.used + 1 - float64(c.perHour); over > 0 {
			return false, &TooManyError{Limit: c.perHour, RetryAfter: max(time.Duration(over/float64(c.perHour)*float64(newWindow)), 1)}
		}
		t.used++
	}
	if c.records == 0 {
		return false, nil
	}
	if t.uncounted >= 0 {
		t.uncounted++
	}
	if count = !t.counting && (t.uncounted < 0 || t.uncounted > c.records/100); count {
		t.counting = true
	}
	return count, nil
}

// counted stores the result of a count.
func (c *ceilings) counted(owner string, now time.Time, n int, err error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.of(owner, now)
	t.counting = false
	switch {
	case err != nil:
		return err
	case n >= c.records:
		t.fullUntil, t.uncounted = now.Add(recount), -1
		return &TooManyError{Limit: c.records, Held: true, RetryAfter: recount}
	}
	t.uncounted = 1
	return nil
}

// giveBack takes back the new key of a call that stored nothing.
func (c *ceilings) giveBack(owner string) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if t := c.owners[owner]; t != nil {
		t.used = max(t.used-1, 0)
	}
}

// of returns the tally of owner at now.
func (c *ceilings) of(owner string, now time.Time) *tally {
	t := c.owners[owner]
	if t == nil {
		if len(c.owners) >= c.pruneAt {
			c.prune(now)
		}
		t = &tally{at: now, uncounted: -1}
		c.owners[owner] = t
	}
	c.decay(t, now)
	return t
}

// decay gives back what the time since t.at allows again.
func (c *ceilings) decay(t *tally, now time.Time) {
	if past := now.Sub(t.at); past > 0 {
		t.used = max(0, t.used-float64(c.perHour)*float64(past)/float64(newWindow))
		t.at = now
	}
}

// prune forgets the owners whose tally says no more than a new one. They are counted anew.
func (c *ceilings) prune(now time.Time) {
	for owner, t := range c.owners {
		if c.decay(t, now); t.used == 0 && !t.counting && !now.Before(t.fullUntil) {
			delete(c.owners, owner)
		}
	}
	c.pruneAt = max(fewTallies, 2*len(c.owners))
}
