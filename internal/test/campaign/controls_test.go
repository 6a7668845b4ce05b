//go:build unix

package campaign

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/dialect"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
	"github.com/holdfast-go/holdfast/sqllock"
)

// A control is a protection that the clients of a campaign omit. The campaign must then find a
// violation.
type control string

const (
	whole          control = ""                // nothing is removed
	noGuard        control = "no-guard"        // a client that once acquired a lease writes without a guard
	releaseByName  control = "release-by-name" // and not by term
	tokenReset     control = "token-reset"     // a release deletes the row, and tokens start again
	claimAfterWork control = "claim-after-work"
	inMemory       control = "in-memory-expiry" // the client checks its own clock instead of using a guard
	anyRelease     control = "any-release"      // every release counts as successful
	freshKey       control = "fresh-provider-key"
	cancelByLook   control = "cancel-by-look" // it stores nothing that keeps the original away
	checkThenTake  control = "check-then-take"
	noSimilar      control = "no-similar"
	reapEarly      control = "reap-early"      // records that still matter
	publishLater   control = "publish-later"   // a message is marked before somebody has it
	eachReplica    control = "each-replica"    // runs the ticks by itself
	watchBlind     control = "watch-blind"     // some events are lost
	resumeByToken  control = "resume-by-token" // whoever knows the token goes on
	lookThenDo     control = "look-then-do"    // with the functions of another language
	sessionUnasked control = "session-unasked" // whoever has a session is taken for ended
	sessionTrusted control = "session-trusted" // a lease is trusted after its session was lost
	asyncStandby   control = "async-standby"   // a commit is acknowledged before the standby has it
)

var allControls = []control{noGuard, releaseByName, tokenReset, claimAfterWork, inMemory, anyRelease, freshKey, cancelByLook, checkThenTake, noSimilar, reapEarly, publishLater, eachReplica, watchBlind, resumeByToken, lookThenDo, sessionUnasked, sessionTrusted, asyncStandby}

// possible reports whether an engine has what the control omits.
func (c control) possible(e dbtest.Engine) bool {
	switch c {
	case lookThenDo:
		return hasFunctions(e)
	case sessionUnasked, sessionTrusted:
		return e != dbtest.SQLite
	case asyncStandby:
		return e == dbtest.Postgres
	}
	return true
}

// plant removes the protection from the SQL of the leases. The SQL belongs to this client only.
func (c control) plant(l *dialect.LeaseSQL) {
	replace := func(text *string, old, by string) {
		was := *text
		if *text = strings.ReplaceAll(was, old, by); *text == was {
			panic("nothing to take away: " + old)
		}
	}
	switch c {
	case releaseByName:
		replace(&l.Release, "attempt = $2", "name <> $2")
	case tokenReset:
		replace(&l.Release, "UPDATE {locks} SET attempt = NULL, expires_at = {now} WHERE", "DELETE FROM {locks} WHERE")
		byClock := regexp.MustCompile(`(?:GREATEST|MAX)\(([^,()]*token \+ 1), (?:c\.now|\{now\})\)`)
		for _, g := range []*dialect.Grant{&l.Make, &l.Take, &l.HandOver} {
			g.Text = byClock.ReplaceAllString(g.Text, "$1")
		}
	case sessionUnasked:
		if strings.Contains(l.Liveness.Ended, "IS_FREE_LOCK") {
			replace(&l.Liveness.Ended, "IS_FREE_LOCK($1)", "IS_FREE_LOCK($1) >= 0")
		} else {
			replace(&l.Liveness.Ended, "ELSE 0 END", "ELSE 1 END")
		}
	}
}

// faults returns the faults that reveal the control quickly.
func (c control) faults(all []kind) (some []kind) {
	useful := []kind{kill, stop, stop, stop, clientClock}
	switch c {
	case sessionUnasked:
		useful = []kind{slow, clientClock} // which end no session
	case sessionTrusted:
		useful = []kind{cut, clientClock}
	case asyncStandby:
		useful = []kind{failover, clientClock}
	}
	return slices.DeleteFunc(useful, func(k kind) bool { return !slices.Contains(all, k) })
}

// longTTL keeps a renewal from telling the client of the control sessionTrusted that it has lost its lease.
const longTTL, longHold = 40 * time.Second, 12 * time.Second

// linger makes the client whose leases end with its session hold them for long, in the controls of sessions,
// so that another client asks for one meanwhile.
func (c *client[Tx]) linger(t *task, h *holding) {
	switch {
	case !c.Disconnect || t.job != visit:
	case c.Control == sessionTrusted:
		t.books, t.hold, h.deaf = 1, longHold, true
	case c.Control == sessionUnasked:
		t.books, t.hold = 1, ttl
	}
}

// guard lets a transaction commit only if no other call acquired the lease in between.
func (c *client[Tx]) guard(ctx context.Context, tx Tx, h *holding) error {
	if c.Control == noGuard || c.Control == inMemory {
		return nil
	}
	return c.locks.Guard(ctx, tx, h.lease.Term())
}

// looks replaces the guard in the control inMemory: it checks the client's own clock and then
// works for a while before the transaction begins, so that a stop can hit that time.
func (c *client[Tx]) looks(t *task, h *holding) error {
	if c.Control != inMemory {
		return nil
	}
	if !wall().Before(h.expiry) {
		return sqllock.ErrLost
	}
	time.Sleep(40 * t.think)
	return nil
}

// wall returns the current time of the wall clock, without the monotonic reading.
func wall() time.Time { return time.Now().Round(0) }

// refundThenClaim checks whether a record exists, does the work, and creates the record
// afterwards.
func (c *client[Tx]) refundThenClaim(ctx context.Context, t *task) error {
	a := answer{Job: t.job, Key: t.key, ID: t.id, Outcome: executed, Value: t.id}
	marks := c.db.Engine() != holdfast.PostgreSQL
	err := c.db.InTx(ctx, func(ctx context.Context, tx Tx) error {
		q, err := access.Of(c.db).Join(tx)
		if err != nil {
			return err
		}
		a.Outcome, a.Value = executed, t.id
		found, err := core.Compile("", `SELECT id FROM campaign_claims WHERE name = $1`, marks).QueryRow(ctx, q, []any{&a.Value}, []byte(t.key))
		if found {
			a.Outcome = replayed
		}
		if err != nil || found {
			return err
		}
		return c.effect(ctx, tx, t, t.id)
	})
	if err == nil && a.Outcome == executed {
		time.Sleep(100 * t.think) // an eighth of an epoch at most, so that another client meets it
		err = c.db.InTx(ctx, func(ctx context.Context, tx Tx) error {
			return c.exec(ctx, tx, `INSERT INTO campaign_claims (name, id) VALUES ($1, $2)`, []byte(t.key), t.id)
		})
	}
	if err != nil {
		a = answer{Job: t.job, Key: t.key, ID: t.id, Outcome: unknown, Err: err.Error()}
		if errors.Is(err, holdfast.ErrInvalid) {
			panic(fmt.Sprint(err))
		}
	}
	t.b.told(a)
	return err
}
