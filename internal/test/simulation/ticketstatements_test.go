package simulation

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/dialect"
	"github.com/holdfast-go/holdfast/internal/dialect/lockstmt"
	"github.com/holdfast-go/holdfast/internal/lockname"
)

// The statements of tickets, one after the other, on a store and on an engine.

// ticketNames are the lines of the sequences, of one owner.
var ticketNames = []lockname.Name{nameOf(lockname.Fair, "a"), nameOf(lockname.Semaphore, "a"), nameOf(lockname.Semaphore, "b")}

// lineCapacity is that of all tickets but for some.
const lineCapacity = 3

// ticketStatements are those of an engine.
type ticketStatements struct {
	d                           *dialect.Dialect
	tables                      *lockstmt.Tables
	sql                         *lockstmt.TicketStatements
	anchor, look, confirm, dead core.Stmt
	tokens                      map[lockstmt.AttemptID]int64
}

func ticketsOf(d *dialect.Dialect, table func(string) string) *ticketStatements {
	t := lockstmt.New(d, table)
	return &ticketStatements{
		d: d, tables: t, sql: t.Tickets(), anchor: t.Compile("anchor", d.Tickets.Make), look: t.Compile("look in line", d.Tickets.Look),
		confirm: t.Compile("confirm", d.Tickets.Confirm), dead: t.Compile("dead", d.Tickets.Dead), tokens: map[lockstmt.AttemptID]int64{},
	}
}

// ticketKind is a statement, or a few.
type ticketKind int

const (
	entering ticketKind = iota
	entering2
	confirming
	releasing
	leaving
	renewing
	remains
	looking
	standing
	clearing
	anchors
	ticketKinds
)

// ticketStep is one step with what it is drawn with.
type ticketStep struct {
	kind            ticketKind
	attempts        []lockstmt.Attempt // of different lines
	units, capacity int
	now             bool
}

// ticketSequence draws steps. An attempt is used again, by those that confirm, release and renew it.
func ticketSequence(seed uint64, n int) []ticketStep {
	rng := rand.New(rand.NewPCG(seed, 10))
	var used []lockstmt.Attempt
	steps := make([]ticketStep, n)
	for i := range steps {
		s := ticketStep{kind: ticketKind(rng.IntN(int(ticketKinds))), units: 1 + rng.IntN(lineCapacity), capacity: lineCapacity + rng.IntN(12)/11, now: rng.IntN(4) == 0}
		for range 1 + rng.IntN(3) {
			a := lockstmt.NewAttempt(ticketNames[rng.IntN(len(ticketNames))], lockstmt.AttemptID{2, byte(i), byte(i >> 8), byte(len(s.attempts))}, hour)
			if len(used) > 0 && s.kind > entering2 && rng.IntN(6) > 0 {
				a = used[max(0, len(used)-1-rng.IntN(8))]
			}
			if !slices.ContainsFunc(s.attempts, func(o lockstmt.Attempt) bool { return o.Name == a.Name }) {
				s.attempts = append(s.attempts, a)
			}
		}
		if s.kind <= entering2 {
			used = append(used, s.attempts[0])
		}
		steps[i] = s
	}
	return steps
}

// run runs a step, and returns what its caller learns, but for tokens and times, which are each engine's own.
func (s *ticketStatements) run(ctx context.Context, q core.Querier, of ticketStep) (any, error) {
	a := of.attempts[0]
	a.Token = s.tokens[a.ID]
	terms := make([]lockstmt.TermID, len(of.attempts))
	rows, ids := make([]any, len(of.attempts)), make([]any, len(of.attempts))
	for i, a := range of.attempts {
		terms[i], rows[i], ids[i] = lockstmt.TermID{Name: a.Name, Attempt: a.ID}, a.Name.Row(), a.ID[:]
	}
	rows, ids = core.Pad(rows), core.Pad(ids)
	affected := func(stmt core.Stmt, args ...any) (any, error) {
		r, err := stmt.Exec(ctx, q, args...)
		return r.Affected, err
	}
	switch of.kind {
	case entering, entering2:
		return s.enter(ctx, q, a, of)
	case confirming:
		return affected(s.confirm, a.Name.Args(a.Token, a.ID[:], (2*hour).Microseconds())...)
	case releasing:
		was, _, err := s.sql.Release.Run(ctx, q, a, "c", "p")
		return was, err
	case leaving:
		return affected(s.tables.List("leave", s.d.Tickets.Leave, 1, len(rows)), slices.Concat([]any{a.Name.Owner}, rows, ids)...)
	case renewing: // what it returns depends on what the engine tells: the rows show what it did
		_, err := s.sql.Renew.Run(ctx, q, 2*hour, terms)
		return nil, err
	case remains:
		left, err := s.sql.Remaining.Run(ctx, q, terms)
		return slices.SortedFunc(maps.Keys(left), compareIDs), err
	case looking:
		var holder string
		var token, capacity, left, all, live int64
		found, err := s.look.QueryRow(ctx, q, []any{&holder, &token, &capacity, &left, &all, &live}, a.Name.Args()...)
		return fmt.Sprint(found, holder, capacity, left > 0, all, live), err
	case standing:
		return s.places(ctx, q, a.Name.Owner, ids)
	case clearing:
		return s.clear(ctx, q, a.Name)
	default:
		state, there, err := s.tables.Look().Run(ctx, q, a.Name)
		return fmt.Sprint(there, string(state.Attempt), state.Left), err
	}
}

// enter makes the row of a key, unless it is there, and lets a ticket enter.
func (s *ticketStatements) enter(ctx context.Context, q core.Querier, a lockstmt.Attempt, of ticketStep) (any, error) {
	for {
		token, err := s.sql.Draw.Run(ctx, q, a.Name.Args(1+len(of.attempts))...)
		if err != nil {
			return nil, err
		}
		if token > 0 {
			a.Token = token
			break
		}
		if _, err := s.anchor.Exec(ctx, q, a.Name.Args()...); err != nil {
			return nil, err
		}
	}
	entered, err := s.sql.Enter.Run(ctx, q, a.Name, a, of.units, of.capacity, "h", of.now)
	s.tokens[a.ID] = a.Token
	return entered, err
}

func (s *ticketStatements) places(ctx context.Context, q core.Querier, owner string, ids []any) (any, error) {
	stmt := s.tables.List("places", strings.ReplaceAll(s.d.Tickets.Places, "{attempts}", "{names}"), 1, len(ids))
	rows, err := stmt.Query(ctx, q, append([]any{owner}, ids...)...)
	if err != nil {
		return nil, err
	}
	list, err := core.Collect(rows, func(row core.Row) (string, error) {
		var attempt, first []byte
		var left, granted, before, live, ahead int64
		err := row.Scan(&attempt, &left, &granted, &before, &live, &ahead, &first)
		return fmt.Sprint(string(attempt), left > 0, before, live, ahead, string(first)), err
	})
	slices.Sort(list)
	return list, err
}

func (s *ticketStatements) clear(ctx context.Context, q core.Querier, n lockname.Name) (any, error) {
	rows, err := s.dead.Query(ctx, q, n.Args()...)
	if err != nil {
		return nil, err
	}
	tokens, err := core.Collect(rows, core.Value[int64])
	if err != nil || len(tokens) == 0 {
		return int64(0), err
	}
	args := n.Args()
	for _, token := range core.Pad(tokens) {
		args = append(args, token)
	}
	r, err := s.tables.List("clear", strings.ReplaceAll(s.d.Tickets.Clear, "{tokens}", "{names}"), 2, len(args)-2).Exec(ctx, q, args...)
	return r.Affected, err
}
