//go:build unix

package campaign

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/limits"
)

// ceiling is the limit of each key: two to four amounts fit.
const ceiling = 100

func (c *client[Tx]) openLimits(ctx context.Context) (err error) {
	c.limits, err = limits.New(ctx, c.db, "refunds")
	return err
}

// take uses a part of a limit: at once, or by a reservation that is captured, given up, or left to
// its timeout. The id says which and how much, so that a repetition is the same request.
func (c *client[Tx]) take(ctx context.Context, t *task) error {
	ctx, cancel := context.WithTimeout(ctx, t.wait+time.Second)
	defer cancel()
	n := t.plan.key / t.keys % 24
	r := limits.Request{Key: t.key, ID: fmt.Sprint(t.key, "/", n), Amount: int64(20 + n*7%40)}
	a := answer{Job: t.job, Key: r.Key, ID: r.ID, Outcome: executed}
	err := c.use(ctx, t, r, n)
	if errors.Is(err, limits.ErrNotFound) { // the first one sets it
		if _, err = c.limits.Set(ctx, t.key, ceiling); err == nil {
			err = c.use(ctx, t, r, n)
		}
	}
	switch {
	case err == nil:
	case errors.Is(err, limits.ErrExceeded), errors.Is(err, limits.ErrExpired), errors.Is(err, limits.ErrVoided):
		a.Outcome, err = refused, nil
	default:
		a.Outcome, a.Err = unknown, err.Error()
	}
	t.b.told(a)
	return err
}

func (c *client[Tx]) use(ctx context.Context, t *task, r limits.Request, n int) error {
	if c.Control == checkThenTake {
		return c.checkThenTake(ctx, t, r)
	}
	how := c.limits.TakeTx
	if n%3 > 0 {
		if n%2 == 0 {
			r.Timeout = 200 * time.Millisecond
		}
		if _, err := c.limits.Reserve(ctx, r); err != nil {
			return err
		}
		time.Sleep(5 * t.think)
		if n%3 == 2 {
			if _, err := c.limits.Void(ctx, r); err != nil {
				return err
			}
			return limits.ErrVoided // it has no entry in the table
		}
		how = c.limits.CaptureTx
	}
	return c.db.InTx(ctx, func(ctx context.Context, tx Tx) error {
		e, err := how(ctx, tx, r)
		if err != nil || e.Replayed {
			return err
		}
		time.Sleep(t.think)
		return c.taken(ctx, tx, t, r)
	}, holdfast.TxOptions{LockTimeout: 2 * time.Second})
}

func (c *client[Tx]) taken(ctx context.Context, tx Tx, t *task, r limits.Request) error {
	return c.exec(ctx, tx, `INSERT INTO campaign_taken (name, id, amount, epoch) VALUES ($1, $2, $3, $4)`, r.Key, r.ID, r.Amount, t.b.epoch)
}

// checkThenTake reads what was taken, and takes more in another transaction.
func (c *client[Tx]) checkThenTake(ctx context.Context, t *task, r limits.Request) error {
	sum, err := c.number(ctx, `SELECT CAST(COALESCE(SUM(amount), 0) AS `+map[bool]string{true: "SIGNED", false: "BIGINT"}[c.db.Engine() == holdfast.MySQL || c.db.Engine() == holdfast.MariaDB]+
		`) FROM campaign_taken WHERE name = $1`, r.Key)
	if err != nil {
		return err
	}
	if sum+r.Amount > ceiling {
		return limits.ErrExceeded
	}
	time.Sleep(250 * t.think)
	r.ID = t.id
	return c.db.InTx(ctx, func(ctx context.Context, tx Tx) error { return c.taken(ctx, tx, t, r) })
}

// auditLimits judges the limits of an epoch: what was taken never exceeds them.
func (c *campaign) auditLimits(epoch int, answers []answer) {
	sums, ids := map[string]int{}, map[string]bool{}
	for _, r := range c.rows(`SELECT id, CONCAT(amount, ' ', name) FROM campaign_taken WHERE epoch = $1`, epoch) {
		if ids[r[0]] {
			c.violationf("epoch %d: %q was taken twice", epoch, r[0])
		}
		ids[r[0]] = true
		var amount int
		var name string
		if _, err := fmt.Sscan(r[1], &amount, &name); err != nil {
			c.must(err)
		}
		sums[name] += amount
	}
	for name, sum := range sums {
		if sum > ceiling {
			c.violationf("epoch %d: %d of %q were taken, the limit is %d", epoch, sum, name, ceiling)
		}
	}
	for _, a := range answers {
		if a.Job == take && a.Outcome == executed && !ids[a.ID] && c.control != checkThenTake {
			c.violationf("epoch %d: %q was told to be taken, and is not there", epoch, a.ID)
		}
	}
}

// auditCounters compares the counters of all limits with their entries, and with what was taken.
func (c *campaign) auditCounters() {
	if c.control == checkThenTake {
		return // it counts nothing
	}
	number := func(s string) int {
		n, err := strconv.Atoi(s)
		c.must(err)
		return n
	}
	sums := func(query string) map[string]int {
		m := map[string]int{}
		for _, r := range c.rows(query) {
			m[r[0]] = number(r[1])
		}
		return m
	}
	taken := sums(`SELECT name, SUM(amount) FROM campaign_taken GROUP BY name`)
	captured := sums(`SELECT limit_key, SUM(captured) FROM holdfast_limit_entries WHERE state = 2 GROUP BY limit_key`)
	reserved := sums(`SELECT limit_key, SUM(amount) FROM holdfast_limit_entries WHERE state = 1 GROUP BY limit_key`)
	for _, r := range c.rows(`SELECT limit_key, CONCAT(captured, ' ', reserved) FROM holdfast_limits`) {
		var is, held int
		if _, err := fmt.Sscan(r[1], &is, &held); err != nil {
			c.must(err)
		}
		if is != taken[r[0]] || is != captured[r[0]] || held != reserved[r[0]] || is+held > ceiling {
			c.violationf("the limit %q has %d captured and %d reserved, its entries %d and %d, and %d were taken", r[0], is, held, captured[r[0]], reserved[r[0]], taken[r[0]])
		}
		delete(taken, r[0])
	}
	for name := range taken {
		c.violationf("there is no limit %q, of which something was taken", name)
	}
}
