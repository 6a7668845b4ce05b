package console_test

import (
	"database/sql"
	"errors"
	"net/http"
	"net/url"
	"sync/atomic"
	"testing"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/audit"
	"github.com/holdfast-go/holdfast/console"
	"github.com/holdfast-go/holdfast/internal/test/conformance"
	"github.com/holdfast-go/holdfast/sqllock"
)

// TestFourEyes has one person propose on the page, and another one confirm.
func TestFourEyes(t *testing.T) {
	onEveryEngine(t, func(e *conformance.Env[*sql.Tx]) {
		var person atomic.Value
		person.Store("olga")
		s := signedIn(e, console.Options{Write: true, FourEyes: true, Actor: func(*http.Request) string { return person.Load().(string) }})
		unknown := func(key string) bool {
			s.Helper()
			_, page := s.get(s.linkTo(s.operations("unknown"), key))
			return len(s.forms(page, "confirm-resolve")) == 1
		}
		post := func(as, path string, form url.Values, want int, texts ...string) string {
			s.Helper()
			person.Store(as)
			status, page := s.post(path, form)
			if status != want {
				s.Fatalf("%s: %s as %s: %d, want %d\n%s", path, form, as, status, want, page)
			}
			s.want(page, texts...)
			return page
		}
		runner := s.park(refund("order-42/1"), "no answer")
		lease, err := s.locker("worker-3").Acquire(s.Ctx, "order/42")
		e.Check(err)
		_, page := s.get("proposals")
		s.want(page, "Nobody has proposed anything.")

		// An operation: what is proposed changes nothing.
		page = post("olga", "confirm-resolve", url.Values{"id": {s.id("order-42/1")}, "as": {"step-done"}, "result": {"1250"}}, http.StatusOK, "another person", "Propose it")
		form := s.forms(page, "resolve")[0]
		form.Set("reason", "ticket 7")
		page = post("olga", "resolve", form, http.StatusOK, "Proposed", "order-42/1", "ticket 7", "olga")
		if !unknown("order-42/1") {
			s.Error("one person has resolved it")
		}
		_, page = s.get(s.linkTo(page, "order-42/1"))
		s.want(page, "1250", "resolve step as done", "another person must confirm it")
		if len(s.forms(page, "confirm")) != 0 {
			s.Error("the one who proposed is asked to confirm")
		}
		resolve := s.proposal("order-42/1")
		post("olga", "confirm", resolve, http.StatusForbidden, "another person")
		post("Olga ", "confirm", resolve, http.StatusForbidden, "another person")

		// A lock.
		_, page = s.get("locks")
		page = post("olga", "confirm-release", s.forms(page, "confirm-release")[0], http.StatusOK, "Propose it")
		form = s.forms(page, "release")[0]
		form.Set("reason", "ticket 8")
		post("olga", "release", form, http.StatusOK, "Proposed", "order/42")
		held := func(key string) bool {
			i, _, err := s.locker("worker-4").Inspect(s.Ctx, key)
			e.Check(err)
			return i.Held
		}
		if !held("order/42") {
			s.Error("one person has taken it away")
		}
		release := s.proposal("order/42")
		post("olga", "confirm", release, http.StatusForbidden, "another person")

		// Another person does both, once.
		_, page = s.get("proposals")
		person.Store("ben")
		_, page = s.get(s.linkTo(page, "order/42"))
		post("ben", "confirm", s.forms(page, "confirm")[0], http.StatusOK, "Confirmed")
		post("ben", "confirm", release, http.StatusConflict, "Nothing was changed")
		if err := lease.Release(s.Ctx); held("order/42") || !errors.Is(err, sqllock.ErrLost) {
			s.Error(err)
		}
		post("ben", "confirm", resolve, http.StatusOK, "Confirmed", "Nobody has proposed anything.")
		if r, err := runner.Do(s.Ctx, refund("order-42/1"), 1250); err != nil || r.Value != 1250 {
			s.Errorf("%+v, %v", r, err)
		}

		// What has changed since it was proposed.
		lease, err = s.locker("worker-3").Acquire(s.Ctx, "order/43")
		e.Check(err)
		_, page = s.get("locks?begin=order/43")
		form = s.forms(page, "confirm-release")[0]
		form.Set("reason", "ticket 9")
		post("olga", "release", form, http.StatusOK, "Proposed")
		e.Check(lease.Release(s.Ctx))
		post("ben", "confirm", s.proposal("order/43"), http.StatusConflict, "Nothing was changed")

		post("ben", "confirm", url.Values{"id": {"00"}}, http.StatusNotFound)
		post("ben", "confirm", url.Values{"id": {"no"}}, http.StatusNotFound)
		for r, err := range audit.List(e.Ctx, e.DB) {
			e.Check(err)
			if r.By != "olga" || r.ConfirmedBy == "olga" {
				s.Errorf("%+v", r)
			}
		}
	})
}

// TestFourEyesNeedsNames refuses four eyes where one person can type two names.
func TestFourEyesNeedsNames(t *testing.T) {
	e := onSQLite(t)
	_, err := console.New(e.Ctx, e.DB, console.Options{Token: token, Write: true, FourEyes: true})
	var input *holdfast.InputError
	if !errors.As(err, &input) || input.Field != "console: Options.FourEyes" {
		t.Error(err)
	}
}

// operations returns the list of operations in one state.
func (s *site) operations(state string) string {
	s.Helper()
	_, page := s.get("operations?state=" + state)
	return page
}

// proposal returns the form that confirms what was proposed for a key.
func (s *site) proposal(key string) url.Values {
	s.Helper()
	_, page := s.get("proposals")
	link, err := url.Parse(s.linkTo(page, key))
	if err != nil {
		s.Fatal(err)
	}
	return url.Values{"id": {link.Query().Get("id")}}
}
