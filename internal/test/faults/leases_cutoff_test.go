package faults_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/test/conformance"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
	"github.com/holdfast-go/holdfast/internal/test/faultproxy"
	"github.com/holdfast-go/holdfast/internal/test/history"
	"github.com/holdfast-go/holdfast/sqllock"
)

// cutOffTTL is the TTL; the margin is the default, a tenth of it.
const cutOffTTL = time.Second

// renewal matches a renewal; the text of other statements differs.
var renewal = faultproxy.Contains("expires_at = GREATEST(l.expires_at")

func anything([]byte) bool { return true }

// cuts are the ways to cut a holder off from its database. begun is closed when the cut happens;
// end removes the cut.
var cuts = map[string]func(p *faultproxy.Proxy) (begun <-chan struct{}, end func()){
	"both ways": func(p *faultproxy.Proxy) (<-chan struct{}, func()) {
		p.BlackHole(true)
		return closed(), func() {}
	},
	"requests": func(p *faultproxy.Proxy) (<-chan struct{}, func()) {
		return closed(), every(p.LoseRequest)
	},
	"replies": func(p *faultproxy.Proxy) (<-chan struct{}, func()) {
		return closed(), every(p.LoseReply)
	},
	"request of a renewal": func(p *faultproxy.Proxy) (<-chan struct{}, func()) {
		return atRenewal(p, p.LoseRequest)
	},
	"reply of a renewal": func(p *faultproxy.Proxy) (<-chan struct{}, func()) {
		return atRenewal(p, p.LoseReply)
	},
	"down": func(p *faultproxy.Proxy) (<-chan struct{}, func()) {
		p.Down()
		return closed(), func() {}
	},
}

func closed() <-chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}

// atRenewal loses a part of a renewal, and from then on all traffic.
func atRenewal(p *faultproxy.Proxy, lose loser) (begun <-chan struct{}, end func()) {
	var mu sync.Mutex
	over := false
	f := lose(renewal, faultproxy.Silence, func() {
		mu.Lock()
		defer mu.Unlock()
		if !over { // it may strike late
			p.BlackHole(true)
		}
	})
	return f.Struck(), func() {
		f.Disarm()
		mu.Lock()
		defer mu.Unlock()
		over = true
	}
}

// loser is a method of a proxy.
type loser func(faultproxy.Match, faultproxy.Ending, ...func()) *faultproxy.Fault

// every loses one direction of all connections, including new ones.
func every(lose loser) (end func()) {
	faults := make([]*faultproxy.Fault, 200)
	for i := range faults {
		faults[i] = lose(anything, faultproxy.Silence)
	}
	return func() {
		for _, f := range faults {
			f.Disarm()
		}
	}
}

// Rule: a holder is cut off from the database, idle or during a renewal, in one direction or in
// both. Its context ends before the next call's acquire returns. Both run in this process, so
// one clock measures both.
func TestLeaseCutOff(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, engine dbtest.Engine) {
		e := conformance.New(t, conformance.SQL(), engine)
		if engine == dbtest.SQLite {
			(&cutOff{Env: e, direct: e.DSN, holder: joined(t, e.DSN, "", cutOffOptions, history.New(), nil)}).all(lockFile)
			return
		}
		for name, cut := range cuts {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				w := again(t, &world[*sql.Tx]{Env: e})
				c := &cutOff{Env: w.Env, direct: e.DSN, naive: name == "both ways"}
				c.holder = joined(t, dbtest.With(w.DSN, textOf(engine)), "", cutOffOptions, history.New(), nil)
				t.Cleanup(w.proxy.CutAll)
				c.all(func(*cutOff) (<-chan struct{}, func()) {
					begun, end := cut(w.proxy)
					return begun, func() {
						end()
						w.proxy.Refuse(false)
						w.proxy.BlackHole(false)
						w.proxy.CutAll()
					}
				})
			})
		}
	})
}

var cutOffOptions = sqllock.Options{TTL: cutOffTTL}

// textOf returns the driver parameter that sends the text of each statement, and prepares none.
func textOf(engine dbtest.Engine) string {
	if engine == dbtest.Postgres {
		return "default_query_exec_mode=exec"
	}
	return "interpolateParams=true"
}

// cutOff is a holder that is cut off, and a rival that is not.
type cutOff struct {
	*conformance.Env[*sql.Tx]

	direct string // the rival's URL, without a proxy
	holder *party
	rival  *party
	naive  bool
}

func (c *cutOff) all(cut func(*cutOff) (<-chan struct{}, func())) {
	c.rival = joined(c.T, c.direct, "", sqllock.Options{TTL: time.Minute}, c.holder.rec, nil)
	n := max(*rounds/8, 2)
	gaps := make([]time.Duration, 0, n)
	var longest time.Duration
	for i := 0; len(gaps) < n && !c.Failed(); i++ {
		if i == 5*n {
			c.Fatal("the lease is lost before it is cut off, again and again")
		}
		begun := time.Now()
		if gap := c.round(fmt.Sprint(c.Name(), i), cut); gap > 0 {
			gaps = append(gaps, gap)
		}
		longest = max(longest, time.Since(begun))
	}
	if c.Failed() {
		return
	}
	history.Check(c, c.holder.rec.History())
	slices.Sort(gaps)
	c.Logf("%d rounds; from the last sight of the living context to the return of the next grant: %v at least, %v in the middle; the longest round took %v", n, gaps[0], gaps[n/2], longest)
}

// round cuts the holder off once, while the rival waits, and measures the gap. The gap is 0 if
// the lease was lost before.
func (c *cutOff) round(key string, cut func(*cutOff) (<-chan struct{}, func())) time.Duration {
	c.Helper()
	rec, naive := c.holder.rec, history.New()
	grants := [2]*history.Grant{naive.Client(0).Grant(key), rec.Client(0).Grant(key)}
	sent := time.Now()
	lease, err := c.holder.locks.Acquire(c.Ctx, key)
	if err != nil {
		c.Fatal(err)
	}
	believes := grants[0].Won(lease.Token(), time.Time{})
	term := grants[1].Won(lease.Token(), c.holder.window(sent, cutOffTTL))
	stop := term.Watch(lease.Context())

	granted := make(chan *sqllock.Lease, 1)
	go func() {
		defer close(granted)
		grants := [2]*history.Grant{naive.Client(1).Grant(key), rec.Client(1).Grant(key)}
		lease, err := c.rival.locks.Acquire(c.Ctx, key)
		if err != nil {
			c.Errorf("the rival: %v", err)
			return
		}
		for _, g := range grants {
			g.Won(lease.Token(), time.Time{})
		}
		granted <- lease
	}()
	time.Sleep(rand.N(cutOffTTL))
	early := lease.Context().Err() != nil // the machine is very busy
	begun, end := cut(c)
	select {
	case <-begun:
	case <-lease.Context().Done(): // no renewal came
		early = true
	}
	asks := make(chan error, 1)
	if c.naive {
		go func() { asks <- c.holder.pool.PingContext(c.Ctx) }()
	}
	next, ok := <-granted
	select {
	case <-asks:
		c.Error("the naive form should have failed: the holder was told")
	default:
		believes.Ended()
	}
	stop()
	end()
	if !ok {
		return 0
	}
	if c.naive {
		<-asks
		if found := history.Judge(naive.History()); len(found) == 0 || found[0].Rule != history.Exclusion {
			c.Errorf("the naive form, trust until the database says otherwise, should have failed: %v", found)
		}
	}
	if cause := context.Cause(lease.Context()); !errors.Is(cause, sqllock.ErrLost) {
		c.Errorf("the context's cause is %v, want ErrLost", cause)
	}
	if next.Token() <= lease.Token() {
		c.Errorf("token %d after %d", next.Token(), lease.Token())
	}
	done := term.Release()
	switch err := lease.Release(c.Ctx); {
	case errors.Is(err, sqllock.ErrLost):
		done.Lost()
	case err == nil:
		c.Error("released after it was lost, without an error")
	default:
		done.Unknown() // its connections were cut a moment ago
	}
	if err := unreleased(next.Release(c.Ctx)); err != nil {
		c.Errorf("the rival's release: %v", err)
	}
	if early {
		return 0
	}
	return gap(rec.History(), history.Key(key))
}

// gap returns the time from the last moment at which the first term's context was seen alive to
// the return of the second grant.
func gap(h history.History, key history.Key) time.Duration {
	var alive, granted time.Duration
	for _, op := range h {
		switch {
		case op.Key != key:
		case op.Kind == history.KindEnded && op.Client == 0:
			alive = op.Call
		case op.Kind == history.KindGrant && op.Client == 1:
			granted = op.Return
		}
	}
	return granted - alive
}

// lockFile is the cut for SQLite: another connection holds the only write lock for longer than a
// lease lasts.
func lockFile(c *cutOff) (<-chan struct{}, func()) {
	conn, err := c.SQL.Conn(c.Ctx)
	if err != nil {
		c.Fatal(err)
	}
	if _, err := conn.ExecContext(c.Ctx, "BEGIN IMMEDIATE"); err != nil {
		c.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		time.Sleep(cutOffTTL * 5 / 4)
		_, err := conn.ExecContext(c.Ctx, "ROLLBACK")
		if err := errors.Join(err, conn.Close()); err != nil {
			c.Error(err)
		}
	}()
	return closed(), func() { <-ended }
}

// Rule: a lease survives the loss of its connections while new ones can be opened: an
// interrupted renewal is retried.
func TestLeaseSurvivesCutConnections(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, engine dbtest.Engine) {
		if engine == dbtest.SQLite {
			return // it has no connection to cut
		}
		e := conformance.New(t, conformance.SQL(), engine)
		w := again(t, &world[*sql.Tx]{Env: e})
		o := sqllock.Options{TTL: dbtest.Slack} // so slow may a new connection be on a busy machine
		holder := joined(t, dbtest.With(w.DSN, textOf(engine)), "", o, history.New(), nil)
		t.Cleanup(w.proxy.CutAll)
		rival := joined(t, e.DSN, "", o, history.New(), nil)
		lease, err := holder.locks.Acquire(e.Ctx, "key")
		if err != nil {
			t.Fatal(err)
		}
		once, err := holder.locks.Acquire(e.Ctx, "without renewal", sqllock.AcquireOptions{NoRenewal: true})
		if err != nil {
			t.Fatal(err)
		}
		begun := time.Now()
		for n := 0; time.Since(begun) < o.TTL; n++ {
			var f *faultproxy.Fault
			switch n % 4 {
			case 0:
				f = w.proxy.LoseReply(renewal, faultproxy.Close)
			case 1:
				f = w.proxy.LoseReply(renewal, faultproxy.Reset, w.proxy.CutAll)
			case 2:
				f = w.proxy.LoseRequest(renewal, faultproxy.Close)
			case 3:
				f = w.proxy.LoseRequest(renewal, faultproxy.Reset, w.proxy.CutAll)
			}
			select {
			case <-f.Struck():
			case <-lease.Context().Done():
				t.Fatalf("lost after %d cuts: %v", n, context.Cause(lease.Context()))
			}
			var held *sqllock.HeldError
			if _, err := rival.locks.TryAcquire(e.Ctx, "key"); !errors.As(err, &held) || held.Token != lease.Token() {
				t.Fatalf("after %d cuts the rival got: %v", n, err)
			}
			time.Sleep(o.TTL / 10)
		}
		if lease.Context().Err() != nil {
			t.Errorf("lost: %v", context.Cause(lease.Context()))
		}
		if once.Context().Err() == nil {
			t.Error("the naive form, without renewal, should have failed")
		}
		if w.proxy.Fired() < 3 {
			t.Errorf("%d faults struck: the test shows nothing", w.proxy.Fired())
		}
		if err := unreleased(lease.Release(e.Ctx)); err != nil {
			t.Errorf("release: %v", err)
		}
		t.Logf("%d renewals were cut off", w.proxy.Fired())
	})
}
