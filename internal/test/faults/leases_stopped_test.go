//go:build unix

package faults_test

import (
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/test/conformance"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
	"github.com/holdfast-go/holdfast/internal/test/history"
	"github.com/holdfast-go/holdfast/sqllock"
)

var rounds = flag.Int("rounds", 25, "how often a holder is stopped past its lease, on each engine")

// Rule: a holder is stopped beyond the end of its lease, while another call acquires the lease
// and commits. When it continues, it commits nothing under Guard. Without Guard it does: always
// if it checks nothing, sometimes if it checks its context.
func TestLeaseOfStoppedHolder(t *testing.T) {
	t.Parallel()
	conformance.Run(t, conformance.SQL(), func(e *conformance.Env[*sql.Tx]) {
		leaseTables(e)
		url := e.DSN
		if e.Engine == dbtest.SQLite {
			url += "?_pragma=busy_timeout(50)" // a process may be stopped while it writes
		}
		s := &stopped{Env: e, other: joined(e.T, url, "", sqllock.Options{TTL: time.Minute}, history.New(), nil)}
		sideBySide := 4
		if e.Engine == dbtest.SQLite {
			sideBySide = 1 // a process that is stopped while it writes would stop the others too
		}
		var all sync.WaitGroup
		for i := range sideBySide {
			holder := start(e.T, order{
				URL: url, Obey: true, Record: filepath.Join(e.TempDir(), fmt.Sprint("child", i)),
				Options: sqllock.Options{TTL: stoppedTTL},
			})
			all.Go(func() {
				for n := i; n < *rounds && !e.Failed(); n += sideBySide {
					s.round(holder, n)
				}
			})
		}
		all.Wait()

		history.CheckCommits(e, commits(e, guarded))
		stale := func(series string) int { return len(history.JudgeCommits(commits(e, series))) }
		e.Logf("%d rounds: another got the lease in %d while the holder was stopped, was kept from it by a guarded transaction in %d; stale commits: guarded %d, context checked %d, bare %d",
			*rounds, s.overtaken.Load(), s.frozen.Load(), stale(guarded), stale(checked), stale(bare))
		if n := int(s.overtaken.Load()); n < *rounds/2 || stale(bare) < n/2 || s.frozen.Load() == 0 {
			e.Errorf("the naive form should have failed: %d stale commits, overtaken in %d rounds, frozen in %d", stale(bare), n, s.frozen.Load())
		}
	})
}

// stoppedTTL is the holder's TTL: the lease is renewed until the holder is stopped.
const stoppedTTL = 80 * time.Millisecond

type stopped struct {
	*conformance.Env[*sql.Tx]

	other             *party
	overtaken, frozen atomic.Int32
}

// round stops a holder once, on a separate key.
func (s *stopped) round(holder *running, n int) {
	key := fmt.Sprint("round ", n)
	counters(s.Env, key)
	holder.wants("ok", "acquire "+key)
	holder.wants("ok", "write "+bare)
	switch n % 8 {
	case 3:
		s.race(holder, key)
	case 7:
		s.freeze(holder, key)
	default:
		s.overtake(holder, key)
	}
}

// overtake lets the old holder write after the new one.
func (s *stopped) overtake(holder *running, key string) {
	for holder.stop(); !s.writable(); holder.stop() {
		holder.signal(syscall.SIGCONT)
	}
	defer holder.signal(syscall.SIGCONT)
	lease, err := s.other.locks.Acquire(s.Ctx, key)
	if err != nil {
		s.Errorf("while the holder is stopped: %v", err)
		return
	}
	s.overtaken.Add(1)
	s.writes(lease)
	holder.say("write "+checked, "write "+bare, "write "+guarded, "release")
	holder.signal(syscall.SIGCONT)
	holder.hears("ok", "lost")
	holder.hears("ok")
	holder.hears("lost")
	if said := holder.line(); said == "ok\n" { // on a busy machine it may get no answer
		s.Errorf("a lost lease was released: %q", said)
	}
}

// writable reports whether others can write while the holder is stopped: on SQLite it may have
// been stopped while it wrote.
func (s *stopped) writable() bool {
	if s.Engine != dbtest.SQLite {
		return true
	}
	tx, err := s.SQL.BeginTx(s.Ctx, nil)
	if err != nil {
		return false
	}
	defer func() { _ = tx.Rollback() }()
	_, err = tx.ExecContext(s.Ctx, `DELETE FROM lease_counters WHERE k = 'nobody'`)
	return err == nil
}

// race lets the old holder continue at about the time at which the new one acquires the lease.
func (s *stopped) race(holder *running, key string) {
	holder.stop()
	var coming sync.WaitGroup
	coming.Go(func() {
		lease, err := s.other.locks.Acquire(s.Ctx, key)
		if err != nil {
			s.Errorf("after the holder was stopped: %v", err)
			return
		}
		s.writes(lease)
	})
	time.Sleep(stoppedTTL*3/4 + rand.N(stoppedTTL/2))
	holder.say("write "+guarded, "write "+checked, "write "+guarded, "write "+bare, "release")
	holder.signal(syscall.SIGCONT)
	for _, line := range []string{guarded, checked, guarded, bare, "release"} {
		switch line {
		case bare:
			holder.hears("ok")
		case "release":
			holder.line()
		default:
			holder.hears("ok", "lost")
		}
	}
	coming.Wait()
}

// freeze stops the holder after Guard, before its COMMIT. No other call acquires the lease until
// that transaction ends.
func (s *stopped) freeze(holder *running, key string) {
	for holder.say("begin"); holder.line() != "ok\n"; holder.say("begin") {
		if s.Ctx.Err() != nil {
			s.Error("the holder cannot begin")
			return
		}
		time.Sleep(stoppedTTL) // SQLite's writer may be stopped
	}
	holder.stop()
	for begun := time.Now(); time.Since(begun) < 3*stoppedTTL; time.Sleep(stoppedTTL / 10) {
		if lease, err := s.other.locks.TryAcquire(s.Ctx, key); !errors.Is(err, sqllock.ErrHeld) {
			s.Errorf("a guarded transaction is open, and another got: %v, %v", lease, err)
		}
	}
	s.frozen.Add(1)
	holder.say("commit", "write "+bare)
	holder.signal(syscall.SIGCONT)
	holder.hears("ok")
	holder.hears("ok")
	lease, err := s.other.locks.Acquire(s.Ctx, key)
	if err != nil {
		s.Errorf("after the guarded transaction: %v", err)
		return
	}
	s.writes(lease)
}

// writes makes the new holder's commits, one in each series, and releases its lease.
func (s *stopped) writes(lease *sqllock.Lease) {
	for _, series := range []string{guarded, checked, bare} {
		if err := s.other.write(s.Ctx, lease, series, nil); err != nil {
			s.Errorf("the new holder, %s: %v", series, err)
		}
	}
	if err := unreleased(lease.Release(s.Ctx)); err != nil {
		s.Errorf("the new holder: %v", err)
	}
}

func (c *running) signal(which syscall.Signal) {
	if err := c.cmd.Process.Signal(which); err != nil {
		c.t.Error(err)
	}
}

// stop returns when the child stands.
func (c *running) stop() {
	if err := dbtest.Stop(c.cmd.Process); err != nil {
		c.t.Error(err)
	}
}

// say sends lines to a child that runs obey.
func (c *running) say(lines ...string) {
	for _, line := range lines {
		fmt.Fprintln(c.in, line)
	}
}

// hears fails the test unless the child's next answer is one of answers.
func (c *running) hears(answers ...string) {
	c.t.Helper()
	said := c.line()
	for _, want := range answers {
		if said == want+"\n" {
			return
		}
	}
	c.t.Errorf("the child said %q, want one of %q", said, answers)
}

func (c *running) wants(answer, line string) {
	c.t.Helper()
	c.say(line)
	c.hears(answer)
}
