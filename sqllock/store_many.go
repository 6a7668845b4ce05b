package sqllock

import (
	"context"
	"fmt"
	"strings"

	"github.com/holdfast-go/holdfast/internal/core"
)

// freeing is a term that is to end.
type freeing struct {
	name  []byte
	owner owner
	token int64
}

// freed is what became of it: whether the term was the row's, and whether other
// processes are to be told. Where it was not, doubt says that a run whose answer
// was lost may have ended it.
type freed struct{ was, doubt, tell bool }

// manyStmts are the statements for several leases at once, by how many.
type manyStmts struct {
	make, take, granted, free, freed map[int]core.Stmt
}

func compileMany(s *store) manyStmts {
	l := &s.dialect.Leases
	m := manyStmts{map[int]core.Stmt{}, map[int]core.Stmt{}, map[int]core.Stmt{}, map[int]core.Stmt{}, map[int]core.Stmt{}}
	for n := 1; n <= gatherMost; n *= 2 {
		rows := make([]string, n)
		names := make([]string, n)
		for i := range n {
			rows[i] = strings.NewReplacer("{name}", fmt.Sprint("$", 2+i), "{owner}", fmt.Sprint("$", 2+n+i), "{ttl}", fmt.Sprint("$", 2+2*n+i)).Replace(l.ManyRow)
			names[i] = fmt.Sprint("$", 2+i)
		}
		r := strings.NewReplacer("{rows}", strings.Join(rows, l.ManyJoin), "{names}", strings.Join(names, ", "))
		m.make[n] = s.dialect.Compile("locks.make", s.texts(r.Replace(l.MakeMany)))
		m.take[n] = s.dialect.Compile("locks.take", s.texts(r.Replace(l.TakeMany)))
		m.granted[n] = s.list("granted", l.Granted, 1, n)
		m.free[n] = s.list("release", strings.ReplaceAll(l.ReleaseMany, "{waiter}", fmt.Sprint("$", 1+2*n)), 1, n)
		m.freed[n] = s.list("released", l.Released, 1, n)
	}
	return m
}

// takeMany grants what is free of several attempts. After an error each is sent
// again alone, and finds its own term if it has one.
func (s *store) takeMany(ctx context.Context, all []attempt, tell func(i int, v verdict)) {
	var made, taken []int
	for i, a := range all {
		if s.dialect.Leases.MakeMany == "" || s.seen.has(a.name) {
			taken = append(taken, i)
		} else {
			made = append(made, i)
		}
	}
	there := s.grantMany(ctx, s.many.make, all, made, tell)
	s.grantMany(ctx, s.many.take, all, append(taken, there...), tell)
}

// grantMany returns those whose rows are there, and were not granted.
func (s *store) grantMany(ctx context.Context, stmts map[int]core.Stmt, all []attempt, of []int, tell func(i int, v verdict)) (there []int) {
	if len(of) == 0 {
		return nil
	}
	padded := pad(of)
	n := len(padded)
	args := make([]any, 1+3*n)
	args[0] = s.holder
	for k, i := range padded {
		a := &all[i]
		args[1+k], args[1+n+k], args[1+2*n+k] = a.name, a.owner[:], a.ttl.Microseconds()
	}
	var tokens map[owner]int64
	var wrote, doubt bool
	err := s.onConn(ctx, s.dialect.Leases.ManyBefore, s.doubting(&doubt, func(q core.Querier) error {
		return s.bounded(ctx, q, func() (err error) {
			read, from := stmts[n], args
			if granted := s.many.granted[n]; granted.Text != "" {
				if _, err := stmts[n].Exec(ctx, q, args...); err != nil {
					return err
				}
				wrote = true
				read, from = granted, args[1:1+2*n]
			}
			tokens, err = ownersOn(ctx, q, read, from...)
			return err
		})
	}))
	if err != nil { // what was read may not have been committed, and what was not read may have been
		tokens, doubt = nil, doubt || wrote
	}
	for _, i := range of {
		if err == nil {
			s.seen.add(all[i].name) // it is there now, whoever made it
		}
		switch token := tokens[all[i].owner]; {
		case token > 0 || doubt:
			tell(i, verdict{won: token > 0, token: token, doubt: doubt})
		case err == nil:
			there = append(there, i)
		}
	}
	return there
}

// freeMany ends several terms, but for those whose rows are locked.
func (s *store) freeMany(ctx context.Context, all []freeing, tell func(i int, f freed)) {
	padded := pad(all)
	n := len(padded)
	args := make([]any, 2*n, 2*n+1)
	for k := range padded {
		args[k], args[n+k] = padded[k].name, padded[k].owner[:]
	}
	if s.dialect.Leases.ReleaseTells {
		waiters, doubt, _ := s.owners(ctx, s.many.free[n], append(args, s.self[:])...)
		for i, f := range all {
			if n, ended := waiters[f.owner]; ended || doubt {
				tell(i, freed{was: ended, doubt: doubt, tell: n > 0})
			}
		}
		return
	}
	var now map[string]int64 // what became of the rows, where not all were ended
	var ended int64
	var doubt bool
	err := s.onConn(ctx, s.dialect.Leases.ManyBefore, s.doubting(&doubt, func(q core.Querier) error {
		now = nil
		r, err := s.many.free[n].Exec(ctx, q, args...)
		if err != nil || r.Affected == int64(len(all)) {
			return err
		}
		ended, now = r.Affected, map[string]int64{}
		err = rowsOn(ctx, q, s.many.freed[n], func(name []byte, n int64) { now[string(name)] = n }, args...)
		doubt = doubt || err != nil
		return err
	}))
	if err != nil && !doubt {
		return
	}
	var gone []int // another's by now: if none of them was ended here, they were lost before
	for i, f := range all {
		switch n, there := now[string(f.name)]; {
		case err != nil:
			tell(i, freed{doubt: true})
		case now == nil, there && n == f.token:
			tell(i, freed{was: true, doubt: doubt})
			ended--
		case there && n == 0: // locked
		default:
			gone = append(gone, i)
		}
	}
	for _, i := range gone {
		tell(i, freed{doubt: doubt || ended != 0})
	}
}

// wait waits for statements that nobody waits for any more.
func (s *store) wait() {
	s.taking.wait()
	s.ending.wait()
}
