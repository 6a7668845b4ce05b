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
	"github.com/holdfast-go/holdfast/internal/dialect"
	"github.com/holdfast-go/holdfast/internal/dialect/lockstmt"
	"github.com/holdfast-go/holdfast/internal/lockname"
	"github.com/holdfast-go/holdfast/sqllock/internal/keeper"
)

// statements are those of the tickets.
// The order of its statements is that of internal/test/model/tickets.pml.
type statements struct {
	*keeper.Statements

	sql *lockstmt.TicketStatements

	anchor, readStmt, confirmStmt, expired core.Stmt
}

func newStatements(k *keeper.Statements) *statements {
	c := &k.Dialect.Tickets
	return &statements{
		Statements: k, sql: k.Tickets(), anchor: k.Compile("anchor", c.Make),
		readStmt: k.Compile("look in line", c.Look), confirmStmt: k.Compile("confirm", c.Confirm), expired: k.Compile("dead", c.Dead),
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
func (s *statements) enter(ctx context.Context, name lockname.Name, batch []entry) error {
	for {
		err := s.InTx(ctx, core.TxOptions{Isolation: sql.LevelReadCommitted, LockTimeout: core.DefaultLockTimeout, FirstSets: true},
			func(ctx context.Context, q core.Querier) error { return s.enterOn(ctx, q, name, batch) })
		switch {
		case errors.Is(err, errNoAnchor):
			err := s.Retry(ctx, func(q core.Querier) error {
				_, err := s.anchor.Exec(ctx, q, name.Args()...)
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

func (s *statements) enterOn(ctx context.Context, q core.Querier, name lockname.Name, batch []entry) error {
	last, err := s.sql.Draw.Run(ctx, q, name.Args(len(batch))...)
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
		n, err := s.sql.Enter.Run(ctx, q, name, e.Attempt, e.units, e.capacity, s.Holder, e.now)
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

// release deletes a ticket. next are the tickets behind it, if the engine tells.
func (s *statements) release(ctx context.Context, a keeper.Attempt, channel, payload string) (f keeper.Freed, next []lockstmt.Next, err error) {
	err = s.Retry(ctx, s.Ambiguous(&f.Ambiguous, func(q core.Querier) error {
		f.Was, next, err = s.sql.Release.Run(ctx, q, a, channel, payload)
		return err
	}))
	return f, next, err
}

// releaseAll deletes tickets of one owner, and reports whether all of them existed.
func (s *statements) releaseAll(ctx context.Context, batch []keeper.Abandoned) (all bool, err error) {
	names, attempts := make([]any, len(batch)), make([]any, len(batch))
	for i, f := range batch {
		names[i], attempts[i] = f.Name.Row(), f.ID[:]
	}
	names, attempts = core.Pad(names), core.Pad(attempts)
	stmt := s.List("leave", s.Dialect.Tickets.Leave, 1, len(names))
	args := slices.Concat([]any{batch[0].Name.Owner}, names, attempts)
	return all, s.OnMany(ctx, func(q core.Querier) error {
		r, err := stmt.Exec(ctx, q, args...)
		all = r.Affected == int64(len(batch))
		return err
	})
}

// confirm records that a ticket is granted, and renews its TTL.
func (s *statements) confirm(ctx context.Context, a keeper.Attempt) (ok bool, err error) {
	err = s.Retry(ctx, func(q core.Querier) error {
		r, err := s.confirmStmt.Exec(ctx, q, a.Name.Args(a.Token, a.ID[:], a.TTL.Microseconds())...)
		ok = err == nil && r.Affected > 0
		return err
	})
	return ok, err
}

// view is a key's queue as a call without a ticket reads it.
type view struct {
	keeper.AttemptResult // of the first ticket
	capacity             int
	all, living          int64 // units
}

// onlyExpired reports whether only expired tickets prevent the grant.
func (v view) onlyExpired(a ask) bool {
	if v.living == 0 {
		return v.all > 0
	}
	return v.living+int64(a.units) <= int64(a.capacity) && v.all+int64(a.units) > int64(a.capacity)
}

func (s *statements) readQueue(ctx context.Context, name lockname.Name) (v view, err error) {
	err = s.OnConn(ctx, func(q core.Querier) error {
		var left int64
		v = view{}
		_, err := s.readStmt.QueryRow(ctx, q, []any{&v.Holder, &v.Token, &v.capacity, &left, &v.all, &v.living}, name.Args()...)
		v.Left = keeper.Micros(left)
		return err
	})
	return v, err
}

// standing describes what is ahead of a ticket in its queue.
type standing struct {
	attempt       []byte
	left          time.Duration // until it expires
	confirmed     bool
	units, living int64
	ahead         int64
	first         []byte // the attempt of the first ticket
}

// standings reads what is ahead of the tickets of one owner. Tickets that no longer exist are missing
// in the result.
func (s *statements) standings(ctx context.Context, batch []*keeper.Lease) (map[keeper.AttemptID]standing, error) {
	attempts := make([]any, 0, len(batch))
	for _, l := range batch {
		attempts = append(attempts, l.Attempt().ID[:])
	}
	attempts = core.Pad(attempts)
	args := append([]any{batch[0].Attempt().Name.Owner}, attempts...)
	stmt := s.List("places", strings.ReplaceAll(s.Dialect.Tickets.Places, "{attempts}", "{names}"), 1, len(attempts))
	var found map[keeper.AttemptID]standing
	err := s.OnConn(ctx, func(q core.Querier) error {
		rows, err := stmt.Query(ctx, q, args...)
		if err != nil {
			return err
		}
		list, err := core.Collect(rows, scanStanding)
		found = make(map[keeper.AttemptID]standing, len(list))
		for _, p := range list {
			if len(p.attempt) == len(keeper.AttemptID{}) {
				found[keeper.AttemptID(p.attempt)] = p
			}
		}
		return err
	})
	return found, err
}

func scanStanding(row core.Row) (p standing, err error) {
	var left, confirmed int64
	err = row.Scan(&p.attempt, &left, &confirmed, &p.units, &p.living, &p.ahead, &p.first)
	p.left, p.confirmed = keeper.Micros(left), confirmed == 1
	return p, err
}

// clearExpired deletes the expired tickets of a key, except those whose rows are locked, and
// returns how many it deleted.
func (s *statements) clearExpired(ctx context.Context, name lockname.Name) (n int64, err error) {
	var tokens []int64
	err = s.OnConn(ctx, func(q core.Querier) error {
		rows, err := s.expired.Query(ctx, q, name.Args()...)
		if err != nil {
			return err
		}
		tokens, err = core.Collect(rows, core.Value[int64])
		return err
	})
	if err != nil || len(tokens) == 0 {
		return 0, err
	}
	args := name.Args()
	for _, token := range core.Pad(tokens) {
		args = append(args, token)
	}
	stmt := s.List("clear", strings.ReplaceAll(s.Dialect.Tickets.Clear, "{tokens}", "{names}"), 2, len(args)-2)
	err = s.OnMany(ctx, func(q core.Querier) error {
		r, err := stmt.Exec(ctx, q, args...)
		n = r.Affected
		return err
	})
	if s.Dialect.Classify(err) == dialect.Busy { // an engine that does not skip locked rows
		return 0, nil
	}
	return n, err
}
