package sqllock

import (
	"context"
	"fmt"
	"strings"

	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/sqllock/internal/batcher"
	"github.com/holdfast-go/holdfast/sqllock/internal/keeper"
)

// batchStmts are the statements for several leases at once, by batch size.
type batchStmts struct {
	make, take, granted, free, freed map[int]core.Stmt
}

func compileBatches(s *store) batchStmts {
	l := &s.Dialect.Leases
	m := batchStmts{map[int]core.Stmt{}, map[int]core.Stmt{}, map[int]core.Stmt{}, map[int]core.Stmt{}, map[int]core.Stmt{}}
	for n := 1; n <= batcher.Max; n *= 2 {
		rows := make([]string, n)
		names := make([]string, n)
		for i := range n {
			rows[i] = strings.NewReplacer("{name}", fmt.Sprint("$", 2+i), "{owner}", fmt.Sprint("$", 2+n+i), "{ttl}", fmt.Sprint("$", 2+2*n+i)).Replace(l.ManyRow)
			names[i] = fmt.Sprint("$", 2+i)
		}
		r := strings.NewReplacer("{rows}", strings.Join(rows, l.ManyJoin), "{names}", strings.Join(names, ", "))
		m.make[n] = s.Compile("make", r.Replace(l.MakeMany))
		m.take[n] = s.Compile("take", r.Replace(l.TakeMany))
		m.granted[n] = s.List("granted", l.Granted, 1, n)
		m.free[n] = s.List("release", strings.ReplaceAll(l.ReleaseMany, "{waiter}", fmt.Sprint("$", 1+2*n)), 1, n)
		m.freed[n] = s.List("released", l.Released, 1, n)
	}
	return m
}

// takeMany grants those of several locks that are free. After an error each attempt is sent
// again alone, and finds its own term if it has one.
func (s *store) takeMany(ctx context.Context, all []keeper.Attempt, answer func(i int, v keeper.Answer)) {
	var made, taken []int
	for i, a := range all {
		if s.Dialect.Leases.MakeMany == "" || s.known.Has(a.Name) {
			taken = append(taken, i)
		} else {
			made = append(made, i)
		}
	}
	there := s.grantMany(ctx, s.many.make, all, made, answer)
	s.grantMany(ctx, s.many.take, all, append(taken, there...), answer)
}

// grantMany returns the attempts whose rows exist and that were not granted.
func (s *store) grantMany(ctx context.Context, stmts map[int]core.Stmt, all []keeper.Attempt, of []int, answer func(i int, v keeper.Answer)) (there []int) {
	if len(of) == 0 {
		return nil
	}
	padded := keeper.Pad(of)
	n := len(padded)
	args := make([]any, 1+3*n)
	args[0] = s.Holder
	for k, i := range padded {
		a := &all[i]
		args[1+k], args[1+n+k], args[1+2*n+k] = a.Name, a.Owner[:], a.TTL.Microseconds()
	}
	var tokens map[keeper.OwnerID]int64
	var wrote, ambiguous bool
	err := s.OnConn(ctx, s.Dialect.Leases.ManyBefore, s.Ambiguous(&ambiguous, func(q core.Querier) error {
		return s.bounded(ctx, q, func() (err error) {
			read, from := stmts[n], args
			if granted := s.many.granted[n]; granted.Text != "" {
				if _, err := stmts[n].Exec(ctx, q, args...); err != nil {
					return err
				}
				wrote = true
				read, from = granted, args[1:1+2*n]
			}
			tokens, err = keeper.OwnersOn(ctx, q, read, from...)
			return err
		})
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
			answer(i, keeper.Answer{Won: token > 0, Token: token, Ambiguous: ambiguous})
		case err == nil:
			there = append(there, i)
		}
	}
	return there
}

// freeMany ends several terms, except those whose rows are locked.
func (s *store) freeMany(ctx context.Context, all []freeing, answer func(i int, f keeper.Freed)) {
	padded := keeper.Pad(all)
	n := len(padded)
	args := make([]any, 2*n, 2*n+1)
	for k := range padded {
		args[k], args[n+k] = padded[k].name, padded[k].owner[:]
	}
	if s.Dialect.Leases.ReleaseTells {
		waiters, ambiguous, _ := s.Owners(ctx, s.many.free[n], append(args, s.Self[:])...)
		for i, f := range all {
			if n, ended := waiters[f.owner]; ended || ambiguous {
				answer(i, keeper.Freed{Was: ended, Ambiguous: ambiguous, Notify: n > 0})
			}
		}
		return
	}
	var now map[string]int64 // the state of the rows, if not all were ended
	var ended int64
	var ambiguous bool
	err := s.OnConn(ctx, s.Dialect.Leases.ManyBefore, s.Ambiguous(&ambiguous, func(q core.Querier) error {
		now = nil
		r, err := s.many.free[n].Exec(ctx, q, args...)
		if err != nil || r.Affected == int64(len(all)) {
			return err
		}
		ended, now = r.Affected, map[string]int64{}
		err = keeper.RowsOn(ctx, q, s.many.freed[n], func(name []byte, n int64) { now[string(name)] = n }, args...)
		ambiguous = ambiguous || err != nil
		return err
	}))
	if err != nil && !ambiguous {
		return
	}
	var gone []int // rows that now belong to others: if no term was ended here, all were lost before; if as many were, none
	for i, f := range all {
		switch n, there := now[string(f.name)]; {
		case err != nil:
			answer(i, keeper.Freed{Ambiguous: true})
		case now == nil, there && n == f.token:
			answer(i, keeper.Freed{Was: true, Ambiguous: ambiguous})
			ended--
		case there && n == 0: // locked
		default:
			gone = append(gone, i)
		}
	}
	for _, i := range gone {
		answer(i, keeper.Freed{Was: !ambiguous && ended == int64(len(gone)), Ambiguous: ambiguous || ended != 0})
	}
}

// wait waits for the running batches.
func (s *store) wait() {
	s.taking.Wait()
	s.ending.Wait()
}
