package leases

import (
	"bytes"
	"encoding/hex"
	"regexp"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/test/conformance"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
	"github.com/holdfast-go/holdfast/internal/test/faultproxy"
	"github.com/holdfast-go/holdfast/sqllock"
)

var serverAddress = regexp.MustCompile(`@(?:tcp\()?([^/?()]+)`)

// behindProxy opens a pool through a new proxy. Connections may still be silent when the test
// ends.
func (e *env[Tx]) behindProxy() (*faultproxy.Proxy, conformance.Pool[Tx]) {
	e.Helper()
	proxy, pool := e.proxied()
	e.Cleanup(proxy.CutAll) // closing the pool would wait for a silent connection
	return proxy, pool
}

// proxied opens a pool through a new proxy.
func (e *env[Tx]) proxied(opts ...holdfast.Options) (*faultproxy.Proxy, conformance.Pool[Tx]) {
	e.Helper()
	at := serverAddress.FindStringSubmatchIndex(e.DSN)
	proxy, err := faultproxy.New(e.DSN[at[2]:at[3]])
	if err != nil {
		e.Fatal(err)
	}
	e.Cleanup(proxy.Close)
	return proxy, e.Open(e.DSN[:at[2]]+proxy.Addr()+e.DSN[at[3]:], opts...)
}

// sends matches a request that contains value, in the encodings of the protocols.
func sends(value string) faultproxy.Match {
	text := []byte(hex.EncodeToString([]byte(value)))
	return func(request []byte) bool {
		return bytes.Contains(request, []byte(value)) || bytes.Contains(request, text)
	}
}

func commits(request []byte) bool { return bytes.Contains(bytes.ToLower(request), []byte("commit")) }

// leaseLostReplies loses the server's answers after the server has done the work. A repeated
// acquire finds its own term, a repeated release succeeds, a repeated resume
// takes the lease up, and a hand-over grants the lock once.
// No lock stays without a holder for its TTL.
func leaseLostReplies[Tx any](e *env[Tx]) {
	if e.Engine == dbtest.SQLite {
		return // SQLite runs within the process: no reply can be lost
	}
	other := e.LockerWith(sqllock.Options{TTL: time.Hour})
	for _, ending := range []faultproxy.Ending{faultproxy.Close, faultproxy.Reset} {
		for _, used := range []bool{false, true} { // MySQL has a statement for each case
			key := conformance.Numbered("lost", int(ending)*2+map[bool]int{true: 1}[used])
			holder := "holder of " + key
			proxy, pool := e.behindProxy()
			l := e.LockerOn(pool.DB, sqllock.Options{TTL: time.Hour, Holder: holder})
			access.Locker[interface{ SetTurn(d time.Duration) }](l).SetTurn(dbtest.Hang)
			if used {
				e.MustRelease(e.wantFree(l, key))
			}
			// done reports whether the server did the work. The server may have answered that
			// the row is locked for a moment; then struck loses the next answer.
			struck := func(what string, match faultproxy.Match, done func() bool, do func()) {
				e.Helper()
				switch { // the statement after the write commits it
				case e.Engine == dbtest.TiDB:
					match = sends("autocommit = 1")
				case e.RowSecurity():
					match = commits
				}
				var lost atomic.Bool
				var asking sync.Mutex
				var lose func() *faultproxy.Fault
				lose = func() *faultproxy.Fault {
					return proxy.LoseReply(match, ending, func() {
						next := lose() // before done looks: the work may be done in between
						asking.Lock()
						defer asking.Unlock()
						if done() {
							lost.Store(true)
							next.Disarm()
						}
					})
				}
				lose()
				do()
				if !lost.Load() {
					e.Errorf("%s: no reply was lost", what)
				}
			}
			// token reads the row's token, 0 without a row; above is the token that it must
			// exceed.
			token := func(above int64) (int, bool) {
				n := e.Int(`SELECT COALESCE(MAX(token), 0) FROM holdfast_locks WHERE owner = '' AND name = $1`, leaseRow(key))
				return n, int64(n) > above
			}

			granted, before, more := 0, int64(0), false
			if used {
				n, _ := token(0)
				before = int64(n)
			}
			var lease *sqllock.Lease
			struck("acquire", sends(holder), func() bool { granted, more = token(before); return more }, func() { lease = e.MustAcquire(l, key) })
			if int64(granted) != lease.Token() || e.rowInt(key, `token`) != granted {
				e.Errorf("acquire: granted with token %d, then with %d", granted, lease.Token())
			}
			e.guarded(l, 0, lease.Term(), func(Tx) {})

			struck("release", sends(key), func() bool { return e.rowInt(key, `CASE WHEN attempt IS NULL THEN 1 ELSE 0 END`) == 1 }, func() { e.MustRelease(lease) })
			lease = e.wantFree(other, key)
			h, err := lease.Handle()
			e.Check(err)
			var again *sqllock.Lease
			struck("resume", sends(holder), func() bool {
				return e.Int(`SELECT COUNT(*) FROM holdfast_locks WHERE owner = '' AND name = $1 AND holder = $2`, leaseRow(key), holder) == 1
			}, func() { again, err = l.Resume(e.Ctx, h) })
			e.Check(err)
			if again.Token() != lease.Token() {
				e.Errorf("resumed with token %d, was %d", again.Token(), lease.Token())
			}
			e.guarded(l, 0, again.Term(), func(Tx) {})
			e.MustRelease(again)

			// The queue of this process contains only the call that gets the hand-over.
			lease = e.MustAcquire(l, key)
			arrived := make(chan arrival, 1)
			e.queue(e.Ctx, l, key, 0, 1, arrived)
			handed := 0
			struck("hand-over", sends(holder), func() bool { handed, more = token(lease.Token()); return more }, func() { e.MustRelease(lease) })
			select {
			case a := <-arrived:
				if a.err != nil {
					e.Fatal(a.err)
				}
				if a.lease.Token() < int64(handed) || a.lease.Context().Err() != nil {
					e.Errorf("handed over with token %d, after %d was granted", a.lease.Token(), handed)
				}
				e.guarded(l, 0, a.lease.Term(), func(Tx) {})
				e.wantHeld(other, key)
				e.MustRelease(a.lease)
			case <-time.After(dbtest.Hang): // the TTL is an hour
				e.Error("the lock that was to be handed over is held by nobody")
			}
			e.MustRelease(e.wantFree(other, key))
		}
	}
}
