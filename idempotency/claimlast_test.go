package idempotency_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/internal/test/conformance"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
)

// TestClaimLastNeedsTheConnector opens a store with ClaimLast on a pool that cannot have one, and on the
// engines where it changes nothing.
func TestClaimLastNeedsTheConnector(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, engine dbtest.Engine) {
		e := conformance.New(t, conformance.SQL(), engine)
		s, err := idempotency.New(e.Ctx, e.DB, idempotency.Options{SingleOwner: true, ClaimLast: true})
		if e.InnoDB() {
			if !errors.Is(err, holdfast.ErrUnsupported) {
				t.Errorf("got %v", err)
			}
			return
		}
		if err != nil || s.Options().ClaimLast {
			t.Fatalf("got %v, and the option is on", err)
		}
		if r, err := e.Do(s, conformance.Op("a")); err != nil || r.Outcome != idempotency.Executed {
			t.Errorf("got %v, %v", r, err)
		}
	})
}

// TestStatementsOfClaimLast counts what a call with a new key sends.
func TestStatementsOfClaimLast(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, engine dbtest.Engine) {
		if !conformance.ClaimsLast().Runs(engine) {
			return
		}
		var seen []string
		e := conformance.New(t, conformance.ClaimsLast(), engine, holdfast.Options{Observers: []holdfast.Observer{func(_ context.Context, s holdfast.Statement) {
			seen = append(seen, s.Name)
		}}})
		s := e.Store(idempotency.Options{})
		for i := range 10 {
			seen = nil
			if _, err := idempotency.Do(e.Ctx, s, conformance.Op(fmt.Sprint(i)), func(context.Context, *sql.Tx) (string, error) { return "", nil }); err != nil {
				t.Fatal(err)
			}
		}
		if want := []string{"begin", "records.finish", "commit"}; !slices.Equal(seen, want) { // begin is not sent
			t.Errorf("%v, want %v", seen, want)
		}
	})
}
