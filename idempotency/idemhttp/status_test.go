package idemhttp_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/idempotency/idemclient"
	"github.com/holdfast-go/holdfast/idempotency/idemhttp"
	"github.com/holdfast-go/holdfast/internal/test/conformance"
)

// doubleClick sends 20 requests at once to two processes. There is one effect, one request
// executes, all get the same bytes, and the replays are marked.
func doubleClick[Tx any](e *conformance.Env[Tx]) {
	wait := idempotency.Options{Wait: time.Minute}
	replicas := []*service[Tx]{start(e, wait, idemhttp.Options{}, refund[Tx])}
	replicas = append(replicas, replicas[0].replica(wait, idemhttp.Options{}, refund[Tx]))
	answers := make([]answer, 20)
	var wg sync.WaitGroup
	for i := range answers {
		wg.Go(func() { answers[i] = replicas[i%2].post("A-17", `"k"`, "100", "Content-Type", "text/plain") })
	}
	wg.Wait()
	executed := 0
	for _, a := range answers {
		if !a.replayed {
			executed++
		}
		if a.status != http.StatusCreated || a.body != answers[0].body || a.header.Get("Location") != "/refunds/A-17" ||
			a.header.Get("Content-Type") != "text/plain" || !strings.HasSuffix(a.body, "\x00\xff") {
			e.Errorf("got %v, another got %v", a, answers[0])
		}
	}
	if executed != 1 {
		e.Errorf("%d answers are not marked as replayed, want 1", executed)
	}
	e.WantOnce("A-17")
	// The bare and the quoted form are the same key.
	if a := replicas[0].post("A-17", "k", "100", "Content-Type", "text/plain"); !a.replayed || a.body != answers[0].body {
		e.Errorf("bare: %v", a)
	}
}

// statuses checks that each outcome has a distinct status and problem type.
func statuses[Tx any](e *conformance.Env[Tx]) {
	started, free := make(chan struct{}), make(chan struct{})
	o := idemhttp.Options{Wait: holdfast.NoWait}
	patient := idempotency.Options{Wait: 2 * time.Minute}
	s := start(e, patient, o, func(s *service[Tx], w http.ResponseWriter, r *http.Request, tx Tx) error {
		if r.PathValue("order") == "slow" {
			close(started)
			<-free
		}
		return refund(s, w, r, tx)
	})
	other := s.replica(patient, o, refund[Tx])
	held := make(chan answer)
	go func() { held <- s.post("slow", "slow", "100") }()
	<-started
	asked := time.Now()
	for what, s := range map[string]*service[Tx]{"same process": s, "another process": other} {
		a := s.post("slow", "slow", "100")
		s.want("in flight, "+what, a, http.StatusConflict, idemhttp.ProblemInProgress)
		if a.header.Get("Retry-After") != "1" {
			e.Errorf("in flight: Retry-After is %q", a.header.Get("Retry-After"))
		}
	}
	if waited := time.Since(asked); waited > time.Minute {
		e.Errorf("NoWait waited for %v", waited)
	}
	close(free)
	first := <-held
	s.want("executed", first, http.StatusCreated, "")
	s.wantReplay(first, s.post("slow", "slow", "100"))
	other.wantReplay(first, other.post("slow", "slow", "100"))
	s.want("another body", s.post("slow", "slow", "101"), http.StatusUnprocessableEntity, idemhttp.ProblemMismatch)
	s.want("another order", s.post("fast", "slow", "100"), http.StatusUnprocessableEntity, idemhttp.ProblemMismatch)
	s.wantRuns(1)
	if a, err := s.ask(s.Ctx, "POST", "/other/slow", "slow", "100"); err != nil || a.status != http.StatusCreated || a.replayed {
		e.Errorf("a key of another operation: %v, %v", a, err)
	}
	e.WantOnce("slow")
}

// requests checks that a bad request is refused before any work starts.
func requests[Tx any](e *conformance.Env[Tx]) {
	s := start(e, idempotency.Options{}, idemhttp.Options{MaxKey: 8, MaxBody: 1 << 10}, refund[Tx])
	const bad = http.StatusBadRequest
	s.want("missing", s.post("a", "", "1"), bad, idemhttp.ProblemKeyMissing)
	s.want("empty", s.post("a", `""`, "1"), bad, idemhttp.ProblemKeyMalformed)
	s.want("blank", s.post("a", "", "1", idemclient.HeaderKey, " "), bad, idemhttp.ProblemKeyMalformed)
	s.want("too long", s.post("a", `"123456789"`, "1"), bad, idemhttp.ProblemKeyMalformed)
	s.want("unquoted blank", s.post("a", "a b", "1"), bad, idemhttp.ProblemKeyMalformed)
	s.want("two fields", s.post("a", "a", "1", idemclient.HeaderKey, "b"), bad, idemhttp.ProblemKeyMalformed)
	s.want("two fields joined", s.post("a", "a, b", "1"), bad, idemhttp.ProblemKeyMalformed)
	s.want("body too large", s.post("a", "a", strings.Repeat("x", 1<<10+1)), http.StatusRequestEntityTooLarge, idemhttp.ProblemBodyTooLarge)
	s.wantRuns(0)
	if n := s.records(); n != 0 {
		e.Errorf("%d records", n)
	}
	// Values at the limits are accepted, and the handler gets the whole body.
	a := s.post("a", `"12345678"`, strings.Repeat("x", 1<<10))
	if a.status != http.StatusCreated || !strings.Contains(a.body, strings.Repeat("x", 1<<10)) {
		e.Errorf("at the bounds: %v", a)
	}
	s.want("no body", s.post("b", "b", ""), http.StatusCreated, "")
	// The length of a chunked request is known after it has been read.
	chunked := s.replica(idempotency.Options{}, idemhttp.Options{}, func(_ *service[Tx], w http.ResponseWriter, r *http.Request, _ Tx) error {
		_, err := fmt.Fprint(w, r.ContentLength, r.TransferEncoding)
		return err
	})
	r, _ := http.NewRequestWithContext(e.Ctx, http.MethodPost, chunked.url+"/refunds/chunked", io.MultiReader(strings.NewReader("12"), strings.NewReader("3")))
	r.Header.Set(idemclient.HeaderKey, "chunked")
	if resp, err := chunked.client.Do(r); err != nil {
		e.Error(err)
	} else {
		defer resp.Body.Close()
		if text, _ := io.ReadAll(resp.Body); string(text) != "3 []" {
			e.Errorf("a body in chunks: length and encoding are %s", text)
		}
	}

	derived := s.replica(idempotency.Options{}, idemhttp.Options{
		Key: func(r *http.Request, body []byte) (string, error) {
			if len(body) == 0 {
				return "", fmt.Errorf("give a refund number")
			}
			return idempotency.KeyOf(r.PathValue("order"), string(body)), nil
		},
		Fingerprint: func(_ *http.Request, body []byte) ([]byte, error) {
			if string(body) == "?" {
				return nil, errBoom
			}
			return []byte{1}, nil
		},
	}, refund[Tx])
	first := derived.post("c", "", "1")
	derived.want("derived", first, http.StatusCreated, "")
	derived.wantReplay(first, derived.post("c", "another header", "1"))
	derived.want("no key can be made", derived.post("c", "", ""), bad, idemhttp.ProblemRequest)
	derived.want("no fingerprint can be made", derived.post("c", "", "?"), bad, idemhttp.ProblemRequest)
	e.WantOnce("c")
}

// decisions checks which responses are stored, by their status.
func decisions[Tx any](e *conformance.Env[Tx]) {
	s := start(e, idempotency.Options{}, idemhttp.Options{}, func(s *service[Tx], w http.ResponseWriter, r *http.Request, tx Tx) error {
		var status int
		_, _ = fmt.Sscan(r.PathValue("order"), &status)
		if err := s.Effect(r.Context(), tx, r.PathValue("order")); err != nil {
			return err
		}
		w.WriteHeader(status)
		if status != http.StatusNoContent && status != http.StatusNotModified {
			_, _ = fmt.Fprintf(w, "answer %d", s.runs.Load())
		}
		return nil
	})
	for status, c := range map[int]struct {
		kept    bool
		effects int
	}{
		200: {true, 1}, 201: {true, 1}, 204: {true, 1}, 299: {true, 1}, 304: {true, 1},
		402: {true, 0}, 403: {true, 0}, 404: {true, 0}, 410: {true, 0}, 422: {true, 0},
		400: {false, 0}, 401: {false, 0}, 408: {false, 0}, 413: {false, 0}, 425: {false, 0}, 429: {false, 0},
		409: {false, 0}, 412: {false, 0}, 423: {false, 0}, 424: {false, 0}, // answers about a moment
		500: {false, 0}, 502: {false, 0}, 503: {false, 0}, 599: {false, 0},
	} {
		order := fmt.Sprint(status)
		first, second := s.post(order, order, "1"), s.post(order, order, "1")
		if first.status != status || first.replayed {
			e.Errorf("first %v", first)
		}
		if c.kept {
			s.wantReplay(first, second)
			s.wantRuns(1)
		} else {
			if second.replayed || second.status != status {
				e.Errorf("again %v", second)
			}
			s.want(order+" leaves the key free, for another body too", s.post(order, order, "2"), status, "")
			s.wantRuns(3)
		}
		s.wantEffects(order, c.effects)
	}

	own := s.replica(idempotency.Options{}, idemhttp.Options{Decide: func(status int) idemhttp.Decision {
		return map[int]idemhttp.Decision{200: idemhttp.Discard, 422: idemhttp.Commit, 500: idemhttp.Reject}[status]
	}}, func(s *service[Tx], w http.ResponseWriter, r *http.Request, tx Tx) error {
		var status int
		_, _ = fmt.Sscan(r.PathValue("order")[1:], &status)
		w.WriteHeader(status)
		return s.Effect(r.Context(), tx, r.PathValue("order"))
	})
	for order, kept := range map[string]bool{"x200": false, "x422": true, "x500": true, "x207": false} {
		if own.post(order, order, "1"); own.post(order, order, "1").replayed != kept {
			e.Errorf("%s with a decision of its own: replayed is %v", order, !kept)
		}
	}
	own.wantEffects("x422", 1)
	own.wantEffects("x500", 0)
	own.wantEffects("x200", 0)
}

// declines declines the first request of each order and pays the next. A client whose key is the order's number is
// paid only if a decline is not stored. One that takes a new key after a decline is paid once only if it is.
func declines[Tx any](e *conformance.Env[Tx]) {
	declined := func(o idemhttp.Options) *service[Tx] {
		asked := map[string]bool{}
		return start(e, idempotency.Options{}, o, func(s *service[Tx], w http.ResponseWriter, r *http.Request, tx Tx) error {
			if order := r.PathValue("order"); !asked[order] {
				asked[order] = true
				w.WriteHeader(http.StatusPaymentRequired)
				return nil
			}
			return refund(s, w, r, tx)
		})
	}
	final, open := declined(idemhttp.Options{}), declined(idemhttp.Options{Declined: idemhttp.Discard})

	first := final.post("late", "1", "100")
	final.want("declined", first, http.StatusPaymentRequired, "")
	final.want("a new key", final.post("late", "2", "100"), http.StatusCreated, "")
	final.wantReplay(first, final.post("late", "1", "100")) // a late twin of the first
	e.WantOnce("late")

	open.want("declined", open.post("order", "order", "100"), http.StatusPaymentRequired, "")
	open.want("with another card", open.post("order", "order", "card 2"), http.StatusCreated, "")
	e.WantOnce("order")
}

// passThrough checks that methods that need no key get no key and no transaction.
func passThrough[Tx any](e *conformance.Env[Tx]) {
	s := start(e, idempotency.Options{}, idemhttp.Options{Methods: []string{"POST", "PUT"}}, refund[Tx])
	for method, status := range map[string]int{
		"GET": 405, "HEAD": 405, "PATCH": 405, "DELETE": 405, "POST": 400, "PUT": 400,
	} {
		a, err := s.ask(s.Ctx, method, "/refunds/a", "", "")
		if err != nil || a.status != status {
			e.Errorf("%s without a key: %v, %v, want %d", method, a, err, status)
		}
		if status == 405 && a.header.Get("Allow") != "POST, PUT" {
			e.Errorf("%s: Allow is %q", method, a.header.Get("Allow"))
		}
	}
	s.wantRuns(0)
	if a, err := s.ask(context.Background(), "PUT", "/refunds/a", "k", ""); err != nil || a.status != http.StatusCreated {
		e.Errorf("PUT: %v, %v", a, err)
	}
	e.WantOnce("a")
}

// documented checks that every error links to the service's documentation, and that no answer
// of a handler does.
func documented[Tx any](e *conformance.Env[Tx]) {
	const link = `<https://api.example.com/keys>; rel="describedby"; type="text/html"`
	s := start(e, idempotency.Options{}, idemhttp.Options{Documentation: "https://api.example.com/keys"}, refund[Tx])
	for _, c := range []struct {
		what, key, body string
		status          int
		problem         string
	}{
		{"a first one", `"k"`, "100", http.StatusCreated, ""},
		{"no key", "", "100", http.StatusBadRequest, idemhttp.ProblemKeyMissing},
		{"no string", `""`, "100", http.StatusBadRequest, idemhttp.ProblemKeyMalformed},
		{"another request", `"k"`, "200", http.StatusUnprocessableEntity, idemhttp.ProblemMismatch},
		{"another request again", `"k"`, "200", http.StatusUnprocessableEntity, idemhttp.ProblemMismatch},
	} {
		a := s.post("A-1", c.key, c.body)
		s.want(c.what, a, c.status, c.problem)
		want := ""
		if c.problem != "" {
			want = link
		}
		if got := a.header.Get("Link"); got != want {
			e.Errorf("%s: Link is %q, want %q", c.what, got, want)
		}
	}
	if a := s.post("A-1", `"k"`, "100"); !a.replayed || a.header.Get("Link") != "" {
		e.Errorf("a duplicate: %v", a)
	}
	e.WantOnce("A-1")
}
