package simulation

import (
	"context"
	"database/sql"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/dialect/sqlite"
	"github.com/holdfast-go/holdfast/internal/test/conformance"
	"github.com/holdfast-go/holdfast/migrations"
)

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
	for seed := range uint64(14) {
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

// TestStoreIsEachEngine runs sequences of statements on the stores and on each engine.
func TestStoreIsEachEngine(t *testing.T) {
	ofStaged, _ := stagedOnStore(t)
	conformance.Run(t, conformance.SQL(), func(e *conformance.Env[*sql.Tx]) {
		sameLeases(e)
		sameRecords(e)
		sameStaged(e, ofStaged)
		sameTickets(e)
	})
}

// sameLeases runs sequences of statements on the store of leases and on an engine, each with its own texts. Callers
// learn the same, and the rows are the same, but for tokens and times: the holder of each lock, whether it lasts, and whether
// the statement moved its token.
func sameLeases(e *conformance.Env[*sql.Tx]) {
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
