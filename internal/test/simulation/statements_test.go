package simulation

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/dialect"
	"github.com/holdfast-go/holdfast/internal/dialect/lockstmt"
	"github.com/holdfast-go/holdfast/internal/lockname"
)

// The statements of leases, one after the other, on a store and on an engine.

const (
	peers = 3 // processes
	hour  = time.Hour
)

func quoted(name string) string { return `"holdfast_` + name + `"` }

// names are the locks of the sequences, of one owner.
var names = func() (list []lockname.Name) {
	for _, key := range []string{"a", "b", "c"} {
		list = append(list, nameOf(lockname.Lease, key))
	}
	return list
}()

func nameOf(k lockname.Kind, key string) lockname.Name {
	n, err := lockname.Of(k, core.Owner{ID: "o"}, key)
	if err != nil {
		panic(err)
	}
	return n
}

// statements are those of an engine, by process.
type statements struct {
	d      *dialect.Dialect
	tables *lockstmt.Tables
	leases [peers]*lockstmt.LeaseStatements
	known  map[lockname.Name]bool
}

func statementsOf(d *dialect.Dialect, table func(string) string) *statements {
	s := &statements{d: d, tables: lockstmt.New(d, table), known: map[lockname.Name]bool{}}
	for p := range s.leases {
		s.leases[p] = s.tables.Leases(4, fmt.Sprint("p", p), selfOf(p))
	}
	return s
}

func selfOf(process int) lockstmt.AttemptID { return lockstmt.AttemptID{byte(process), 0xff} }

// step is one statement with what it is drawn with.
type step struct {
	kind     int
	process  int
	attempts []lockstmt.Attempt
	from     lockstmt.AttemptID
}

const kinds = 11

// sequence draws steps. An attempt is used again, by those that release it, renew it, or send it twice.
func sequence(seed uint64, n int) []step {
	rng := rand.New(rand.NewPCG(seed, 7))
	var used []lockstmt.Attempt
	steps := make([]step, n)
	for i := range steps {
		s := step{kind: rng.IntN(kinds), process: rng.IntN(peers)}
		for range 1 + rng.IntN(3) {
			a := lockstmt.NewAttempt(names[rng.IntN(len(names))], lockstmt.AttemptID{byte(s.process), 1, byte(len(used)), byte(len(used) >> 8), byte(len(s.attempts))}, hour)
			if len(used) > 0 && s.kind != 5 && rng.IntN(3) > 0 { // a batch sends an attempt once
				a = used[max(0, len(used)-1-rng.IntN(8))]
			}
			if !slices.ContainsFunc(s.attempts, func(o lockstmt.Attempt) bool { return o.Name == a.Name }) {
				s.attempts = append(s.attempts, a)
			}
		}
		used = append(used, s.attempts...)
		s.from = used[max(0, len(used)-1-rng.IntN(8))].ID
		steps[i] = s
	}
	return steps
}

// run runs a step, and returns what its caller learns, but for tokens and times, which are each engine's own.
func (s *statements) run(ctx context.Context, q core.Querier, of step) (any, error) {
	l, first := s.leases[of.process], of.attempts[0]
	terms := make([]lockstmt.TermID, len(of.attempts))
	locks := make([]lockname.Name, len(of.attempts))
	for i, a := range of.attempts {
		terms[i], locks[i] = lockstmt.TermID{Name: a.Name, Attempt: a.ID}, a.Name
	}
	switch of.kind {
	case 0, 1, 2:
		return s.take(ctx, q, l, first)
	case 3:
		outcome, _, err := l.HandOver.RunFrom(ctx, q, of.from, first)
		return outcome == lockstmt.Granted, err
	case 4:
		f, err := l.Release.Run(ctx, q, first)
		return f.Was, err
	case 5:
		return s.takeMany(ctx, q, l, of.attempts)
	case 6: // what it returns depends on what the engine tells: the rows show what it did
		_, _, err := l.ReleaseMany.Run(ctx, q, terms, selfOf(of.process), false)
		return nil, err
	case 7: // likewise
		_, err := l.Renew.Run(ctx, q, 2*hour, terms)
		return nil, err
	case 8:
		left, err := l.Remaining.Run(ctx, q, terms)
		return slices.SortedFunc(maps.Keys(left), compareIDs), err
	case 9:
		states, err := l.Waits.Run(ctx, q, locks)
		held := map[lockname.Name]string{}
		for n, state := range states {
			held[n] = fmt.Sprintf("%x %v", state.Attempt, state.Left > 0)
		}
		return held, err
	default:
		if err := s.announce(ctx, q, of.process, locks[0]); err != nil {
			return nil, err
		}
		return l.Rivals.Run(ctx, q, locks, selfOf((of.process+1)%peers))
	}
}

func compareIDs(a, b lockstmt.AttemptID) int { return bytes.Compare(a[:], b[:]) }

// Has reports whether the row of a lock is known to exist.
func (s *statements) Has(n lockname.Name) bool { return s.known[n] }

// take makes the row, or takes it.
func (s *statements) take(ctx context.Context, q core.Querier, l *lockstmt.LeaseStatements, a lockstmt.Attempt) (bool, error) {
	if l.LookFirst {
		state, _, err := s.tables.Look().Run(ctx, q, a.Name)
		if err != nil || state.Left > 0 && !bytes.Equal(state.Attempt, a.ID[:]) {
			return false, err
		}
	}
	if l.MakeFirst(s, a.Name) {
		outcome, _, err := l.Make.Run(ctx, q, a)
		if err != nil && s.d.Classify(err) != dialect.Duplicate {
			return false, err
		}
		s.known[a.Name] = true
		if outcome != lockstmt.Refused {
			return outcome == lockstmt.Granted, nil
		}
	}
	outcome, _, err := l.Take.Run(ctx, q, a)
	return outcome == lockstmt.Granted, err
}

// takeMany makes the rows, or takes them.
func (s *statements) takeMany(ctx context.Context, q core.Querier, l *lockstmt.LeaseStatements, all []lockstmt.Attempt) ([]lockstmt.AttemptID, error) {
	var made, taken []lockstmt.Attempt
	for _, a := range all {
		if l.MakeFirst(s, a.Name) {
			made = append(made, a)
		} else {
			taken = append(taken, a)
		}
		s.known[a.Name] = true
	}
	var won []lockstmt.AttemptID
	if len(made) > 0 {
		tokens, _, err := l.MakeMany.Run(ctx, q, made)
		if err != nil {
			return nil, err
		}
		for _, a := range made {
			if tokens[a.ID] > 0 {
				won = append(won, a.ID)
			} else {
				taken = append(taken, a)
			}
		}
	}
	if len(taken) > 0 {
		tokens, _, err := l.TakeMany.Run(ctx, q, taken)
		if err != nil {
			return nil, err
		}
		won = slices.AppendSeq(won, maps.Keys(tokens))
	}
	slices.SortFunc(won, compareIDs)
	return slices.Compact(won), nil
}

// announce writes that a process waits.
func (s *statements) announce(ctx context.Context, q core.Querier, process int, n lockname.Name) error {
	text := strings.NewReplacer("{name}", "$4", "{count}", "$5").Replace(s.d.Leases.AnnounceRow)
	self := selfOf(process)
	stmt := s.tables.Compile("announce", strings.ReplaceAll(s.d.Leases.Announce, "{rows}", text))
	_, err := stmt.Exec(ctx, q, n.Owner, self[:], fmt.Sprint("p", process), hour.Microseconds(), n.Row(), int64(1))
	return err
}
