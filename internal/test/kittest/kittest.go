// Package kittest tests the kits of holdfasttest, on any engine.
package kittest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/holdfasttest"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/sqllock"
)

const table = `CREATE TABLE effects (owner VARCHAR(64) NOT NULL, k VARCHAR(64) NOT NULL)`

// runner is the *testing.M of a package with one test.
type runner func() int

func (r runner) Run() int { return r() }

// Schemas runs each of kits, which call Outcomes, in a separate schema, and then twice each in the schema
// of main, side by side. It checks that none is left behind: count counts the schemas with a name.
func Schemas(t *testing.T, pool *sql.DB, count, current string, main func(m interface{ Run() int }, tables func(context.Context, *sql.DB) error) int,
	kits map[string]func(t *testing.T, opts ...holdfast.Options) *sql.DB,
) {
	t.Helper()
	var mu sync.Mutex
	used := map[string]int{}
	use := func(t *testing.T, kit func(t *testing.T, opts ...holdfast.Options) *sql.DB, opts ...holdfast.Options) {
		t.Helper()
		var name string
		if err := kit(t, opts...).QueryRowContext(t.Context(), current).Scan(&name); err != nil {
			t.Error(err)
		}
		mu.Lock()
		defer mu.Unlock()
		used[name]++
	}
	for name, kit := range kits {
		t.Run(name, func(t *testing.T) { use(t, kit, holdfast.Options{SingleOwner: true}) })
	}
	made := 0
	main(runner(func() int {
		t.Run("Main", func(t *testing.T) {
			for name, kit := range kits {
				for range 2 {
					t.Run(name, func(t *testing.T) {
						t.Parallel()
						use(t, kit)
					})
				}
			}
		})
		return 0
	}), func(ctx context.Context, pool *sql.DB) error {
		made++
		_, err := pool.ExecContext(ctx, table)
		return err
	})
	if made != 1 || len(used) != len(kits)+1 {
		t.Errorf("Main made %d schemas, and %v were used", made, used)
	}
	for name := range used {
		var n int
		if err := pool.QueryRowContext(t.Context(), count, name).Scan(&n); err != nil || n != 0 {
			t.Errorf("schema %s is left behind: %v", name, err)
		}
	}
}

// Outcomes checks that a kit produces each outcome, in the tables of its database, which it returns.
func Outcomes[Tx any](t *testing.T, kit *holdfasttest.Kit[Tx]) *sql.DB {
	t.Helper()
	ctx := t.Context()
	if kit.Owner == "" { // in a separate schema
		if _, err := kit.Pool.ExecContext(ctx, table); err != nil {
			t.Fatal(err)
		}
	}
	s, err := idempotency.New(ctx, kit.DB)
	if err != nil {
		t.Fatal(err)
	}
	op := func(key string) idempotency.Op {
		return idempotency.Op{Owner: kit.Owner, Name: "refund", Key: key, Request: key}
	}
	do := func(key string) (idempotency.Outcome, error) {
		r, err := idempotency.Do(ctx, s, op(key), func(ctx context.Context, tx Tx) (idempotency.ID, error) {
			q, err := access.Of(kit.DB).Join(tx)
			if err != nil {
				return "", err
			}
			_, err = core.Stmt{Text: `INSERT INTO effects (owner, k) VALUES ('` + kit.Owner + `', '` + key + `')`}.Exec(ctx, q)
			return "done", err
		})
		return r.Outcome, err
	}
	wants := func(what, key string, want error, outcome idempotency.Outcome) {
		t.Helper()
		if o, err := do(key); !errors.Is(err, want) || o != outcome {
			t.Errorf("%s: %v, %v, want %v, %v", what, o, err, outcome, want)
		}
	}
	holdfasttest.Done(kit, s, op("done"), idempotency.ID("1"))
	wants("done", "done", nil, idempotency.Replayed)
	kit.Mismatch(s, op("mismatch"))
	wants("mismatch", "mismatch", idempotency.ErrMismatch, 0)
	alike := op("alike")
	alike.Similar = &idempotency.Similar{By: []string{"order", "amount"}, Window: time.Hour}
	kit.Similar(s, alike, "r-0")
	var similar *idempotency.SimilarError
	if _, err := idempotency.Do(ctx, s, alike, func(context.Context, Tx) (string, error) { return "done", nil }); !errors.As(err, &similar) || similar.BusinessID != "r-0" {
		t.Errorf("similar: %v", err)
	}
	kit.Expire(s, op("expired"), "r-1")
	wants("expired", "expired", idempotency.ErrExpired, 0)
	kit.Reject(s, op("rejected"), "no", "never")
	var rejection *idempotency.Rejection
	if _, err := do("rejected"); !errors.As(err, &rejection) || rejection.Code != "no" {
		t.Errorf("rejected: %v", err)
	}
	end := kit.InProgress(s, op("busy"))
	wants("in progress", "busy", idempotency.ErrInProgress, 0)
	wants("another key", "free", nil, idempotency.Executed)
	end()
	wants("in progress before", "busy", nil, idempotency.Executed)
	for committed, then := range map[bool]idempotency.Outcome{true: idempotency.Replayed, false: idempotency.Executed} {
		key := fmt.Sprint("lost ", committed)
		kit.LoseCommit(committed)
		wants(key, key, idempotency.ErrUnknown, 0)
		wants(key+", again", key, nil, then)
		var n int
		if err := kit.Pool.QueryRowContext(ctx, `SELECT COUNT(*) FROM effects WHERE owner = '`+kit.Owner+`' AND k = '`+key+`'`).Scan(&n); err != nil || n != 1 {
			t.Errorf("%s: %d effects, %v", key, n, err)
		}
	}
	kit.LoseCommit(true)
	sideBySide(t, do)
	lease(t, kit)
	return kit.Pool
}

// sideBySide does operations at once, one of which loses its commit.
func sideBySide(t *testing.T, do func(key string) (idempotency.Outcome, error)) {
	t.Helper()
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			key := fmt.Sprint("many ", i)
			if _, err := do(key); err != nil && !errors.Is(err, idempotency.ErrUnknown) {
				t.Errorf("%s: %v", key, err)
			}
			if _, err := do(key); err != nil && !errors.Is(err, idempotency.ErrUnknown) {
				t.Errorf("%s, again: %v", key, err)
			}
		})
	}
	wg.Wait()
}

func lease[Tx any](t *testing.T, kit *holdfasttest.Kit[Tx]) {
	t.Helper()
	ctx := t.Context()
	locks, err := sqllock.New(ctx, kit.DB)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = locks.Close(context.WithoutCancel(ctx)) }()
	held, err := locks.For(kit.Owner).Acquire(ctx, "a")
	if err != nil {
		t.Fatal(err)
	}
	kit.LoseLease(kit.Owner, "a")
	if err := held.Release(ctx); !errors.Is(err, sqllock.ErrLost) {
		t.Errorf("a lost lease: %v", err)
	}
}
