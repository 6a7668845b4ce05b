package fairlock

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/sqllock/internal/keeper"
)

// store runs the statements of the tickets.
type store struct {
	*keeper.Store

	anchor, draw, enterStmt, readStmt, confirmStmt, expired, releaseStmt core.Stmt
}

func newStore(k *keeper.Store) *store {
	c := &k.Dialect.Tickets
	return &store{
		Store: k, anchor: k.Compile("anchor", c.Make), draw: k.Compile("draw", c.Draw), enterStmt: k.Compile("enter", c.Enter),
		readStmt: k.Compile("look in line", c.Look), confirmStmt: k.Compile("confirm", c.Confirm), expired: k.Compile("dead", c.Dead),
		releaseStmt: k.Compile("leave", c.Release),
	}
}

// entry is a ticket to enter into a queue, and the outcome.
type entry struct {
	keeper.Attempt
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
	errNoAnchor = errors.New("fairlock: the key has no row")
	errRefused  = errors.New("fairlock: no ticket entered")
)

// enter lets tickets of one key enter its queue, in one transaction. It refuses tickets with
// another capacity, and tickets of calls that do not wait but would have to.
func (s *store) enter(ctx context.Context, name []byte, batch []entry) error {
	for {
		err := s.InTx(ctx, core.TxOptions{Isolation: sql.LevelReadCommitted, LockTimeout: holdfast.DefaultLockTimeout, FirstSets: true},
			func(ctx context.Context, q core.Querier) error { return s.enterOn(ctx, q, name, batch) })
		switch {
		case errors.Is(err, errNoAnchor):
			err := s.Retry(ctx, func(q core.Querier) error {
				_, err := s.anchor.Exec(ctx, q, name)
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
	last, err := s.number(ctx, q, s.draw, name, len(batch))
	switch {
	case err != nil:
		return err
	case last == 0:
		return errNoAnchor
	}
	entered := false
	for i := range batch {
		e := &batch[i]
		e.Token = last - int64(len(batch)-1-i)
		now := 0
		if e.now {
			now = 1
		}
		n, err := s.number(ctx, q, s.enterStmt, name, e.Token, e.Owner[:], e.units, e.capacity, s.Holder, e.TTL.Microseconds(), now)
		if err != nil {
			return err
		}
		e.state = state(n)
		entered = entered || e.state != refused
	}
	if !entered {
		return errRefused // there is nothing to commit
	}
	return nil
}

// number runs a write that returns a number. 0 means that it returned none.
func (s *store) number(ctx context.Context, q core.Querier, stmt core.Stmt, args ...any) (n int64, err error) {
	if !s.Dialect.Tickets.ByInsertID {
		_, err = stmt.QueryRow(ctx, q, []any{&n}, args...)
		return n, err
	}
	r, err := stmt.Exec(ctx, q, args...)
	if err != nil || r.Affected == 0 {
		return 0, err
	}
	return r.InsertID, nil
}

// release deletes a ticket.
func (s *store) release(ctx context.Context, a keeper.Attempt) (f keeper.Freed, err error) {
	err = s.Retry(ctx, s.Ambiguous(&f.Ambiguous, func(q core.Querier) error {
		r, err := s.releaseStmt.Exec(ctx, q, a.Name, a.Token, a.Owner[:])
		f.Was = err == nil && r.Affected > 0
		return err
	}))
	return f, err
}

// releaseAll deletes tickets, and reports whether all of them existed.
func (s *store) releaseAll(ctx context.Context, batch []keeper.Abandoned) (all bool, err error) {
	names, owners := make([]any, len(batch)), make([]any, len(batch))
	for i, f := range batch {
		names[i], owners[i] = []byte(f.Name), f.Owner[:]
	}
	names, owners = keeper.Pad(names), keeper.Pad(owners)
	stmt := s.List("leave", s.Dialect.Tickets.Leave, 1, len(names))
	args := slices.Concat(names, owners)
	return all, s.OnConn(ctx, s.Dialect.Leases.ManyBefore, func(q core.Querier) error {
		r, err := stmt.Exec(ctx, q, args...)
		all = r.Affected == int64(len(batch))
		return err
	})
}

// confirm records that a ticket is granted, and renews its TTL.
func (s *store) confirm(ctx context.Context, a keeper.Attempt) (ok bool, err error) {
	err = s.Retry(ctx, func(q core.Querier) error {
		r, err := s.confirmStmt.Exec(ctx, q, a.Name, a.Token, a.Owner[:], a.TTL.Microseconds())
		ok = err == nil && r.Affected > 0
		return err
	})
	return ok, err
}

// view is a key's queue as a call without a ticket reads it.
type view struct {
	keeper.Answer // of the first ticket
	capacity      int
	all, living   int64 // units
}

// onlyExpired reports whether only expired tickets prevent the grant.
func (v view) onlyExpired(a ask) bool {
	if v.living == 0 {
		return v.all > 0
	}
	return v.living+int64(a.units) <= int64(a.capacity) && v.all+int64(a.units) > int64(a.capacity)
}

func (s *store) readQueue(ctx context.Context, name []byte) (v view, err error) {
	err = s.OnConn(ctx, "", func(q core.Querier) error {
		var left int64
		v = view{}
		_, err := s.readStmt.QueryRow(ctx, q, []any{&v.Holder, &v.Token, &v.capacity, &left, &v.all, &v.living}, name)
		v.Left = keeper.Micros(left)
		return err
	})
	return v, err
}

// standing describes what is ahead of a ticket in its queue.
type standing struct {
	left          time.Duration // until it expires
	confirmed     bool
	units, living int64
	ahead         int64
}

// standings reads what is ahead of the tickets. Tickets that no longer exist are missing in the
// result.
func (s *store) standings(ctx context.Context, batch []*keeper.Lease) (map[keeper.OwnerID]standing, error) {
	owners := make([]any, 0, len(batch))
	for _, l := range batch {
		owners = append(owners, l.Owner[:])
	}
	owners = keeper.Pad(owners)
	stmt := s.List("places", strings.ReplaceAll(s.Dialect.Tickets.Places, "{owners}", "{names}"), 1, len(owners))
	found := make(map[keeper.OwnerID]standing, len(batch))
	return found, s.OnConn(ctx, "", func(q core.Querier) error {
		clear(found)
		rows, err := stmt.Query(ctx, q, owners...)
		return keeper.Each(rows, err, func() error {
			var b []byte
			var p standing
			var left, confirmed int64
			if err := rows.Scan(&b, &left, &confirmed, &p.units, &p.living, &p.ahead); err != nil {
				return err
			}
			p.left, p.confirmed = keeper.Micros(left), confirmed == 1
			if len(b) == len(keeper.OwnerID{}) {
				found[keeper.OwnerID(b)] = p
			}
			return nil
		})
	})
}

// clearExpired deletes the expired tickets of a key, except those whose rows are locked, and
// returns how many it deleted.
func (s *store) clearExpired(ctx context.Context, name []byte) (n int64, err error) {
	var tokens []any
	err = s.OnConn(ctx, "", func(q core.Querier) error {
		tokens = nil
		rows, err := s.expired.Query(ctx, q, name)
		return keeper.Each(rows, err, func() error {
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
	tokens = keeper.Pad(tokens)
	stmt := s.List("clear", strings.ReplaceAll(s.Dialect.Tickets.Clear, "{tokens}", "{names}"), 2, len(tokens))
	return n, s.OnConn(ctx, s.Dialect.Leases.ManyBefore, func(q core.Querier) error {
		r, err := stmt.Exec(ctx, q, append([]any{name}, tokens...)...)
		n = r.Affected
		return err
	})
}
