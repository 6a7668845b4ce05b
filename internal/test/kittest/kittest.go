// Package kittest tests the kits of holdfasttest, on any engine.
package kittest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/holdfasttest"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/sqllock"
)

// Outcomes checks that a kit produces each outcome, in the tables of its database.
func Outcomes[Tx any](t *testing.T, kit *holdfasttest.Kit[Tx]) {
	t.Helper()
	ctx := t.Context()
	if _, err := kit.Pool.ExecContext(ctx, `CREATE TABLE effects (k VARCHAR(64) NOT NULL)`); err != nil {
		t.Fatal(err)
	}
	s, err := idempotency.New(ctx, kit.DB)
	if err != nil {
		t.Fatal(err)
	}
	op := func(key string) idempotency.Op { return idempotency.Op{Name: "refund", Key: key, Request: key} }
	do := func(key string) (idempotency.Outcome, error) {
		r, err := idempotency.Do(ctx, s, op(key), func(ctx context.Context, tx Tx) (idempotency.ID, error) {
			q, err := access.Of(kit.DB).Join(tx)
			if err != nil {
				return "", err
			}
			_, err = core.Stmt{Text: `INSERT INTO effects (k) VALUES ('` + key + `')`}.Exec(ctx, q)
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
		if err := kit.Pool.QueryRowContext(ctx, `SELECT COUNT(*) FROM effects WHERE k = '`+key+`'`).Scan(&n); err != nil || n != 1 {
			t.Errorf("%s: %d effects, %v", key, n, err)
		}
	}
	var wg sync.WaitGroup // side by side, with a lost commit among them
	kit.LoseCommit(true)
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
	lease(t, kit)
}

func lease[Tx any](t *testing.T, kit *holdfasttest.Kit[Tx]) {
	t.Helper()
	ctx := t.Context()
	locks, err := sqllock.New(ctx, kit.DB)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = locks.Close(context.WithoutCancel(ctx)) }()
	held, err := locks.Acquire(ctx, "a")
	if err != nil {
		t.Fatal(err)
	}
	kit.LoseLease("a")
	if err := held.Release(ctx); !errors.Is(err, sqllock.ErrLost) {
		t.Errorf("a lost lease: %v", err)
	}
	kit.DB = access.WithOwners(kit.DB, core.ManyOwners)
	many, err := sqllock.New(ctx, kit.DB)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = many.Close(context.WithoutCancel(ctx)) }()
	if held, err = many.For("anna").Acquire(ctx, "a"); err != nil {
		t.Fatal(err)
	}
	kit.LoseLeaseOf("anna", "a")
	if err := held.Release(ctx); !errors.Is(err, sqllock.ErrLost) {
		t.Errorf("a lost lease of an owner: %v", err)
	}
}
