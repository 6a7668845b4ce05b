package sqllock

import (
	"context"

	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/dialect/lockstmt"
	"github.com/holdfast-go/holdfast/sqllock/internal/keeper"
)

// takeMany grants those of several locks that are free. After an error each attempt is sent
// again alone, and finds its own term if it has one.
func (s *store) takeMany(ctx context.Context, all []keeper.Attempt, answer func(i int, v keeper.Answer)) {
	var made, taken []int
	for i, a := range all {
		if s.sql.MakeFirst(s.known, a.Name) {
			made = append(made, i)
		} else {
			taken = append(taken, i)
		}
	}
	there := s.grantMany(ctx, s.sql.MakeMany, all, made, answer)
	s.grantMany(ctx, s.sql.TakeMany, all, append(taken, there...), answer)
}

// grantMany returns the attempts whose rows exist and that were not granted.
func (s *store) grantMany(ctx context.Context, stmt lockstmt.GrantMany, all []keeper.Attempt, of []int, answer func(i int, v keeper.Answer)) (there []int) {
	if len(of) == 0 {
		return nil
	}
	attempts := make([]keeper.Attempt, len(of))
	for k, i := range of {
		attempts[k] = all[i]
	}
	var tokens map[keeper.OwnerID]int64
	var wrote, ambiguous bool
	err := s.OnMany(ctx, s.Ambiguous(&ambiguous, func(q core.Querier) error {
		found, sent, err := stmt.Run(ctx, q, attempts, s.Holder)
		tokens, wrote = found, wrote || sent
		return err
	}))
	if err != nil { // rows that were read may not be committed, and rows that were not read may be
		tokens, ambiguous = nil, ambiguous || wrote
	}
	for _, i := range of {
		if err == nil {
			s.known.Add(all[i].Name) // the row exists now
		}
		switch token := tokens[all[i].Owner]; {
		case token > 0 || ambiguous:
			v := keeper.Answer{Won: token > 0, Ambiguous: ambiguous}
			v.Token = token
			answer(i, v)
		case err == nil:
			there = append(there, i)
		}
	}
	return there
}

// freeMany ends several terms, except those whose rows are locked.
func (s *store) freeMany(ctx context.Context, all []freeing, answer func(i int, f keeper.Freed)) {
	rows := make([]lockstmt.Row, len(all))
	for i, t := range all {
		rows[i] = lockstmt.Row{Name: t.name, Owner: t.owner, Token: t.token}
	}
	var freed map[int]keeper.Freed
	ambiguous := false
	err := s.OnMany(ctx, s.Ambiguous(&ambiguous, func(q core.Querier) error {
		outcomes, wrote, err := s.sql.ReleaseMany.Run(ctx, q, rows, s.Self, ambiguous)
		freed, ambiguous = outcomes, ambiguous || wrote && err != nil
		return err
	}))
	for i := range all {
		switch f, found := freed[i]; {
		case err == nil && found:
			answer(i, f)
		case err != nil && ambiguous:
			answer(i, keeper.Freed{Ambiguous: true})
		}
	}
}
