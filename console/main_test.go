package console_test

import (
	"context"
	"database/sql"
	"errors"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/console"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/idempotency/staged"
	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/test/conformance"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
	"github.com/holdfast-go/holdfast/sqllock"
)

func TestMain(m *testing.M) { dbtest.VerifyNoLeaks(m) }

const token = "a token of sufficient length"

// site is a console on a database, mounted below a prefix, with an HTTP client.
type site struct {
	*conformance.Env[*sql.Tx]
	URL    string
	client *http.Client
}

func onEveryEngine(t *testing.T, f func(e *conformance.Env[*sql.Tx])) {
	t.Parallel()
	conformance.Run(t, conformance.SQL(), f)
}

func serve(e *conformance.Env[*sql.Tx], o console.Options) *site {
	e.Helper()
	if !o.BehindOwnAuthentication && o.Token == "" {
		o.Token = token
	}
	ending := make(chan struct{})
	o.Ending = ending
	h, err := console.New(e.Ctx, e.DB, o)
	if err != nil {
		e.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle("/ops/console/", http.StripPrefix("/ops/console", h))
	server := httptest.NewServer(mux)
	jar, _ := cookiejar.New(nil)
	transport := &http.Transport{}
	e.Cleanup(func() { close(ending); transport.CloseIdleConnections(); server.Close() })
	return &site{Env: e, URL: server.URL + "/ops/console/", client: &http.Client{Jar: jar, Transport: transport}}
}

// signedIn serves a console and signs in.
func signedIn(e *conformance.Env[*sql.Tx], o console.Options) *site {
	e.Helper()
	s := serve(e, o)
	if status, body := s.post("login", url.Values{"token": {token}}); status != http.StatusOK || !strings.Contains(body, "Overview") {
		e.Fatal(status, body)
	}
	return s
}

func (s *site) do(r *http.Request) (status int, body string, header http.Header) {
	s.Helper()
	answer, err := s.client.Do(r)
	if err != nil {
		s.Fatal(err)
	}
	defer answer.Body.Close()
	b, err := io.ReadAll(answer.Body)
	if err != nil {
		s.Fatal(err)
	}
	return answer.StatusCode, string(b), answer.Header
}

func (s *site) get(path string) (status int, body string) {
	s.Helper()
	r, _ := http.NewRequestWithContext(s.Ctx, http.MethodGet, s.URL+path, nil)
	status, body, _ = s.do(r)
	return status, body
}

func (s *site) post(path string, form url.Values) (status int, body string) {
	s.Helper()
	r, _ := http.NewRequestWithContext(s.Ctx, http.MethodPost, s.URL+path, strings.NewReader(form.Encode()))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("Sec-Fetch-Site", "same-origin")
	status, body, _ = s.do(r)
	return status, body
}

// want fails unless the page contains all texts.
func (s *site) want(page string, texts ...string) {
	s.Helper()
	for _, text := range texts {
		if !strings.Contains(page, text) {
			s.Errorf("%q is not in\n%s", text, page)
		}
	}
}

// forms returns the fields of the page's forms that post to action.
func (s *site) forms(page, action string) (forms []url.Values) {
	s.Helper()
	input := regexp.MustCompile(`name="(\w+)" value="([^"]*)"`)
	for _, part := range strings.Split(page, "<form ")[1:] {
		part, _, _ = strings.Cut(part, "</form>")
		if !strings.Contains(part, `action="`+action+`"`) {
			continue
		}
		form := url.Values{}
		for _, m := range input.FindAllStringSubmatch(part, -1) {
			form.Set(m[1], m[2])
		}
		forms = append(forms, form)
	}
	return forms
}

// locker opens a Locker with this holder, as another process does.
func (s *site) locker(holder string) *sqllock.Locker[*sql.Tx] {
	s.Helper()
	l, err := sqllock.New(s.Ctx, s.DB, sqllock.Options{Holder: holder})
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { _ = l.Close(context.WithoutCancel(s.Ctx)) })
	return l
}

// park leaves an operation unknown at the call of its step.
func (s *site) park(op idempotency.Op, problem string) *staged.Runner[int, int, *sql.Tx] {
	s.Helper()
	return parkAs[int](s, op, problem)
}

// parkAs is park with a step that returns a T.
func parkAs[T any](s *site, op idempotency.Op, problem string) *staged.Runner[int, T, *sql.Tx] {
	s.Helper()
	store, err := idempotency.New(s.Ctx, access.WithOwners(s.DB, core.AnyOwner))
	if err != nil {
		s.Fatal(err)
	}
	runner, err := staged.New(store, staged.Workflow[int, T, *sql.Tx]{
		Name: op.Name,
		Run: func(ctx context.Context, r *staged.Run[*sql.Tx], _ int) (T, error) {
			return staged.Call(ctx, r, staged.ExternalCall[T]{Step: "pay"}, func(context.Context, string) (none T, err error) {
				return none, errors.New(problem)
			})
		},
	})
	if err != nil {
		s.Fatal(err)
	}
	var parked *staged.ParkedError
	if _, err := runner.Do(s.Ctx, op, 1250); !errors.As(err, &parked) {
		s.Fatal(err)
	}
	return runner
}

func refund(key string) idempotency.Op {
	return idempotency.Op{Owner: "shop-7", Name: "refund", Key: key}
}

// linkTo returns the link to the operation or the proposal with this key in a list.
func (s *site) linkTo(page, key string) string {
	s.Helper()
	m := regexp.MustCompile(`href="((?:operation|proposal)\?id=[0-9a-f]{32,})">` + regexp.QuoteMeta(key) + `<`).FindStringSubmatch(page)
	if m == nil {
		s.Fatalf("no link to %s in\n%s", key, page)
	}
	return m[1]
}

// id returns the id of the unknown operation with this key.
func (s *site) id(key string) string {
	s.Helper()
	_, list := s.get("operations")
	return strings.TrimPrefix(s.linkTo(list, key), "operation?id=")
}
