package staged_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/idempotency/staged"
	"github.com/holdfast-go/holdfast/internal/test/conformance"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
)

// TestPlanOfReference checks that SQLite, which has no statistics of these tables, finds a provider's
// reference by its index, and not by reading all steps of the owner.
func TestPlanOfReference(t *testing.T) {
	t.Parallel()
	e := conformance.New(t, conformance.Only(conformance.SQL(), dbtest.SQLite), dbtest.SQLite)
	store := e.Store(idempotency.Options{})
	text := staged.ReferenceFind(store)
	rows, err := e.SQL.QueryContext(e.Ctx, "EXPLAIN QUERY PLAN "+text, "", "bank", "re_1", "default")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	var plan strings.Builder
	for rows.Next() {
		var id, parent, unused int
		var detail string
		if err := rows.Scan(&id, &parent, &unused, &detail); err != nil {
			t.Fatal(err)
		}
		fmt.Fprintln(&plan, detail)
	}
	if err := rows.Err(); err != nil || !strings.Contains(plan.String(), "steps_reference (owner=? AND provider=? AND reference=?)") {
		t.Errorf("%v\n%s", err, plan.String())
	}
}
