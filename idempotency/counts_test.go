package idempotency_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/internal/test/conformance"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
)

// TestStatementsOfDo counts the statements that a call sends. Each takes a round trip, except
// on SQLite, where statements are calls in the process.
func TestStatementsOfDo(t *testing.T) {
	t.Parallel()
	execute := map[dbtest.Engine][]string{
		dbtest.Postgres: {"records.look", "begin", "records.claim", "records.finish", "commit"},
		dbtest.MySQL:    {"records.look", "set", "begin", "records.claim", "records.finish", "commit", "unset"},
		dbtest.MariaDB:  {"records.look", "set", "begin", "records.claim", "records.finish", "commit", "unset"},
		dbtest.SQLite:   {"records.look", "remember", "set", "begin", "records.claim", "records.finish", "commit", "unset"},
	}
	var mu sync.Mutex
	seen := map[string][]string{} // by test
	for _, engine := range dbtest.Engines() {
		t.Run(string(engine), func(t *testing.T) {
			dbtest.Needs(t, engine, dbtest.OneStatement)
			t.Parallel()
			e := conformance.New(t, conformance.SQL(), engine, holdfast.Options{Observers: []holdfast.Observer{func(_ context.Context, s holdfast.Statement) {
				mu.Lock()
				defer mu.Unlock()
				seen[t.Name()] = append(seen[t.Name()], s.Name)
			}}})
			s := e.Store(idempotency.Options{})
			took := func() []string {
				mu.Lock()
				defer mu.Unlock()
				names := seen[t.Name()]
				seen[t.Name()] = nil
				return names
			}
			took()
			do := func(key string) {
				if _, err := idempotency.Do(e.Ctx, s, conformance.Op(key), func(context.Context, *sql.Tx) (string, error) { return "", nil }); err != nil {
					t.Fatal(err)
				}
			}
			want := func(what, key string, want []string) {
				took()
				do(key)
				if got := took(); !slices.Equal(got, want) {
					t.Errorf("%s: %v, want %v", what, got, want)
				}
			}
			want("executing", "a", execute[engine])
			want("replaying", "a", []string{"records.look"})
			for i := range 8 {
				do(fmt.Sprint(i))
			}
			want("executing after so many new keys", "b", execute[engine][1:])
			lost := execute[engine][1 : slices.Index(execute[engine], "records.claim")+1]
			lost = append(slices.Clone(lost), "rollback")
			if last := execute[engine][len(execute[engine])-1]; last == "unset" {
				lost = append(lost, last)
			}
			want("replaying after so many new keys", "a", append(lost, "records.look"))
			want("executing after a replay", "c", execute[engine])
			// A Similar takes one statement more, and three to refuse a similar operation.
			similar := func(key string) error {
				took()
				op := conformance.Op(key)
				op.Similar = &idempotency.Similar{By: []string{"order", "amount"}, Window: time.Hour}
				_, err := idempotency.Do(e.Ctx, s, op, func(context.Context, *sql.Tx) (string, error) { return "", nil })
				return err
			}
			err := similar("d")
			claims := slices.Index(execute[engine], "records.claim") + 1
			if got, want := took(), slices.Insert(slices.Clone(execute[engine]), claims, "similar.claim"); err != nil || !slices.Equal(got, want) {
				t.Errorf("with a Similar: %v, %v, want %v", got, err, want)
			}
			err = similar("e")
			refused := append(slices.Clone(execute[engine][:claims]), "similar.claim", "similar.read", "records.look", "rollback")
			if got := took(); !errors.Is(err, idempotency.ErrSimilar) || len(got) < len(refused) || !slices.Equal(got[:len(refused)], refused) {
				t.Errorf("a similar operation: %v, %v, want %v", got, err, refused)
			}
		})
	}
}

// TestStatementsOfDoTx checks that a call in the caller's transaction leaves no savepoint
// behind, whether it is executed, rejected or replayed.
func TestStatementsOfDoTx(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, engine dbtest.Engine) {
		dbtest.Needs(t, engine, dbtest.OneStatement)
		var mu sync.Mutex
		var seen []string
		e := conformance.New(t, conformance.SQL(), engine, holdfast.Options{Observers: []holdfast.Observer{func(_ context.Context, s holdfast.Statement) {
			mu.Lock()
			defer mu.Unlock()
			if slices.Contains([]string{"savepoint", "rollback to", "release", "records.finish"}, s.Name) {
				seen = append(seen, s.Name)
			}
		}}})
		s := e.Store(idempotency.Options{})
		for _, c := range []struct {
			err  error
			want []string
		}{
			{nil, []string{"savepoint", "release", "records.finish"}},
			{idempotency.Reject("no", "never"), []string{"savepoint", "rollback to", "release", "records.finish"}},
		} {
			tx, err := e.Begin(e.Ctx, sql.LevelDefault)
			if err != nil {
				t.Fatal(err)
			}
			do := func() {
				_, err := idempotency.DoTx(e.Ctx, s, tx, conformance.Op(fmt.Sprint(c.err)), func(context.Context, *sql.Tx) (string, error) { return "", c.err })
				if rej := (*idempotency.Rejection)(nil); (err != nil) != (c.err != nil) || err != nil && !errors.As(err, &rej) {
					t.Error(err)
				}
			}
			do()
			if !slices.Equal(seen, c.want) {
				t.Errorf("%v: %v, want %v", c.err, seen, c.want)
			}
			seen = nil
			do()
			if len(seen) != 0 {
				t.Errorf("a replay: %v", seen)
			}
			if err := tx.Commit(); err != nil {
				t.Error(err)
			}
		}
	})
}
