package console_test

import (
	"database/sql"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/console"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/idempotency/operators"
	"github.com/holdfast-go/holdfast/idempotency/staged"
	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/test/conformance"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
)

// TestStory has an operation's page tell who proposed, confirmed and resolved, and what waits, once each and of
// this operation alone.
func TestStory(t *testing.T) {
	onEveryEngine(t, func(e *conformance.Env[*sql.Tx]) {
		s := signedIn(e, console.Options{Write: true})
		for _, key := range []string{"order-42/1", "order-43/1"} {
			s.park(refund(key), "no answer")
		}
		store, err := idempotency.New(s.Ctx, access.WithOwners(s.DB, core.AnyOwner))
		s.Check(err)
		ops := operators.New(store)
		propose := func(key, why string) *operators.Proposal {
			op := refund(key)
			p, err := ops.Propose(s.Ctx, staged.Ref{Owner: op.Owner, Name: op.Name, Key: op.Key}, operators.Resolution{Step: staged.StepNotDone}, holdfast.Actor{By: "olga", Reason: why})
			s.Check(err)
			return p
		}
		story := func(key string) string {
			_, list := s.get("operations?state=unknown&key=" + key)
			if !strings.Contains(list, "operation?id=") {
				_, list = s.get("operations?state=waiting&key=" + key)
			}
			_, page := s.get(s.linkTo(list, key))
			_, page, _ = strings.Cut(page, `id="interventions"`)
			page, _, _ = strings.Cut(page, "</section>")
			return page
		}
		if page := story("order-42/1"); strings.Contains(page, "<table") || strings.Contains(page, "Interventions") {
			s.Errorf("before anything: %s", page)
		}
		p := propose("order-42/1", "asked the provider, ticket 7")
		propose("order-43/1", "ticket 8")
		page := story("order-42/1")
		s.want(page, "waits for another person", "proposal?id=", "propose: resolve step as not done", "asked the provider, ticket 7", "olga")
		if strings.Contains(page, "ticket 8") || strings.Count(page, "waits for another person") != 1 {
			s.Errorf("another operation's: %s", page)
		}
		s.Check(ops.Confirm(s.Ctx, p.ID, "ben"))
		page = story("order-42/1")
		s.want(page, "confirmed by ben")
		if n := strings.Count(page, "<tr role=\"row\"><td"); n != 2 || strings.Contains(page, "waits for another person") {
			s.Errorf("%d rows, want the proposal and what was done: %s", n, page)
		}
		if e.Engine != dbtest.SQLite {
			s.want(page, "session of ")
		}
	})
}
