package fairlocks

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/dialect"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
	"github.com/holdfast-go/holdfast/sqllock"
	"github.com/holdfast-go/holdfast/sqllock/fairlock"
)

// ticketsJudge checks that the judge detects each of these bugs.
func ticketsJudge[Tx any](e *env[Tx]) {
	replace := func(text *string, from, to string) {
		e.Helper()
		if !strings.Contains(*text, from) {
			e.Fatalf("%q is not in %s", from, *text)
		}
		*text = strings.ReplaceAll(*text, from, to)
	}
	for _, bug := range []struct {
		name, want string
		plant      func(c *dialect.TicketSQL)
	}{
		{"", "", func(*dialect.TicketSQL) {}},
		{"everybody is granted at once", "units are out", func(c *dialect.TicketSQL) {
			if c.Ahead != "" {
				replace(&c.Ahead, "COALESCE(SUM(units), 0)", "0")
				return
			}
			replace(&c.Enter, "q.before_it + $4", "$4")
		}},
		{"who has it is taken for dead", "units are out", func(c *dialect.TicketSQL) {
			replace(&c.Places, "a.expires_at > {now}", "a.granted_at IS NULL")
			replace(&c.Dead, "expires_at <= {now}", "granted_at IS NOT NULL")
			replace(&c.Clear, "expires_at <= {now}", "granted_at IS NOT NULL")
		}},
		{"those who wait do not count", "units are out", func(c *dialect.TicketSQL) {
			replace(&c.Places, "a.token < c.token", "a.token < c.token AND a.granted_at IS NOT NULL")
			if c.ReleaseGrants {
				replace(&c.Release, "SUM(t.units) OVER (ORDER BY t.token)", "t.units")
			}
		}},
		{"the last come first", "overtaken", func(c *dialect.TicketSQL) {
			replace(&c.Places, "a.token < c.token", "(a.granted_at IS NOT NULL OR a.token > c.token)")
			if c.ReleaseGrants {
				replace(&c.Release, "OVER (ORDER BY t.token)", "OVER (ORDER BY t.token DESC)")
			}
		}},
	} {
		db := e.Handle.Open(e.T, e.DSN).DB // it has its own SQL
		bug.plant(&access.Of(db).Dialect.Tickets)
		var found string
		for hold := time.Second; ; hold *= 2 { // or until it shows
			if bug.name == "" {
				hold = 5 * time.Millisecond
			}
			seen := &stays{}
			e.storm(seen, e.LockersOn(db, 6, sqllock.Options{}), hold)
			found = strings.Join(seen.judge(), "\n")
			if bug.name == "" || strings.Contains(found, bug.want) || hold > 10*time.Second {
				break
			}
			e.Must(`DELETE FROM holdfast_tickets`) // on a busy machine the second one came too late
		}
		if bug.name == "" && found != "" || !strings.Contains(found, bug.want) {
			e.Errorf("planted %q, found %.300q", bug.name, found)
		}
		e.Must(`DELETE FROM holdfast_tickets`)
	}
}

// storm starts Lockers one after the other, each alone. It ends when the first is overtaken, or
// when two have the lock.
func (e *env[Tx]) storm(seen *stays, lockers []*sqllock.Locker[Tx], hold time.Duration) {
	e.Helper()
	ctx, cancel := context.WithTimeout(e.Ctx, dbtest.Hang)
	defer cancel()
	var in atomic.Int32
	var wg sync.WaitGroup
	for i, l := range lockers {
		wg.Go(func() {
			asked := time.Now()
			lease, err := fairlock.New(l).Acquire(ctx, "key")
			if err != nil {
				return
			}
			st := seen.begin(lease, fairlock.MaxPermits, fairlock.MaxPermits, asked)
			two := in.Add(1) > 1
			for end := time.Now().Add(hold); !two && in.Load() == 1 && time.Now().Before(end); {
				time.Sleep(time.Millisecond)
			}
			st.alive(lease)
			in.Add(-1)
			_ = lease.Release(e.Ctx)
			seen.end(st)
			if two || len(seen.found()) > 0 {
				cancel()
			}
		})
		e.Eventually("it has asked", func() bool { return e.Tickets() > i || in.Load() != 1 })
	}
	wg.Wait()
}
