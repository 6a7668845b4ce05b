package idemhttp_test

import (
	"database/sql"
	"errors"
	"log/slog"
	"net/http"
	"testing"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/idempotency/idemhttp"
	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/test/conformance"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
)

// TestOptions checks that New refuses unsafe options.
func TestOptions(t *testing.T) {
	t.Parallel()
	e := conformance.New(t, conformance.SQL(), dbtest.SQLite)
	single := e.Store(idempotency.Options{})
	owners, err := idempotency.New(e.Ctx, access.WithOwners(e.DB, core.ManyOwners))
	if err != nil {
		t.Fatal(err)
	}
	refund := idemhttp.Operation("refund")
	owner := func(*http.Request) (string, error) { return "A", nil }
	for what, c := range map[string]struct {
		store     *idempotency.Store[*sql.Tx]
		operation func(*http.Request) string
		o         idemhttp.Options
		ok        bool
	}{
		"the defaults":           {single, refund, idemhttp.Options{}, true},
		"owners":                 {owners, refund, idemhttp.Options{Owner: owner}, true},
		"no operation":           {single, nil, idemhttp.Options{}, false},
		"no store":               {nil, refund, idemhttp.Options{}, false},
		"owners without Owner":   {owners, refund, idemhttp.Options{}, false},
		"Owner without owners":   {single, refund, idemhttp.Options{Owner: owner}, false},
		"a safe method":          {single, refund, idemhttp.Options{Methods: []string{"GET"}}, false},
		"a method in lower case": {single, refund, idemhttp.Options{Methods: []string{"post"}}, false},
		"no method":              {single, refund, idemhttp.Options{Methods: []string{""}}, false},
		"a cookie":               {single, refund, idemhttp.Options{Headers: []string{"set-cookie"}}, false},
		"a length":               {single, refund, idemhttp.Options{Headers: []string{"Content-Length"}}, false},
		"no header":              {single, refund, idemhttp.Options{Headers: []string{""}}, false},
		"the longest key":        {single, refund, idemhttp.Options{MaxKey: idempotency.MaxKey}, true},
		"too long a key":         {single, refund, idemhttp.Options{MaxKey: idempotency.MaxKey + 1}, false},
		"a negative key":         {single, refund, idemhttp.Options{MaxKey: -1}, false},
		"a negative body":        {single, refund, idemhttp.Options{MaxBody: -1}, false},
		"negative memory":        {single, refund, idemhttp.Options{MaxHeld: -1}, false},
		"no memory to speak of":  {single, refund, idemhttp.Options{MaxHeld: 1023}, false},
		"declines are open":      {single, refund, idemhttp.Options{Declined: idemhttp.Discard}, true},
		"paid declines":          {single, refund, idemhttp.Options{Declined: idemhttp.Commit}, false},
		"two says on declines":   {single, refund, idemhttp.Options{Declined: idemhttp.Reject, Decide: idemhttp.DefaultDecision}, false},
		"unkeyed reported":       {single, refund, idemhttp.Options{Unkeyed: idemhttp.ReportUnkeyed}, true},
		"unkeyed somehow":        {single, refund, idemhttp.Options{Unkeyed: idemhttp.ReportUnkeyed + 1}, false},
		"chosen fields":          {single, refund, idemhttp.Options{OnlyFields: []string{"/a", "/b/~0~1/0"}}, true},
		"ignored fields":         {single, refund, idemhttp.Options{IgnoreFields: []string{"/sent_at"}}, true},
		"both":                   {single, refund, idemhttp.Options{OnlyFields: []string{"/a"}, IgnoreFields: []string{"/b"}}, false},
		"no pointer":             {single, refund, idemhttp.Options{OnlyFields: []string{"a"}}, false},
		"the whole document":     {single, refund, idemhttp.Options{IgnoreFields: []string{""}}, false},
		"a broken pointer":       {single, refund, idemhttp.Options{IgnoreFields: []string{"/a~2"}}, false},
		"fields of what":         {single, refund, idemhttp.Options{OnlyFields: []string{"/a"}, Fingerprint: func(*http.Request, []byte) ([]byte, error) { return nil, nil }}, false},
		"a negative wait":        {single, refund, idemhttp.Options{Wait: -1}, false},
		"documentation":          {single, refund, idemhttp.Options{Documentation: "https://example.com/api#keys"}, true},
		"a relative address":     {single, refund, idemhttp.Options{Documentation: "/api"}, false},
		"an address that breaks": {single, refund, idemhttp.Options{Documentation: "https://example.com/>, <a"}, false},
		"types of its own":       {single, refund, idemhttp.Options{ProblemBase: "https://example.com/problems#"}, true},
		"types with a tag":       {single, refund, idemhttp.Options{ProblemBase: "urn:shop:problem:"}, true},
		"types below no folder":  {single, refund, idemhttp.Options{ProblemBase: "https://example.com/problems"}, false},
		"types of nowhere":       {single, refund, idemhttp.Options{ProblemBase: "problems/"}, false},
		"types that break":       {single, refund, idemhttp.Options{ProblemBase: "https://example.com/<a>/"}, false},
	} {
		m, err := idemhttp.New(c.store, c.operation, c.o)
		if (m != nil) != c.ok || errors.Is(err, holdfast.ErrInvalid) == c.ok {
			t.Errorf("%s: %v, %v", what, m, err)
		}
	}
}

// TestOperation checks that a named operation stays the same when its route pattern changes.
func TestOperation(t *testing.T) {
	t.Parallel()
	e := conformance.New(t, conformance.SQL(), dbtest.SQLite)
	store := e.Store(idempotency.Options{})
	runs := 0
	serve := func(pattern string, name string) int {
		m, err := idemhttp.New(store, idemhttp.Operation(name), idemhttp.Options{Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		mux := http.NewServeMux()
		mux.Handle(pattern, m.Handler(func(http.ResponseWriter, *http.Request, *sql.Tx) error { runs++; return nil }))
		return send(t, mux, "/refunds/1", "key").Code
	}
	for _, pattern := range []string{"POST /refunds/{id}", "POST /refunds/{order}", "/refunds/", "POST /{what}/{id}"} {
		if status := serve(pattern, "refund"); status != http.StatusOK {
			t.Errorf("%s: status %d", pattern, status)
		}
	}
	if runs != 1 {
		t.Errorf("one key of one operation ran %d times", runs)
	}
	if n := e.Int(`SELECT COUNT(*) FROM holdfast_records WHERE operation = 'refund'`); n != 1 {
		t.Errorf("%d records", n)
	}
	if status := serve("/refunds/", "capture"); status != http.StatusOK || runs != 2 {
		t.Errorf("another operation: status %d, %d runs", status, runs)
	}
	if status := serve("/refunds/", ""); status != http.StatusInternalServerError || runs != 2 {
		t.Errorf("an empty name: status %d, %d runs", status, runs)
	}
}
