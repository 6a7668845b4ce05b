package operations

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/idempotency/operators"
	"github.com/holdfast-go/holdfast/idempotency/staged"
	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/test/conformance"
)

// hashedKeys keeps keys as keyed hashes: no table has their text, and every call finds them by it, and
// by what operators see.
func hashedKeys[Tx any](e *env[Tx]) {
	const key = "anna@example.org"
	hasher, err := idempotency.NewKeyHasher(bytes.Repeat([]byte{1}, 32))
	if err != nil {
		e.Fatal(err)
	}
	if _, err := idempotency.NewKeyHasher(make([]byte, 32-1)); !errors.Is(err, holdfast.ErrInvalid) {
		e.Errorf("a short secret: %v", err)
	}
	s, plain := e.Store(idempotency.Options{HashKeys: hasher}), e.Store(idempotency.Options{})
	runner, err := staged.New(s, staged.Workflow[string, string, Tx]{
		Name: "pay",
		Run:  func(context.Context, *staged.Run[Tx], string) (string, error) { return "paid", nil },
	})
	if err != nil {
		e.Fatal(err)
	}
	op := conformance.Op(key)
	op.Similar = &idempotency.Similar{By: []string{key}, Window: time.Hour}
	for _, want := range []idempotency.Outcome{idempotency.Executed, idempotency.Replayed} {
		if r, err := e.Do(s, op); err != nil || r.Outcome != want {
			e.Errorf("want %v: %+v, %v", want, r, err)
		}
		if r, err := runner.Do(e.Ctx, idempotency.Op{Key: key}, "request"); err != nil || r.Outcome != want {
			e.Errorf("staged, want %v: %+v, %v", want, r, err)
		}
	}
	if found, err := idempotency.Lookup[string](e.Ctx, s, op); err != nil || found.State != idempotency.StateSucceeded {
		e.Errorf("looked up: %+v, %v", found, err)
	}
	if found, err := runner.Lookup(e.Ctx, idempotency.Op{Key: key}); err != nil || found.State != idempotency.StateSucceeded {
		e.Errorf("staged, looked up: %+v, %v", found, err)
	}
	stored := hasher.Key(key)
	for _, table := range []string{"records", "staged", "similar"} {
		if n := e.Int(`SELECT COUNT(*) FROM holdfast_`+table+` WHERE op_key = $1`, []byte(stored)); n != 1 {
			e.Errorf("%s: %d rows with the hashed key", table, n)
		}
	}
	if len(stored) != 69 || strings.Contains(stored, "anna") || hasher.Key(stored) != stored {
		e.Errorf("%q is kept", stored)
	}
	forged := stored[:len(stored)-1] + string(stored[len(stored)-1]^1)
	if hasher.Key(forged) == forged {
		e.Error("a text that only looks like a hash is taken for one")
	}
	other := op
	other.Key = "another"
	var similar *idempotency.SimilarError
	if _, err := e.Do(s, other); !errors.As(err, &similar) || similar.Key != stored {
		e.Errorf("similar: %v", err)
	}
	op.Request = "another request"
	if _, err := e.Do(s, op); !errors.Is(err, idempotency.ErrMismatch) {
		e.Errorf("another request: %v", err)
	}
	// The fingerprint cannot be computed without the secret.
	same := conformance.Op("plain")
	same.Request = key
	if _, err := e.Do(plain, same); err != nil {
		e.Fatal(err)
	}
	if bytes.Equal(e.stored(stored, "fingerprint"), e.stored("plain", "fingerprint")) {
		e.Error("the fingerprint has no key")
	}
	if lease, err := s.LeaseKey(op); err != nil || strings.Contains(lease, "anna") {
		e.Errorf("the lease's key: %q, %v", lease, err)
	}

	ops := operators.New(s)
	for _, records := range []bool{true, false} {
		for _, search := range []string{key, ""} {
			found, err := core.First(9, ops.List(e.Ctx, operators.Filter{Records: records, States: []idempotency.State{idempotency.StateSucceeded}, Key: search}))
			if err == nil && search == "" && records {
				found = found[:1] // and the one in clear
			}
			if err != nil || len(found) != 1 || search != "" && found[0].Key != stored {
				e.Fatalf("%q, records %v: %v, %v", search, records, found, err)
			}
		}
		name := map[bool]string{true: "refund", false: "pay"}[records]
		for _, key := range []string{key, stored} {
			if found, err := ops.Show(e.Ctx, staged.Ref{Name: name, Key: key}); err != nil || found.Key != stored || found.Staged == records {
				e.Errorf("%q: %+v, %v", key, found, err)
			} else if found, err = ops.ShowID(e.Ctx, found.ID); err != nil || found.Key != stored {
				e.Errorf("by its ID: %+v, %v", found, err)
			}
		}
		if err := ops.Erase(e.Ctx, staged.Ref{Name: name, Key: stored}, holdfast.Actor{By: "ana", Reason: "asked"}); err != nil {
			e.Error(err)
		}
		// A tool without the secret names operations by what is kept.
		if found, err := operators.New(plain).Show(e.Ctx, staged.Ref{Name: name, Key: stored}); err != nil || found.Key != stored {
			e.Errorf("without the secret: %+v, %v", found, err)
		}
	}
	if _, err := runner.Do(e.Ctx, idempotency.Op{Key: key}, "request"); !errors.Is(err, idempotency.ErrExpired) {
		e.Errorf("erased: %v", err)
	}
}
