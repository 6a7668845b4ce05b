//go:build unix

package campaign

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/internal/test/dbtest"
	"github.com/holdfast-go/holdfast/internal/test/faultproxy"
	"github.com/holdfast-go/holdfast/internal/test/history"
)

// strikeAll injects each fault of the schedule at its time, and returns when all are over.
func (c *campaign) strikeAll(ctx context.Context, schedule []fault) {
	var all sync.WaitGroup
	begin := time.Now()
	for _, f := range schedule {
		select {
		case <-ctx.Done():
		case <-time.After(time.Until(begin.Add(f.At))):
			all.Go(func() {
				if c.strike(ctx, f) {
					c.mu.Lock()
					c.struck[f.Kind]++
					c.mu.Unlock()
				}
			})
		}
	}
	all.Wait()
}

// strike injects one fault and reports whether it happened.
func (c *campaign) strike(ctx context.Context, f fault) bool {
	over := sync.OnceFunc(c.endSessions(f))
	defer over()
	p, proxy := c.clients[f.Client], c.site.ways[f.Client].proxy
	after := func(d time.Duration) <-chan time.Time {
		done := make(chan time.Time, 1)
		go func() {
			select {
			case <-ctx.Done():
			case <-time.After(d):
			}
			done <- time.Now()
		}()
		return done
	}
	switch f.Kind {
	case kill:
		p.kill()
		<-after(f.Length / 3)
		c.must(p.start())
	case stop:
		p.stop(after(f.Length))
	case cut:
		if f.Nth = int(f.Length/time.Millisecond) % 2; f.Nth == 0 {
			proxy.CutAll()
			return true
		}
		proxy.Down()
		<-after(f.Length / 3)
		proxy.Refuse(false)
	case hole:
		proxy.BlackHole(true)
		<-after(f.Length)
		proxy.BlackHole(false)
	case slow:
		proxy.Slow(f.By)
		<-after(f.Length)
		proxy.Slow(0)
	case lostCommit, lostReply, lostRequest:
		return lose(proxy, f, after(f.Length+2*time.Second))
	case server:
		return c.crash(ctx, after(f.Length))
	case failover:
		return c.failOver(ctx, after(f.Length), over)
	case noRoom:
		return c.takeConnections(ctx, after(f.Length))
	case noSpace:
		return c.fillDisk(ctx, after(f.Length))
	case clock:
		c.moveServerClock(c.site.reach(f.By))
		<-after(f.Length)
		c.moveServerClock(0)
	case clientClock:
		c.moveClientClock(p, f.By, after(f.Length))
	case lock:
		return c.lockFile(ctx, after(f.Length))
	}
	return true
}

// sessionBound is for how long a process with ReleaseOnDisconnect may trust a lease after its session
// was lost: three seconds, and one more on a busy machine.
const sessionBound = 4 * time.Second

// endSessions records a fault that may end the session of a client with ReleaseOnDisconnect: others may be
// granted its leases at once, and it must not trust them for longer than sessionBound. Call the result after
// the fault.
func (c *campaign) endSessions(f fault) (over func()) {
	var all []int
	for i, w := range c.site.ways {
		if w.disconnect && (f.endsSessions() && f.Client == i || f.endsAllSessions()) {
			all = append(all, c.paused(i, anyLife, history.Now()))
		}
	}
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, at := range all {
			c.outside[at].to, c.outside[at].bounded = history.Now()+sessionBound, true
		}
	}
}

// lose loses a request or an answer, and reports whether there was one in time.
func lose(proxy *faultproxy.Proxy, f fault, enough <-chan time.Time) bool {
	ending := []faultproxy.Ending{faultproxy.Close, faultproxy.Reset, faultproxy.Silence}[(f.Length/time.Millisecond)%3]
	var armed *faultproxy.Fault
	switch f.Kind {
	case lostCommit:
		armed = proxy.LoseReply(faultproxy.Commit, ending)
	case lostReply:
		armed = proxy.LoseReply(faultproxy.Nth(f.Nth), ending)
	default:
		armed = proxy.LoseRequest(faultproxy.Nth(f.Nth), ending)
	}
	select {
	case <-armed.Struck():
	case <-enough:
	}
	armed.Disarm()
	return armed.Fired()
}

// crash kills the server, or all clients where there is no server, and starts it again. Two
// crashes never overlap. It reports whether there was time for it.
func (c *campaign) crash(ctx context.Context, pause <-chan time.Time) bool {
	c.crashing.Lock()
	defer c.crashing.Unlock()
	if ctx.Err() != nil {
		return false // the campaign has ended meanwhile
	}
	if c.site.own != nil {
		c.must(c.site.own.Kill())
		<-pause
		begin := time.Now()
		c.must(c.site.own.Start())
		c.t.Logf("%s: it took the server %v to start again", c.site.engine, time.Since(begin).Round(time.Millisecond))
		return true
	}
	for _, p := range c.clients {
		p.kill()
	}
	<-pause
	for _, p := range c.clients {
		c.must(p.start())
	}
	return true
}

// moveServerClock records when the clock leaps forward by more than the assumption allows: the
// margin of the shortest leases is half of their TTL.
func (c *campaign) moveServerClock(to time.Duration) {
	c.moving.Lock()
	defer c.moving.Unlock()
	leap := to - c.serverClock
	c.serverClock = to
	if leap > shortTTL/4 {
		at := c.paused(everybody, 0, history.Now())
		defer func() { c.resumed(at, 100*time.Millisecond) }()
	}
	c.site.moveClock(to)
}

// moveClientClock does not affect the promises: no protocol uses a client's clock. With SQLite
// it is the database's clock for that client's statements, so until it is back there are no
// promises that depend on it.
func (c *campaign) moveClientClock(p *process, by time.Duration, back <-chan time.Time) {
	if c.site.engine == dbtest.SQLite {
		at := c.paused(everybody, 0, history.Now())
		defer c.resumed(at, 0)
	}
	life := p.say(fmt.Sprintf("clock %d", by))
	<-back
	for p.say("clock 0"); p.isMoved(life); time.Sleep(5 * time.Millisecond) { // the process may be stopped
	}
}

// lockFile holds SQLite's write lock for a while.
func (c *campaign) lockFile(ctx context.Context, enough <-chan time.Time) bool {
	conn, err := c.site.audit.Conn(ctx)
	if err != nil {
		return false
	}
	defer func() { _ = conn.Close() }()
	if _, err := conn.ExecContext(ctx, "BEGIN IMMEDIATE"); err != nil {
		return false
	}
	<-enough
	_, err = conn.ExecContext(context.WithoutCancel(ctx), "ROLLBACK")
	c.must(err)
	return true
}
