package faults_test

import (
	"context"
	"database/sql"
	"fmt"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/dialect"
	"github.com/holdfast-go/holdfast/internal/test/conformance"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
	"github.com/holdfast-go/holdfast/internal/test/history"
	"github.com/holdfast-go/holdfast/sqllock"
)

// The margins are large because a watcher on a busy machine wakes late. The same holds for the
// TTL of leases that must not be lost.
var (
	visitors = sqllock.Options{TTL: time.Minute, Margin: 500 * time.Millisecond, Holder: "a visitor"}
	doomed   = sqllock.Options{TTL: 600 * time.Millisecond, Margin: 250 * time.Millisecond, Holder: "the doomed"}
)

// storm is a stampede: many goroutines on each of two keys, on several Lockers, together with
// visiting processes and processes that are killed.
type storm struct {
	goroutines, lockers, processes int
	level                          string // of the sessions; empty is the server's default
	broken                         sabotage
}

// strike runs the storm and returns the merged history. Keys begin with name.
func (s storm) strike(e *conformance.Env[*sql.Tx], name string) history.History {
	e.Helper()
	fresh, held := name+" new", name+" held"
	counters(e, fresh, held)
	dir := e.TempDir()
	var records []string
	child := func(o order) *running {
		o.URL, o.Level = e.DSN, s.level
		o.Record = filepath.Join(dir, fmt.Sprintf("%s %d", name, len(records)))
		records = append(records, o.Record)
		return start(e.T, o)
	}
	ctx, cancel := context.WithCancel(e.Ctx)
	defer cancel()
	defer time.AfterFunc(dbtest.Hang, func() {
		stacks := make([]byte, 4<<20)
		e.Errorf("%s: a call is stuck:\n%s", name, stacks[:runtime.Stack(stacks, true)])
		cancel()
	}).Stop()
	rec := history.New()
	parties := make([]*party, s.lockers)
	for i := range parties {
		parties[i] = joined(e.T, e.DSN, s.level, visitors, rec, s.broken)
	}

	var dying, visiting []*running
	for i := range s.processes {
		if i < 2 {
			dying = append(dying, child(order{Options: doomed, Keys: []string{[]string{held, fresh}[i]}, Hold: true}))
		} else {
			visiting = append(visiting, child(order{Options: visitors, Keys: []string{fresh, held}, Visitors: 4, Visits: 2}))
		}
	}
	if len(dying) > 0 {
		dying[0].holding() // before the others start
	}
	var all sync.WaitGroup
	for i := range 2 * s.goroutines {
		all.Go(func() {
			v := visit{key: []string{fresh, held}[i%2], try: i%16 < 2, ttl: visitors.TTL, hold: time.Duration(i%4) * time.Millisecond}
			switch n := i / 2 % 16; {
			case n == 3:
				v.manner, v.ttl = crashes, 300*time.Millisecond
			case n == 7:
				v.manner, v.ttl = oversees, 200*time.Millisecond
			case s.broken != nil:
				v.hold = 100 * time.Millisecond // long enough for others to arrive
			}
			if err := parties[i%len(parties)].visit(ctx, rec.Client(i), v); err != nil && s.broken == nil {
				e.Errorf("client %d: %v", i, err)
			}
		})
	}
	for _, c := range dying {
		if c != dying[0] {
			c.holding() // in the middle
		}
		c.kill()
	}
	for _, c := range visiting {
		c.done()
	}
	all.Wait()
	histories := []history.History{rec.History()}
	for _, path := range records {
		histories = append(histories, recorded(e.T, path))
	}
	return history.Merge(histories...)
}

// holding waits until a child reports that it holds the lease.
func (c *running) holding() {
	c.t.Helper()
	if said := c.line(); said != "holding\n" {
		c.t.Fatalf("the child said %q", said)
	}
}

// grants counts the terms of a history.
func grants(h history.History) (n int) {
	for _, op := range h {
		if op.Kind == history.KindGrant && op.Outcome == history.OK {
			n++
		}
	}
	return n
}

// Rule: in a stampede on a new key and on a held one, whose holders crash, release late or are
// killed, at most one call holds the lock, tokens increase, callers see no engine error, and no
// term in the table follows a later one.
func TestLeaseStampede(t *testing.T) {
	t.Parallel()
	conformance.Run(t, conformance.SQL(), func(e *conformance.Env[*sql.Tx]) {
		leaseTables(e)
		s := storm{goroutines: 64, lockers: 4, processes: 4}
		judge(e, "storm", s.strike(e, "storm"), 2*s.goroutines)
	})
}

// judge checks a history, and the rows that it left under keys that begin with name.
func judge(e *conformance.Env[*sql.Tx], name string, h history.History, least int) {
	e.Helper()
	// A grant that came too late to be used is released, and blocks others until then.
	history.Check(e, h, history.AnyRefusal())
	all := commits(e, guarded)
	history.CheckCommits(e, all)
	type term struct {
		key   string
		token int64
	}
	sure, maybe, there := map[term]int{}, map[term]int{}, map[term]int{}
	for _, op := range h {
		switch of := (term{string(op.Key), op.Token}); {
		case op.Kind != history.KindCommit:
		case op.Outcome == history.OK:
			sure[of]++
		case op.Outcome == "":
			maybe[of]++
		}
	}
	for _, c := range all {
		if of := (term{c.Key, c.Token}); strings.HasPrefix(c.Key, name) {
			there[of]++
			sure[of] += 0
		}
	}
	for of, n := range sure {
		if there[of] < n || there[of] > n+maybe[of] {
			e.Errorf("%d commits of token %d of %q in the table, %d were confirmed, %d unknown", there[of], of.token, of.key, n, maybe[of])
		}
	}
	n := grants(h)
	e.Logf("%d operations, %d grants, guarded commits in %d of them", len(h), n, len(there))
	if n < least || len(there) < least/2 {
		e.Errorf("%d grants and commits in %d: the test shows nothing, want %d and half of it", n, len(there), least)
	}
}

// Rule: the same if the callers' sessions begin at another isolation level.
func TestLeaseStampedeIsolation(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, engine dbtest.Engine) {
		if engine == dbtest.SQLite {
			return // its transactions are all alike
		}
		e := conformance.New(t, conformance.SQL(), engine)
		leaseTables(e)
		for i, level := range []string{"REPEATABLE READ", "SERIALIZABLE"} {
			s := storm{goroutines: 32, lockers: 3, processes: 3, level: level}
			name := fmt.Sprint("level ", i)
			judge(e, name, s.strike(e, name), 2*s.goroutines)
		}
	})
}

// The same test detects locks that are broken in one place.
func TestLeaseStampedeOfBrokenLocks(t *testing.T) {
	t.Parallel()
	replace := func(text *string, old, by string) {
		was := *text
		if *text = strings.ReplaceAll(was, old, by); *text == was {
			panic("nothing to break: " + old)
		}
	}
	for name, c := range map[string]struct {
		broken sabotage
		want   history.Rule
	}{
		"takes what has not expired": {func(l *dialect.LeaseSQL) {
			text := &l.Take.Text
			switch {
			case strings.Contains(*text, "c.now"):
				replace(text, "attempt IS NULL OR expires_at <= {now} OR", "true OR")
				replace(&l.TakeMany, "attempt IS NULL OR expires_at <= {now}", "true")
			default:
				*text = strings.Replace(*text, "l.expires_at <= {now} OR", "1 = 1 OR", 1)
				*text = strings.Replace(*text, " expires_at <= {now} OR", " 1 = 1 OR", 1)
				l.TakeMany = strings.Replace(l.TakeMany, "l.expires_at <= {now}", "1 = 1", 1)
				l.TakeMany = strings.Replace(l.TakeMany, " expires_at <= {now}", " 1 = 1", 1)
			}
		}, history.Exclusion},
		"releases by name": {func(l *dialect.LeaseSQL) {
			replace(&l.Release, "attempt = $2", "name <> $2")
			replace(&l.ReleaseMany, "attempt IN ({attempts})", "(attempt IN ({attempts}) OR 1 = 1)")
		}, history.Exclusion},
		"guards by name": {func(l *dialect.LeaseSQL) {
			l.Guard = strings.Replace(l.Guard, "l.token = $2", "token = $2", 1)
			replace(&l.Guard, "token = $2", "0 < $2")
			l.Guard = strings.Replace(l.Guard, "l.attempt = COALESCE", "attempt = COALESCE", 1)
			replace(&l.Guard, "attempt = COALESCE", "'' <> COALESCE")
		}, history.StaleCommit},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			conformance.Run(t, conformance.SQL(), func(e *conformance.Env[*sql.Tx]) {
				leaseTables(e)
				for n, end := 0, time.Now().Add(dbtest.Hang); time.Now().Before(end); n++ { // a lucky order hides the bug
					h := storm{goroutines: 16, lockers: 2, broken: c.broken}.strike(e, fmt.Sprint("broken ", n))
					for _, v := range append(history.Judge(h), history.JudgeCommits(commits(e, guarded))...) {
						if v.Rule == c.want {
							e.Logf("found in storm %d: %s: %s", n+1, v.Rule, v.Text)
							return
						}
					}
				}
				e.Errorf("nobody found that it %s", name)
			})
		})
	}
}
