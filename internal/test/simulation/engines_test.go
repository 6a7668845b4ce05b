package simulation

import (
	"bytes"
	"context"
	"database/sql"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/dialect"
	"github.com/holdfast-go/holdfast/internal/dialect/lockstmt"
	"github.com/holdfast-go/holdfast/internal/dialect/sqlite"
	"github.com/holdfast-go/holdfast/internal/lockname"
	"github.com/holdfast-go/holdfast/internal/test/conformance"
	"github.com/holdfast-go/holdfast/migrations"
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
		n, err := lockname.Of(lockname.Lease, core.Owner{ID: "o"}, key)
		if err != nil {
			panic(err)
		}
		list = append(list, n)
	}
	return list
}()

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

// beside runs each statement on the store and, with the store's clock, on a real SQLite, and compares the answers.
type beside struct {
	t     *testing.T
	store *store
	real  *sql.DB
	now   int64
	runs  int
}

func (b *beside) ask(ctx context.Context, text string, args []any, write bool) (answer, error) {
	if strings.HasPrefix(text, `PRAGMA`) {
		return answer{rows: [][]any{{"0"}}}, nil
	}
	got, known := b.store.run(core.StatementName(ctx), text, args, b.now)
	if !known {
		return got, fmt.Errorf("%w: %s", errUnknown, text)
	}
	b.runs++
	text = strings.ReplaceAll(text, sqlite.Dialect.Now, strconv.FormatInt(b.now, 10))
	if write {
		result, err := b.real.ExecContext(ctx, text, args...)
		if err != nil {
			return got, err
		}
		if n, err := result.RowsAffected(); n != got.affected {
			b.t.Errorf("%s\n%v: %d rows, and %d of the store (%v)", text, args, n, got.affected, err)
		}
		return got, nil
	}
	rows, err := b.real.QueryContext(ctx, text, args...)
	if err != nil {
		return got, err
	}
	want, err := all(rows)
	if w, g := sortedRows(want.rows), sortedRows(got.rows); !slices.Equal(w, g) {
		b.t.Errorf("%s\n%v:\n%v, and of the store\n%v", text, args, w, g)
	}
	return got, err
}

func sortedRows(rows [][]any) (list []string) {
	for _, row := range rows {
		text := ""
		for _, v := range row {
			text += fmt.Sprintf(" %v", v)
		}
		list = append(list, text)
	}
	slices.Sort(list)
	return list
}

// Exec and Query implement core.Querier.
func (b *beside) Exec(ctx context.Context, text string, args ...any) (core.Result, error) {
	a, err := b.ask(ctx, text, args, true)
	return core.Result{Affected: a.affected}, err
}

func (b *beside) Query(ctx context.Context, text string, args ...any) (core.Rows, error) {
	a, err := b.ask(ctx, text, args, false)
	return &read{rows: a.rows}, err
}

// TestStoreIsSQLite compares the store with SQLite, statement by statement: each answer, and the rows.
func TestStoreIsSQLite(t *testing.T) {
	s := statementsOf(&sqlite.Dialect, quoted)
	for seed := range uint64(20) {
		inMemory := memory(t)
		b := &beside{t: t, store: newStore(), real: inMemory, now: epoch.UnixMicro()}
		for i, of := range sequence(seed, 200) {
			b.now += int64(i%7) * (20 * time.Minute).Microseconds() / 3
			if _, err := s.run(t.Context(), b, of); err != nil {
				t.Fatal(err)
			}
			rows, err := inMemory.QueryContext(t.Context(), `SELECT name, attempt, holder, token, expires_at FROM holdfast_locks`)
			if err != nil {
				t.Fatal(err)
			}
			want, err := all(rows)
			if err != nil {
				t.Fatal(err)
			}
			got := [][]any{}
			for name, r := range b.store.rows {
				got = append(got, []any{[]byte(name), null(r.attempt), r.holder, r.token, r.expires})
			}
			if w, g := sortedRows(want.rows), sortedRows(got); !slices.Equal(w, g) {
				t.Fatalf("seed %d, step %d, %+v:\n%v, and of the store\n%v", seed, i, of, w, g)
			}
			if t.Failed() {
				t.Fatalf("seed %d, step %d", seed, i)
			}
		}
		if b.runs < 200 {
			t.Errorf("%d statements", b.runs)
		}
		_ = inMemory.Close()
	}
}

// memory is a new SQLite with Holdfast's tables.
func memory(tb testing.TB) *sql.DB {
	tb.Helper()
	inMemory, err := sql.Open("sqlite", ":memory:")
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = inMemory.Close() })
	inMemory.SetMaxOpenConns(1)
	if err := migrations.Up(tb.Context(), inMemory); err != nil {
		tb.Fatal(err)
	}
	return inMemory
}

// alone is the store, without a process and a scheduler.
type alone struct{ *store }

func (a alone) ask(ctx context.Context, text string, args []any) (answer, error) {
	if strings.HasPrefix(text, `PRAGMA`) {
		return answer{rows: [][]any{{"0"}}}, nil
	}
	got, known := a.run(core.StatementName(ctx), text, args, time.Now().UnixMicro())
	if !known {
		return got, fmt.Errorf("%w: %s", errUnknown, text)
	}
	return got, nil
}

// Exec and Query implement core.Querier.
func (a alone) Exec(ctx context.Context, text string, args ...any) (core.Result, error) {
	got, err := a.ask(ctx, text, args)
	return core.Result{Affected: got.affected}, err
}

func (a alone) Query(ctx context.Context, text string, args ...any) (core.Rows, error) {
	got, err := a.ask(ctx, text, args)
	return &read{rows: got.rows}, err
}

// TestStoreIsEachEngine runs sequences of statements on the store and on each engine, each with its own texts. Callers
// learn the same, and the rows are the same, but for tokens and times: who has each lock, whether it lasts, and whether
// the statement moved its token.
func TestStoreIsEachEngine(t *testing.T) {
	conformance.Run(t, conformance.SQL(), func(e *conformance.Env[*sql.Tx]) {
		a := access.Of(e.DB)
		for seed := range uint64(3) {
			e.Must(`DELETE FROM ` + a.Table("locks"))
			e.Must(`DELETE FROM ` + a.Table("waiters"))
			mine, theirs := statementsOf(&sqlite.Dialect, quoted), statementsOf(a.Dialect, a.Table)
			s := newStore()
			before := [2]map[string]string{{}, {}}
			for i, of := range sequence(seed, 60) {
				if i%7 == 6 { // time passes
					for _, r := range s.rows {
						r.expires -= 10 * hour.Microseconds()
					}
					e.Must(`UPDATE ` + a.Table("locks") + ` SET expires_at = expires_at - 36000000000`)
				}
				want, err := mine.run(e.Ctx, alone{s}, of)
				e.Check(err)
				var got any
				e.Check(a.OnConn(e.Ctx, "", func(q core.Querier) (err error) {
					got, err = theirs.run(e.Ctx, q, of)
					return err
				}))
				if !reflect.DeepEqual(got, want) {
					e.Fatalf("seed %d, step %d, %+v: %v, and of the store %v", seed, i, of, got, want)
				}
				rows := [2]map[string]string{{}, {}}
				for name, r := range s.rows {
					rows[0][name] = fmt.Sprintf("%x %s %v", r.attempt, r.holder, r.left(time.Now().UnixMicro()) > 0)
					moved(before[0], rows[0], name, r.token)
				}
				e.Check(a.OnConn(e.Ctx, "", func(q core.Querier) error {
					for _, n := range names {
						r, there, err := theirs.tables.Look().Run(e.Ctx, q, n)
						if err != nil {
							return err
						}
						if there {
							rows[1][string(n.Row())] = fmt.Sprintf("%x %s %v", r.Attempt, r.Holder, r.Left > 0)
							moved(before[1], rows[1], string(n.Row()), r.Token)
						}
					}
					return nil
				}))
				if !maps.Equal(rows[0], rows[1]) {
					e.Fatalf("seed %d, step %d, %+v:\n%v, and of the store\n%v", seed, i, of, rows[1], rows[0])
				}
			}
		}
	})
}

// moved adds to a row whether its token is higher than before.
func moved(before, rows map[string]string, name string, token int64) {
	now := strconv.FormatInt(token, 10)
	switch was := before[name]; {
	case len(was) > len(now) || len(was) == len(now) && was > now:
		rows[name] += ", token back"
	case was != now:
		rows[name] += ", new token"
	}
	before[name] = now
}
