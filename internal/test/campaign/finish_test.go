//go:build unix

package campaign

import (
	"context"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
	"github.com/holdfast-go/holdfast/internal/test/vdso"
)

// A part of a client is what it opens, what it runs beside its workers, and what a last process
// does after all clients have ended. Any of the three may be nil.
type part[Tx any] struct {
	open   func(*client[Tx], context.Context) error
	run    func(*client[Tx], context.Context)
	finish func(*client[Tx], context.Context) error
}

func parts[Tx any]() []part[Tx] {
	return []part[Tx]{
		{(*client[Tx]).openPay, (*client[Tx]).runPay, (*client[Tx]).finishPay},
		{open: (*client[Tx]).openLimits},
		{run: (*client[Tx]).runReaper},
		{(*client[Tx]).openOutbox, (*client[Tx]).runOutbox, (*client[Tx]).finishOutbox},
		{run: (*client[Tx]).runCron},
		{open: (*client[Tx]).openForeign},
		{run: (*client[Tx]).runWatch},
	}
}

// pastAll is further than any fault moves a clock forward: leases that were taken at such a time
// are over.
const pastAll = 2 * time.Hour

// finish does what is left over when all clients have ended, as a process that starts later would.
func (c *client[Tx]) finish() error {
	if c.db.Engine() == holdfast.SQLite && vdso.Possible {
		if err := vdso.Move(pastAll); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	for _, p := range parts[Tx]() {
		if p.finish == nil {
			continue
		}
		if err := p.finish(c, ctx); err != nil {
			return err
		}
	}
	return nil
}

// finishAll runs that process, on the server directly.
func (c *campaign) finishAll() {
	if c.control != whole && c.any() {
		return // it was found
	}
	if c.site.canMoveClock() {
		c.moveServerClock(c.site.reach(pastAll))
	}
	last := c.clients[0].order
	last.URL, last.Native, last.Connector, last.Disconnect, last.Pool = c.site.url, false, false, false, 8
	last.Client, last.Life, last.Finish, last.Control = len(c.clients), 0, true, whole
	p := &process{c: c, order: last}
	c.must(p.start())
	if err := p.wait(2 * dbtest.Hang); err != nil {
		c.violationf("finishing: %v", err)
	}
}

// count counts operations that run beside the workers.
func (c *client[Tx]) count(j job, n int) {
	if n == 0 {
		return
	}
	b := c.books.begin()
	defer c.books.end(b)
	for range n {
		b.told(answer{Job: j, Outcome: finished})
	}
}

// number reads one number.
func (c *client[Tx]) number(ctx context.Context, query string, args ...any) (n int64, err error) {
	err = c.db.InTx(ctx, func(ctx context.Context, tx Tx) error {
		q, err := access.Of(c.db).Join(tx)
		if err != nil {
			return err
		}
		found, err := core.Compile("", query, c.db.Engine() != holdfast.PostgreSQL).QueryRow(ctx, q, []any{&n}, args...)
		if err == nil && !found {
			err = fmt.Errorf("no row: %s", query)
		}
		return err
	})
	return n, err
}
