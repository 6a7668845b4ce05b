package console_test

import (
	"database/sql"
	"encoding/hex"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/adapters/holdfastsql"
	"github.com/holdfast-go/holdfast/console"
	"github.com/holdfast-go/holdfast/internal/test/conformance"
	"github.com/holdfast-go/holdfast/internal/test/conformance/hostile"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
	"github.com/holdfast-go/holdfast/migrations"
)

var syntax = regexp.MustCompile(`(?i)syntax error|in your SQL syntax|unterminated|unrecognized token`)

// TestInjection checks that SQL or HTML in a query or a form is treated as a value or refused.
func TestInjection(t *testing.T) {
	dbtest.NotUnderRace(t, "it sends thousands of requests, one after the other")
	onEveryEngine(t, func(e *conformance.Env[*sql.Tx]) {
		s := signedIn(e, console.Options{Write: true})
		e.Must(`CREATE TABLE canary (n INT NOT NULL)`)
		e.Must(`INSERT INTO canary VALUES (7)`)
		s.park(refund("innocent"), "no answer")
		if _, err := s.locker("worker").Acquire(s.Ctx, "innocent"); err != nil {
			s.Fatal(err)
		}
		_, list := s.get("operations")
		id := strings.TrimPrefix(s.linkTo(list, "innocent"), "operation?id=")
		next := 0
		answered := func(what string, status int, page string) {
			s.Helper()
			if status >= http.StatusInternalServerError || syntax.MatchString(page) || strings.Contains(page, "<script>alert") {
				s.Errorf("%s: %d\n%s", what, status, page)
			}
		}
		evil := func() string {
			all := append(hostile.Strings(), hostile.Markup)
			next++
			return all[next%len(all)]
		}
		for range len(hostile.Strings()) + 1 {
			for path, names := range map[string][]string{
				"": {"done"}, "locks": {"begin", "after", "all", "done"}, "operations": {"state", "kind", "owner", "name", "key", "after", "done"},
				"operation": {"id", "done"}, "reaper": {"after"}, "proposals": {"done"}, "proposal": {"id"},
			} {
				for _, name := range names {
					value := evil()
					for _, v := range []string{value, hex.EncodeToString([]byte(value)), "/" + hex.EncodeToString([]byte(value))} {
						status, page := s.get(path + "?" + url.Values{name: {v}}.Encode())
						answered(path+" "+name+" "+v, status, page)
					}
				}
			}
			value := evil()
			for path, form := range map[string]url.Values{
				"release": {"kind": {"lease"}, "token": {"1"}, "owner": {hex.EncodeToString([]byte(value))}, "key": {hex.EncodeToString([]byte(value))}, "by": {value}, "reason": {value}},
				"resolve": {"id": {id}, "as": {value}, "by": {value}, "reason": {value}, "result": {value}},
			} {
				for _, prefix := range []string{"", "confirm-"} {
					status, page := s.post(prefix+path, form)
					answered(prefix+path+" "+value, status, page)
				}
			}
			// This page asks for confirmation and shows the typed text.
			status, page := s.post("confirm-resolve", url.Values{"id": {id}, "as": {"step-rejected"}, "by": {value}, "reason": {value}, "code": {value}, "message": {value}})
			answered("confirm-resolve "+value, status, page)
		}
		if n := s.Int(`SELECT SUM(n) FROM canary`); n != 7 {
			s.Error("a table was changed")
		}
		if _, page := s.get("locks"); !strings.Contains(page, "innocent") {
			s.Error("a lock that was not named is gone")
		}
		if _, page := s.get("operations"); !strings.Contains(page, "innocent") {
			s.Error("an operation that was not named was resolved")
		}
	})
}

// FuzzPages checks that no query makes a page fail or puts a script into it.
func FuzzPages(f *testing.F) {
	for _, v := range hostile.Strings() {
		f.Add("key", v)
		f.Add("after", hex.EncodeToString([]byte(v)))
	}
	f.Add("begin", `"\xff"`)
	f.Add("name", hostile.Markup)
	f.Add("id", strings.Repeat("00", 32))
	pool := dbtest.OpenSQL(f, dbtest.DSN(f, dbtest.SQLite))
	if err := migrations.Up(f.Context(), pool); err != nil {
		f.Fatal(err)
	}
	db, err := holdfastsql.Open(f.Context(), pool, holdfast.Options{SingleOwner: true})
	if err != nil {
		f.Fatal(err)
	}
	h, err := console.New(f.Context(), db, console.Options{BehindOwnAuthentication: true})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, name, value string) {
		for _, path := range []string{"/", "/operations", "/operation", "/reaper"} {
			page := httptest.NewRecorder()
			h.ServeHTTP(page, httptest.NewRequest(http.MethodGet, path+"?"+url.Values{name: {value}}.Encode(), nil))
			if page.Code >= http.StatusInternalServerError || strings.Contains(page.Body.String(), "<script>alert") {
				t.Errorf("%s %q=%q: %d\n%s", path, name, value, page.Code, page.Body)
			}
		}
	})
}
