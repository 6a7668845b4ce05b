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
	"github.com/holdfast-go/holdfast/internal/conformance"
	"github.com/holdfast-go/holdfast/internal/dbtest"
	"github.com/holdfast-go/holdfast/sqllock"
)

func TestMain(m *testing.M) { dbtest.VerifyNoLeaks(m) }

const token = "a token of sufficient length"

// site is a console on a database, mounted below a prefix, and a browser's end.
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
	h, err := console.New(e.Ctx, e.DB, o)
	if err != nil {
		e.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle("/ops/console/", http.StripPrefix("/ops/console", h))
	server := httptest.NewServer(mux)
	jar, _ := cookiejar.New(nil)
	transport := &http.Transport{}
	e.Cleanup(func() { transport.CloseIdleConnections(); server.Close() })
	return &site{Env: e, URL: server.URL + "/ops/console/", client: &http.Client{Jar: jar, Transport: transport}}
}

// signedIn serves and signs in.
func signedIn(e *conformance.Env[*sql.Tx], o console.Options) *site {
	e.Helper()
	s := serve(e, o)
	if status, body := s.post("login", url.Values{"token": {token}}); status != http.StatusOK || !strings.Contains(body, "Leases") {
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

// want fails unless all texts are in the page.
func (s *site) want(page string, texts ...string) {
	s.Helper()
	for _, text := range texts {
		if !strings.Contains(page, text) {
			s.Errorf("%q is not in\n%s", text, page)
		}
	}
}

// forms are those of a page that go to an action, with what is in them.
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

// locker is a process with locks.
func (s *site) locker(holder string) *sqllock.Locker[*sql.Tx] {
	s.Helper()
	l, err := sqllock.New(s.Ctx, s.DB, sqllock.Options{Holder: holder})
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { _ = l.Close(context.WithoutCancel(s.Ctx)) })
	return l
}

// park leaves an operation unknown, at the call of its step.
func (s *site) park(op idempotency.Op, problem string) *idempotency.Staged[*sql.Tx, int, int] {
	s.Helper()
	store, err := idempotency.New(s.Ctx, s.DB, idempotency.Options{SingleTenant: op.Tenant == ""})
	if err != nil {
		s.Fatal(err)
	}
	staged, err := idempotency.NewStaged(store, idempotency.Stages[*sql.Tx, int, int]{
		Name: op.Name,
		Run: func(ctx context.Context, r *idempotency.Run[*sql.Tx], _ int) (int, error) {
			return idempotency.Call(ctx, r, idempotency.Outside[int]{Step: "pay"}, func(context.Context, string) (int, error) {
				return 0, errors.New(problem)
			})
		},
	})
	if err != nil {
		s.Fatal(err)
	}
	var parked *idempotency.ParkedError
	if _, err := staged.Do(s.Ctx, op, 1250); !errors.As(err, &parked) {
		s.Fatal(err)
	}
	return staged
}

func refund(key string) idempotency.Op {
	return idempotency.Op{Tenant: "shop-7", Name: "refund", Key: key}
}

// linkTo is the link to the operation with this key, in a list.
func (s *site) linkTo(page, key string) string {
	s.Helper()
	m := regexp.MustCompile(`href="(operation\?id=[0-9a-f]{64})">` + regexp.QuoteMeta(key) + `<`).FindStringSubmatch(page)
	if m == nil {
		s.Fatalf("no link to %s in\n%s", key, page)
	}
	return m[1]
}
