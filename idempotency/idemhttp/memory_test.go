package idemhttp_test

import (
	"fmt"
	"io"
	"math"
	"net/http"
	"strconv"
	"strings"

	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/idempotency/idemclient"
	"github.com/holdfast-go/holdfast/idempotency/idemhttp"
	"github.com/holdfast-go/holdfast/internal/test/conformance"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
)

// heldMemory fills the memory of a middleware with bodies that wait in their handlers. One request more is
// refused with 503 before its handler runs, and executed later with the same key.
func heldMemory[Tx any](e *conformance.Env[Tx]) {
	const body = 512
	fits := 4
	if e.Engine == dbtest.SQLite {
		fits = 1 // has one transaction that writes
	}
	entered, free := make(chan struct{}), make(chan struct{})
	s := start(e, idempotency.Options{}, idemhttp.Options{MaxHeld: int64(2 * body * fits)}, func(_ *service[Tx], w http.ResponseWriter, r *http.Request, _ Tx) error {
		if strings.HasPrefix(r.URL.Path, "/other/") {
			_, err := io.WriteString(w, strings.Repeat("y", 2*body*fits+1))
			return err
		}
		if r.PathValue("order") == "slow" {
			entered <- struct{}{}
			<-free
		}
		w.WriteHeader(http.StatusCreated)
		return nil
	})
	answers := make(chan answer)
	for i := range fits {
		go func() { answers <- s.post("slow", fmt.Sprint("slow", i), strings.Repeat("x", 2*body)) }()
		select {
		case <-entered:
		case <-e.Ctx.Done():
			e.Fatal("a request that fits did not come to its handler")
		}
	}
	s.wantRuns(int32(fits))
	for _, chunked := range []bool{false, true} {
		a := s.send("quick", strings.Repeat("x", body), chunked)
		s.want("one too many", a, http.StatusServiceUnavailable, idemhttp.ProblemBusy)
		if a.header.Get("Retry-After") != "1" {
			e.Errorf("Retry-After is %q", a.header.Get("Retry-After"))
		}
	}
	s.wantRuns(0)
	close(free)
	for range fits {
		s.want("one that fits", <-answers, http.StatusCreated, "")
	}
	s.want("the one too many, later", s.send("quick", strings.Repeat("x", body), false), http.StatusCreated, "")
	// A response counts, too, and what it wrote is rolled back.
	a, err := s.ask(e.Ctx, http.MethodPost, "/other/large", "large", "")
	if err != nil {
		e.Fatal(err)
	}
	s.want("a response that is too large", a, http.StatusServiceUnavailable, idemhttp.ProblemBusy)
	// All of it was given back.
	s.want("a request as large as all of it", s.send("whole", strings.Repeat("x", 2*body*fits), false), http.StatusCreated, "")
	if n := s.records(); n != fits+2 {
		e.Errorf("%d records, want %d", n, fits+2)
	}
}

// send posts a body, with its length or without.
func (s *service[Tx]) send(key, body string, chunked bool) answer {
	s.Helper()
	var from io.Reader = strings.NewReader(body)
	if chunked {
		from = io.MultiReader(from) // which net/http does not know the length of
	}
	r, err := http.NewRequestWithContext(s.Ctx, http.MethodPost, s.url+"/refunds/quick", from)
	if err != nil {
		s.Fatal(err)
	}
	r.Header.Set(idemclient.HeaderKey, key)
	resp, err := s.client.Do(r)
	if err != nil {
		s.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		s.Error(err)
	}
	return answer{resp.StatusCode, resp.Header, string(text), false}
}

// tooManyKeys floods as one tenant: 429 with Retry-After, without a run of the handler. Its earlier
// requests are replayed, and another tenant is served.
func tooManyKeys[Tx any](e *conformance.Env[Tx]) {
	o := idemhttp.Options{Owner: func(r *http.Request) (string, error) { return r.Header.Get("X-Tenant"), nil }}
	s := start(e, idempotency.Options{MaxNew: 3}, o, func(_ *service[Tx], _ http.ResponseWriter, _ *http.Request, _ Tx) error {
		return idempotency.Reject("no", "never") // the cheapest way to make records
	})
	var first answer
	for i := range 3 {
		first = s.post("a", fmt.Sprint(i), "1", "X-Tenant", "eve")
		s.want("within the bound", first, http.StatusUnprocessableEntity, idemhttp.ProblemRejected)
	}
	s.wantRuns(3)
	a := s.post("a", "3", "1", "X-Tenant", "eve")
	s.want("beyond it", a, http.StatusTooManyRequests, idemhttp.ProblemTooMany)
	after, err := strconv.ParseFloat(a.header.Get("Retry-After"), 64)
	if err != nil || after < 1 || after > math.Ceil(3600/3.) {
		e.Errorf("Retry-After is %q", a.header.Get("Retry-After"))
	}
	s.wantRuns(0)
	s.wantReplay(first, s.post("a", "2", "1", "X-Tenant", "eve"))
	s.want("another tenant", s.post("a", "3", "1", "X-Tenant", "anna"), http.StatusUnprocessableEntity, idemhttp.ProblemRejected)
	if n := s.records(); n != 4 {
		e.Errorf("%d records", n)
	}
}
