package faults_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/test/conformance"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
	"github.com/holdfast-go/holdfast/internal/test/faultproxy"
	"github.com/holdfast-go/holdfast/internal/test/history"
	"github.com/holdfast-go/holdfast/sqllock"
)

// soakFor returns the duration of the soak: -rounds of 1,000 make it two minutes.
func soakFor() time.Duration { return time.Duration(*rounds) * 120 * time.Millisecond }

// enoughVisits is the number of successful visits that the soak needs; with fewer, it continues.
const enoughVisits = 40

// Rule: clients do anything, and whichever replies are lost, at most one call holds a lock,
// tokens increase, no stale term commits, and no key is stuck at the end.
func TestLeaseSoak(t *testing.T) {
	t.Parallel()
	conformance.Run(t, conformance.SQL(), func(e *conformance.Env[*sql.Tx]) {
		leaseTables(e)
		s := &soak{Env: e, url: e.DSN, rec: history.New()}
		for i := range s.keys {
			s.keys[i] = fmt.Sprint("soak ", i)
		}
		counters(e, s.keys[:]...)
		ctx, cancel := context.WithCancel(e.Ctx)
		defer cancel()
		var all sync.WaitGroup
		var proxy *faultproxy.Proxy
		if e.Engine != dbtest.SQLite { // it has no replies
			w := again(e.T, &world[*sql.Tx]{Env: e})
			proxy, s.url = w.proxy, w.DSN
		}
		for i := range s.parties {
			s.parties[i].Store(s.open())
		}
		if proxy != nil {
			all.Go(func() { loseReplies(ctx, proxy) })
		}
		all.Go(func() { s.replace(ctx) })
		for i := range 32 {
			all.Go(func() {
				for ctx.Err() == nil {
					s.roam(i)
				}
			})
		}
		time.Sleep(soakFor())
		e.Eventually("enough visits went well and enough replies were lost", func() bool {
			return s.well.Load() >= enoughVisits && (proxy == nil || proxy.Fired() >= 3)
		})
		cancel()
		all.Wait()
		if proxy != nil {
			proxy.CutAll()
			e.Logf("%d replies were lost", proxy.Fired())
		}
		for i := range s.parties {
			_ = s.parties[i].Load().leave() // an orderly end needs a connection
		}
		e.Logf("%d visits went well, %d did not", s.well.Load(), s.badly.Load())
		judge(e, "soak", s.rec.History(), enoughVisits)
		last := joined(e.T, e.DSN, "", soakOptions, history.New(), nil)
		for _, key := range s.keys {
			lease, err := last.locks.Acquire(e.Ctx, key)
			if err != nil {
				e.Fatalf("%s is stuck: %v", key, err)
			}
			if err := unreleased(lease.Release(e.Ctx)); err != nil {
				e.Errorf("%s: %v", key, err)
			}
		}
	})
}

var soakOptions = sqllock.Options{TTL: 2 * time.Second, Margin: 400 * time.Millisecond}

type soak struct {
	*conformance.Env[*sql.Tx]

	url         string
	keys        [8]string
	rec         *history.Recorder
	parties     [3]atomic.Pointer[party]
	well, badly atomic.Int64
}

// open opens a party; after a reply that was lost during this, it opens another. A lost reply may be followed by
// silence, so each attempt is bounded.
func (s *soak) open() *party {
	for {
		ctx, cancel := context.WithTimeout(s.Ctx, dbtest.Slack/4)
		p, err := join(ctx, s.url, "", soakOptions, s.rec, nil)
		cancel()
		switch {
		case err == nil:
			return p
		case s.Ctx.Err() != nil:
			s.Fatal(err)
		}
	}
}

// replace closes a Locker now and then, as a process does that ends in order.
func (s *soak) replace(ctx context.Context) {
	for i := 0; ; i++ {
		select {
		case <-ctx.Done():
			return
		case <-time.After(700 * time.Millisecond):
		}
		next := s.open()
		_ = s.parties[i%len(s.parties)].Swap(next).leave()
	}
}

// roam makes one visit of a random kind.
func (s *soak) roam(i int) {
	v := visit{
		key: s.keys[rand.IntN(len(s.keys))], ttl: soakOptions.TTL, hold: rand.N(3 * time.Millisecond),
		wait: 100*time.Millisecond + rand.N(2*time.Second),
	}
	switch rand.IntN(16) {
	case 0, 1, 2, 3:
		v.try = true
	case 4:
		v.manner, v.ttl = crashes, 200*time.Millisecond
	case 5:
		v.manner, v.ttl = oversees, 200*time.Millisecond
	case 6:
		v.wait = rand.N(5 * time.Millisecond) // given up while it is sent
	}
	ctx, cancel := context.WithTimeout(s.Ctx, dbtest.Hang)
	defer cancel()
	p := s.parties[i%len(s.parties)].Load()
	err := p.visit(ctx, s.rec.Client(i), v)
	if err == nil {
		s.well.Add(1)
		return
	}
	s.badly.Add(1)
	if errors.Is(err, holdfast.ErrRetry) || p.db.Retryable(err) {
		s.Errorf("an error of the engine's came out: %v", err)
	}
}

// loseReplies loses a reply now and then, with its connection.
func loseReplies(ctx context.Context, p *faultproxy.Proxy) {
	for ctx.Err() == nil {
		ending := faultproxy.Close
		switch rand.IntN(10) {
		case 0:
			ending = faultproxy.Silence
		case 1, 2, 3:
			ending = faultproxy.Reset
		}
		f := p.LoseReply(faultproxy.Nth(20+rand.IntN(60)), ending)
		select {
		case <-f.Struck():
		case <-ctx.Done():
		case <-time.After(time.Second): // the proxy waits for the reply to a farewell
		}
		f.Disarm()
	}
}
