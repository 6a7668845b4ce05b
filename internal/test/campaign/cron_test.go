//go:build unix

package campaign

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/idempotency/cron"
)

// cronName is the name of the operations of ticks.
const cronName = "cron campaign"

// runCron runs a job twice a second in every client: a replica each.
func (c *client[Tx]) runCron(ctx context.Context) {
	const every = 500 * time.Millisecond
	run := func(ctx context.Context, tx Tx, tick time.Time) error {
		who := fmt.Sprint(c.Client, ".", c.Life)
		return c.exec(ctx, tx, `INSERT INTO campaign_ticks (tick, who, epoch) VALUES ($1, $2, $3)`, fmt.Sprint(tick.UnixMilli()), who, c.epoch())
	}
	job := cron.Job{Name: "campaign", Schedule: cron.Every(every, 0)}
	opts := cron.RunOptions{Logger: slog.New(slog.DiscardHandler), OnPass: func(o idempotency.Outcome, err error) {
		if err == nil && o == idempotency.Executed {
			c.count(tick, 1)
		}
	}}
	for ctx.Err() == nil {
		if c.Control == eachReplica {
			_ = c.db.InTx(ctx, func(ctx context.Context, tx Tx) error { return run(ctx, tx, time.Now().Truncate(every)) })
			time.Sleep(every)
			continue
		}
		_ = cron.Run(ctx, c.store, job, run, opts) // at the beginning the server may be down
		time.Sleep(100 * time.Millisecond)
	}
}

// auditTicks checks that no tick of an epoch ran twice.
func (c *campaign) auditTicks(epoch int, _ []answer) {
	c.once("a tick", c.rows(`SELECT tick, who FROM campaign_ticks WHERE epoch = $1`, epoch))
}

// auditCron checks the same over all epochs, and that each tick has its record.
func (c *campaign) auditCron() {
	ticks := c.once("a tick", c.rows(`SELECT tick, who FROM campaign_ticks`))
	if c.control == eachReplica {
		return // it has no records
	}
	records := c.once("a tick's record", c.rows(`SELECT op_key, state FROM holdfast_records WHERE operation = '`+cronName+`'`))
	if len(records) != len(ticks) {
		c.violationf("there are %d ticks, and %d records of ticks", len(ticks), len(records))
	}
	for key, state := range records {
		if state != "2" {
			c.violationf("the record of the tick %q has state %s", key, state)
		}
	}
}
