package idemhttp_test

import (
	"database/sql"
	"errors"
	"net/http"
	"testing"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/idempotency/idemhttp"
	"github.com/holdfast-go/holdfast/internal/conformance"
	"github.com/holdfast-go/holdfast/internal/dbtest"
)

// TestOptions: what would be unsafe is refused when the middleware is made.
func TestOptions(t *testing.T) {
	t.Parallel()
	e := conformance.New(t, conformance.SQL(), dbtest.SQLite)
	single := e.Store(idempotency.Options{})
	tenants, err := idempotency.New(e.Ctx, e.DB, idempotency.Options{})
	if err != nil {
		t.Fatal(err)
	}
	tenant := func(*http.Request) (string, error) { return "A", nil }
	for what, c := range map[string]struct {
		store *idempotency.Store[*sql.Tx]
		o     idemhttp.Options
		ok    bool
	}{
		"the defaults":           {single, idemhttp.Options{}, true},
		"tenants":                {tenants, idemhttp.Options{Tenant: tenant}, true},
		"no store":               {nil, idemhttp.Options{}, false},
		"tenants without Tenant": {tenants, idemhttp.Options{}, false},
		"Tenant without tenants": {single, idemhttp.Options{Tenant: tenant}, false},
		"a safe method":          {single, idemhttp.Options{Methods: []string{"GET"}}, false},
		"a method in lower case": {single, idemhttp.Options{Methods: []string{"post"}}, false},
		"no method":              {single, idemhttp.Options{Methods: []string{""}}, false},
		"a cookie":               {single, idemhttp.Options{Headers: []string{"set-cookie"}}, false},
		"a length":               {single, idemhttp.Options{Headers: []string{"Content-Length"}}, false},
		"no header":              {single, idemhttp.Options{Headers: []string{""}}, false},
		"the longest key":        {single, idemhttp.Options{MaxKey: idempotency.MaxKey}, true},
		"too long a key":         {single, idemhttp.Options{MaxKey: idempotency.MaxKey + 1}, false},
		"a negative key":         {single, idemhttp.Options{MaxKey: -1}, false},
		"a negative body":        {single, idemhttp.Options{MaxBody: -1}, false},
		"a negative wait":        {single, idemhttp.Options{Wait: -1}, false},
		"documentation":          {single, idemhttp.Options{Documentation: "https://example.com/api#keys"}, true},
		"a relative address":     {single, idemhttp.Options{Documentation: "/api"}, false},
		"an address that breaks": {single, idemhttp.Options{Documentation: "https://example.com/>, <a"}, false},
	} {
		m, err := idemhttp.New(c.store, c.o)
		if (m != nil) != c.ok || errors.Is(err, holdfast.ErrInvalid) == c.ok {
			t.Errorf("%s: %v, %v", what, m, err)
		}
	}
}

// TestOperation: by default keys belong to a method and a route.
func TestOperation(t *testing.T) {
	t.Parallel()
	e := conformance.New(t, conformance.SQL(), dbtest.SQLite)
	store := e.Store(idempotency.Options{})
	m, err := idemhttp.New(store, idemhttp.Options{})
	if err != nil {
		t.Fatal(err)
	}
	ok := m.Handler(func(http.ResponseWriter, *http.Request, *sql.Tx) error { return nil })
	mux := http.NewServeMux()
	mux.Handle("POST /named/{id}", ok)
	mux.Handle("/any/{id}", ok)
	outside := m.Wrap(http.NewServeMux()) // no pattern is known yet
	for path, want := range map[string]string{"/named/1": "POST /named/{id}", "/any/1": "POST /any/{id}", "/outside": "POST"} {
		var h http.Handler = mux
		if path == "/outside" {
			h = outside
		}
		send(t, h, path, path)
		if n := e.Int(`SELECT COUNT(*) FROM holdfast_records WHERE op_key = $1 AND operation = $2`, []byte(path), want); n != 1 {
			t.Errorf("%s: %d records with the operation %q", path, n, want)
		}
	}
}
