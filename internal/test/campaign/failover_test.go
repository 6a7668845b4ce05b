//go:build unix

package campaign

import (
	"context"
	"fmt"
	"net/url"
	"time"

	"github.com/holdfast-go/holdfast/internal/test/dbtest"
	"github.com/holdfast-go/holdfast/internal/test/faultproxy"
)

// A replication is the synchronous standby of the campaign's own PostgreSQL, and what leads to the primary:
// site.own and standby change places in a failover.
type replication struct {
	standby *dbtest.CrashServer
	front   *faultproxy.Proxy   // for everything that cannot be told of a new address
	proxies []*faultproxy.Proxy // all that connect to the primary
}

// replicate gives the own server a standby, and lets the site's URL lead to whichever is the primary.
func (s *site) replicate() {
	standby, err := s.own.NewStandby(s.t)
	if err != nil {
		s.t.Fatal(err)
	}
	front, err := faultproxy.New(s.own.Address())
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(front.Close)
	u, err := url.Parse(s.url)
	if err != nil {
		s.t.Fatal(err)
	}
	u.Host = front.Addr()
	s.url = u.String()
	s.replication = &replication{standby: standby, front: front, proxies: []*faultproxy.Proxy{front}}
}

// reaches lets a proxy in front of the primary follow it.
func (r *replication) reaches(target string, proxy *faultproxy.Proxy, primary *dbtest.CrashServer) {
	if r != nil && target == r.front.Addr() { // it needs no second proxy behind it
		proxy.Aim(primary.Address())
		r.proxies = append(r.proxies, proxy)
	}
}

// failOver kills the primary, promotes its standby after the pause, and makes the old primary a standby of the
// new one. It calls over when clients reach the new one. It reports whether there was time for it.
func (c *campaign) failOver(ctx context.Context, pause <-chan time.Time, over func()) bool {
	c.crashing.Lock()
	defer c.crashing.Unlock()
	if ctx.Err() != nil {
		return false // the campaign has ended meanwhile
	}
	old, next := c.site.own, c.site.replication.standby
	if err := c.bringInStep(ctx, old, next); err != nil {
		if ctx.Err() == nil {
			c.must(err)
		}
		return false
	}
	begin := time.Now()
	c.must(old.Kill())
	<-pause
	c.must(next.Start()) // it runs, except in the control
	c.must(next.Promote())
	for _, p := range c.site.replication.proxies {
		p.Aim(next.Address())
	}
	over()
	c.site.own, c.site.replication.standby = next, old
	promoted := time.Since(begin)
	c.must(old.Follow(next))
	c.t.Logf("%s: failover in %v, the old primary is a synchronous standby after %v", c.site.engine, promoted.Round(time.Millisecond), time.Since(begin).Round(time.Millisecond))
	return true
}

// bringInStep waits until the standby is synchronous. Commits wait for it from the time at which it followed the
// primary, so all that is acknowledged until the primary has ended is there. In the control asyncStandby they do not
// wait, and the standby is down while refunds are booked.
func (c *campaign) bringInStep(ctx context.Context, primary, standby *dbtest.CrashServer) error {
	if c.control != asyncStandby {
		return primary.InStep()
	}
	if err := primary.Alone(); err != nil {
		return err
	}
	if err := standby.Kill(); err != nil {
		return err
	}
	const lost = 30
	first := -1
	for ctx.Err() == nil {
		var n int
		rows, err := c.ask(`SELECT CAST(COUNT(*) AS TEXT), '' FROM campaign_ledger`)
		if err == nil {
			_, err = fmt.Sscan(rows[0][0], &n)
		}
		switch {
		case err != nil:
		case first < 0:
			first = n
		case n >= first+lost:
			return nil
		}
		time.Sleep(50 * time.Millisecond)
	}
	return ctx.Err()
}
