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
}

// freed is what became of it: whether the term was the row's, and whether other
// processes are to be told. Where it was not, doubt says that a run whose answer
// was lost may have ended it.
type freed struct{ was, doubt, tell bool }

// manyStmts are the statements for several leases at once, by how many.
type manyStmts struct {
	make, take, free map[int]core.Stmt
}

// compileMany is empty where the engine has no such statements.
func compileMany(s *store) (m manyStmts) {
	l := &s.dialect.Leases
	if l.TakeMany == "" {
		return m
	}
	m = manyStmts{map[int]core.Stmt{}, map[int]core.Stmt{}, map[int]core.Stmt{}}
	for n := 1; n <= gatherMost; n *= 2 {
		rows := make([]string, n)
		names := make([]string, n)
		for i := range n {
			rows[i] = strings.NewReplacer("{name}", fmt.Sprint("$", 2+i), "{owner}", fmt.Sprint("$", 2+n+i), "{ttl}", fmt.Sprint("$", 2+2*n+i)).Replace(l.ManyRow)
			names[i] = fmt.Sprint("$", 2+i)
		}
		r := strings.NewReplacer("{rows}", strings.Join(rows, ", "), "{names}", strings.Join(names, ", "))
		m.make[n] = s.dialect.Compile("locks.make", s.texts(r.Replace(l.MakeMany)))
		m.take[n] = s.dialect.Compile("locks.take", s.texts(r.Replace(l.TakeMany)))
		m.free[n] = s.list("release", l.ReleaseMany, 2, n)
	}
	return m
}

// takeMany grants what is free of several attempts. After an error each is sent
// again alone, and finds its own term if it has one.
func (s *store) takeMany(ctx context.Context, all []attempt, tell func(i int, v verdict)) {
	var made, taken []int
	for i, a := range all {
		if s.seen.has(a.name) {
			taken = append(taken, i)
		} else {
			made = append(made, i)
		}
	}
	s.grantMany(ctx, s.many.make, all, made, tell)
	s.grantMany(ctx, s.many.take, all, taken, tell)
}

func (s *store) grantMany(ctx context.Context, stmts map[int]core.Stmt, all []attempt, of []int, tell func(i int, v verdict)) {
	if len(of) == 0 {
		return
	}
	padded := pad(of)
	args := make([]any, 0, 1+3*len(padded))
	args = append(args, s.holder)
	for _, i := range padded {
		args = append(args, all[i].name)
	}
	for _, i := range padded {
		args = append(args, all[i].owner[:])
	}
	for _, i := range padded {
		args = append(args, all[i].ttl.Microseconds())
	}
	tokens, doubt, err := s.owners(ctx, stmts[len(padded)], args...)
	for _, i := range of {
		if err == nil {
			s.seen.add(all[i].name) // it is there now, whoever made it
		}
		if token := tokens[all[i].owner]; token > 0 || doubt {
			tell(i, verdict{won: token > 0, token: token, doubt: doubt})
		}
	}
}

// freeMany ends several terms, but for those whose rows are locked.
func (s *store) freeMany(ctx context.Context, all []freeing, tell func(i int, f freed)) {
	padded := pad(all)
	args := make([]any, 0, 1+2*len(padded))
	args = append(args, s.self[:])
	for _, f := range padded {
		args = append(args, f.name)
	}
	for _, f := range padded {
		args = append(args, f.owner[:])
	}
	waiters, doubt, _ := s.owners(ctx, s.many.free[len(padded)], args...)
	for i, f := range all {
		if n, ended := waiters[f.owner]; ended || doubt {
			tell(i, freed{was: ended, doubt: doubt, tell: n > 0})
		}
	}
}

// wait waits for statements that nobody waits for any more.
func (s *store) wait() {
	s.taking.wait()
	s.ending.wait()
}
