package sqllock

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/dialect"
)

// entry is a claim that is to join a line, and what became of it.
type entry struct {
	attempt
	units, capacity int
	now             bool
	state           state
}

type state int

const (
	refused state = iota
	waits
	granted
)

var (
	errNoAnchor = errors.New("sqllock: the key has no anchor")
	errRefused  = errors.New("sqllock: no claim was to join")
)

// enter has claims of one key join its line, in one transaction. Those that are
// not wanted there are refused.
func (s *store) enter(ctx context.Context, name []byte, batch []entry) error {
	for {
		err := s.inTx(ctx, core.TxOptions{Isolation: sql.LevelReadCommitted, LockTimeout: holdfast.DefaultLockTimeout, FirstSets: true},
			func(ctx context.Context, q core.Querier) error { return s.enterOn(ctx, q, name, batch) })
		switch {
		case errors.Is(err, errNoAnchor):
			err := s.retry(ctx, func(q core.Querier) error {
				_, err := s.claims.anchor.Exec(ctx, q, name)
				return err
			})
			if err != nil {
				return err
			}
			continue
		case errors.Is(err, errRefused):
			return nil
		case err != nil && !errors.Is(err, holdfast.ErrUnknown):
			for i := range batch {
				batch[i].state = refused
			}
		}
		return err
	}
}

func (s *store) enterOn(ctx context.Context, q core.Querier, name []byte, batch []entry) error {
	last, err := s.number(ctx, q, s.claims.draw, name, len(batch))
	switch {
	case err != nil:
		return err
	case last == 0:
		return errNoAnchor
	}
	entered := false
	for i := range batch {
		e := &batch[i]
		e.token = last - int64(len(batch)-1-i)
		now := 0
		if e.now {
			now = 1
		}
		n, err := s.number(ctx, q, s.claims.enter, name, e.token, e.owner[:], e.units, e.capacity, s.holder, e.ttl.Microseconds(), now)
		if err != nil {
			return err
		}
		e.state = state(n)
		entered = entered || e.state != refused
	}
	if !entered {
		return errRefused // and nothing is to be committed
	}
	return nil
}

// number runs a write that gives a number; 0 is nothing.
func (s *store) number(ctx context.Context, q core.Querier, stmt core.Stmt, args ...any) (n int64, err error) {
	if !s.dialect.Claims.ByInsertID {
		_, err = stmt.QueryRow(ctx, q, []any{&n}, args...)
		return n, err
	}
	r, err := stmt.Exec(ctx, q, args...)
	if err != nil || r.Affected == 0 {
		return 0, err
	}
	return r.InsertID, nil
}

// leave takes a claim out of line; that it was there is the answer.
func (s *store) leave(ctx context.Context, a attempt) (was bool, err error) {
	done := false // maybe, by a run whose answer was lost
	err = s.retry(ctx, func(q core.Querier) error {
		r, err := s.claims.release.Exec(ctx, q, a.name, a.token, a.owner[:])
		was = err == nil && (r.Affected > 0 || done)
		done = done || err != nil && !s.dialect.RolledBack(err)
		return err
	})
	return was, err
}

// leaveAll takes claims out of line; that all were there is the answer.
func (s *store) leaveAll(ctx context.Context, batch []forsaken) (all bool, err error) {
	names, owners := make([]any, len(batch)), make([]any, len(batch))
	for i, f := range batch {
		names[i], owners[i] = []byte(f.name), f.owner[:]
	}
	names, owners = pad(names), pad(owners)
	stmt := s.list("leave", s.dialect.Claims.Leave, 1, len(names))
	args := slices.Concat(names, owners)
	return all, s.onConn(ctx, s.dialect.Leases.ManyBefore, func(q core.Querier) error {
		r, err := stmt.Exec(ctx, q, args...)
		all = r.Affected == int64(len(batch))
		return err
	})
}

// guardClaim is Guard of one claim.
func (s *store) guardClaim(ctx context.Context, q core.Querier, name []byte, token int64) (found bool, fresh int, err error) {
	found, err = s.claims.guard.QueryRow(ctx, q, []any{&fresh}, name, token)
	if err != nil || found || s.claims.stale.Text == "" {
		return found && fresh >= 0, fresh, err
	}
	var stale int
	_, err = s.claims.stale.QueryRow(ctx, q, []any{&stale}, token)
	return stale == 1, 0, err
}

// confirm writes down that a claim is granted, and begins its time anew.
func (s *store) confirm(ctx context.Context, a attempt) (ok bool, err error) {
	err = s.retry(ctx, func(q core.Querier) error {
		r, err := s.claims.confirm.Exec(ctx, q, a.name, a.token, a.owner[:], a.ttl.Microseconds())
		ok = err == nil && r.Affected > 0
		return err
	})
	return ok, err
}

// view is a key's line as one who has no place sees it.
type view struct {
	verdict     // of the first claim
	capacity    int
	all, living int64 // units
}

// onlyDead is whether nothing but claims that have expired is in the way.
func (v view) onlyDead(a ask) bool {
	if v.living == 0 {
		return v.all > 0
	}
	return v.living+int64(a.units) <= int64(a.capacity) && v.all+int64(a.units) > int64(a.capacity)
}

func (s *store) lookClaims(ctx context.Context, name []byte) (v view, err error) {
	err = s.onConn(ctx, "", func(q core.Querier) error {
		var left int64
		v = view{}
		_, err := s.claims.look.QueryRow(ctx, q, []any{&v.holder, &v.token, &v.capacity, &left, &v.all, &v.living}, name)
		v.left = micros(left)
		return err
	})
	return v, err
}

// standing is what stands before a claim.
type standing struct {
	left          time.Duration // until it expires
	confirmed     bool
	units, living int64
	ahead         int64
}

// places looks at claims; those that are gone are not there.
func (s *store) places(ctx context.Context, leases []*Lease) (map[owner]standing, error) {
	_, owners := terms(leases)
	stmt := s.list("places", strings.ReplaceAll(s.dialect.Claims.Places, "{owners}", "{names}"), 1, len(owners))
	found := make(map[owner]standing, len(leases))
	return found, s.onConn(ctx, "", func(q core.Querier) error {
		clear(found)
		rows, err := stmt.Query(ctx, q, owners...)
		return each(rows, err, func() error {
			var b []byte
			var p standing
			var left, confirmed int64
			if err := rows.Scan(&b, &left, &confirmed, &p.units, &p.living, &p.ahead); err != nil {
				return err
			}
			p.left, p.confirmed = micros(left), confirmed == 1
			if len(b) == len(owner{}) {
				found[owner(b)] = p
			}
			return nil
		})
	})
}

// clearDead clears claims of a key away that have expired, but for those that
// are locked, and says how many.
func (s *store) clearDead(ctx context.Context, name []byte) (n int64, err error) {
	var tokens []any
	err = s.onConn(ctx, "", func(q core.Querier) error {
		tokens = nil
		rows, err := s.claims.dead.Query(ctx, q, name)
		return each(rows, err, func() error {
			var token int64
			if err := rows.Scan(&token); err != nil {
				return err
			}
			tokens = append(tokens, token)
			return nil
		})
	})
	if err != nil || len(tokens) == 0 {
		return 0, err
	}
	tokens = pad(tokens)
	stmt := s.list("clear", strings.ReplaceAll(s.dialect.Claims.Clear, "{tokens}", "{names}"), 2, len(tokens))
	return n, s.onConn(ctx, s.dialect.Leases.ManyBefore, func(q core.Querier) error {
		r, err := stmt.Exec(ctx, q, append([]any{name}, tokens...)...)
		n = r.Affected
		return err
	})
}

// claimStmts are the statements whose text does not depend on how many there are.
type claimStmts struct {
	anchor, draw, enter, look, confirm, dead, release, guard, write, stale core.Stmt
}

func compileClaims(c *dialect.Claims, compile func(name, text string) core.Stmt) claimStmts {
	return claimStmts{
		anchor: compile("anchor", c.Make), draw: compile("draw", c.Draw), enter: compile("enter", c.Enter),
		look: compile("look in line", c.Look), confirm: compile("confirm", c.Confirm), dead: compile("dead", c.Dead),
		release: compile("leave", c.Release), guard: compile("guard claim", c.Guard), write: compile("guard claim write", c.GuardWrite), stale: compile("stale", c.Stale),
	}
}
