package sqllock

import (
	"context"
	"slices"

	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/dialect/lockstmt"
	"github.com/holdfast-go/holdfast/internal/lockname"
	"github.com/holdfast-go/holdfast/sqllock/internal/keeper"
)

// takeMany grants those of several locks that are free. After an error each attempt is sent
// again alone, and finds its own term if it has one.
func (s *statements) takeMany(ctx context.Context, all []keeper.Attempt, gone func(i int) bool, answer func(i int, v keeper.AttemptResult)) {
	for _, part := range lockname.ByOwner(indices(all), func(i int) lockname.Name { return all[i].Name }) {
		var made, taken []int
		for _, i := range part {
			if s.sql.MakeFirst(s.known, all[i].Name) {
				made = append(made, i)
			} else {
				taken = append(taken, i)
			}
		}
		there := s.grantMany(ctx, s.sql.MakeMany, all, made, gone, answer)
		s.grantMany(ctx, s.sql.TakeMany, all, append(taken, there...), gone, answer)
	}
}

func indices[T any](list []T) []int {
	all := make([]int, len(list))
	for i := range all {
		all[i] = i
	}
	return all
}

// grantMany returns the attempts whose rows exist and that were not granted. It sends no attempt whose call is gone: an
// earlier statement may have granted it, and then it was released and would be granted again, to nobody.
func (s *statements) grantMany(ctx context.Context, stmt lockstmt.GrantMany, all []keeper.Attempt, of []int, gone func(i int) bool, answer func(i int, v keeper.AttemptResult)) (there []int) {
	if len(of) == 0 {
		return nil
	}
	attempts := make([]keeper.Attempt, 0, len(of))
	var tokens map[keeper.AttemptID]int64
	var wrote, ambiguous bool
	err := s.OnMany(ctx, s.Ambiguous(&ambiguous, func(q core.Querier) error {
		of = slices.DeleteFunc(of, gone)
		attempts = attempts[:0]
		for _, i := range of {
			attempts = append(attempts, all[i])
		}
		if len(attempts) == 0 {
			return nil
		}
		found, sent, err := stmt.Run(ctx, q, attempts)
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
		switch token := tokens[all[i].ID]; {
		case token > 0 || ambiguous:
			v := keeper.AttemptResult{Won: token > 0, Ambiguous: ambiguous}
			v.Token = token
			answer(i, v)
		case err == nil:
			there = append(there, i)
		}
	}
	return there
}

// freeMany ends several terms, except those whose rows are locked.
func (s *statements) freeMany(ctx context.Context, all []freeing, _ func(i int) bool, answer func(i int, f keeper.Freed)) {
	for _, part := range lockname.ByOwner(indices(all), func(i int) lockname.Name { return all[i].attempt.Name }) {
		s.freeSome(ctx, all, part, answer)
	}
}

// freeSome ends several terms of one owner.
func (s *statements) freeSome(ctx context.Context, all []freeing, of []int, answer func(i int, f keeper.Freed)) {
	rows := make([]lockstmt.TermID, len(of))
	for k, i := range of {
		rows[k] = lockstmt.TermID{Name: all[i].attempt.Name, Attempt: all[i].attempt.ID, Token: all[i].token}
	}
	var freed map[int]keeper.Freed
	ambiguous := false
	err := s.OnMany(ctx, s.Ambiguous(&ambiguous, func(q core.Querier) error {
		outcomes, wrote, err := s.sql.ReleaseMany.Run(ctx, q, rows, s.Self, ambiguous)
		freed, ambiguous = outcomes, ambiguous || wrote && err != nil
		return err
	}))
	for k, i := range of {
		switch f, found := freed[k]; {
		case err == nil && found:
			answer(i, f)
		case err != nil && ambiguous:
			answer(i, keeper.Freed{Ambiguous: true})
		}
	}
}
