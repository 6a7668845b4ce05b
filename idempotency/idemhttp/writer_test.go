package idemhttp_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/idempotency/idemclient"
	"github.com/holdfast-go/holdfast/idempotency/idemhttp"
	"github.com/holdfast-go/holdfast/internal/test/conformance"
)

// writer checks what a handler may do with a ResponseWriter: it works as with net/http, except
// for what is refused because nothing is sent before COMMIT.
func writer[Tx any](e *conformance.Env[Tx]) {
	check := func(ok bool, format string, args ...any) {
		if !ok {
			e.Errorf(format, args...)
		}
	}
	cases := map[string]struct {
		handler func(w http.ResponseWriter, r *http.Request)
		status  int
		body    string // "" is not compared
	}{
		"silent": {func(http.ResponseWriter, *http.Request) {}, 200, ""},
		"twice": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("ETag", `"1"`)
			w.WriteHeader(http.StatusAccepted)
			w.WriteHeader(http.StatusInternalServerError)
			w.Header().Set("ETag", `"late"`)
		}, 202, ""},
		"pieces": {func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, "a")
			_, _ = w.Write([]byte("b"))
			_, _ = w.Write(nil)
			_, _ = io.Copy(w, strings.NewReader("c"))
		}, 200, "abc"},
		"early hints": {func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusEarlyHints)
			w.WriteHeader(http.StatusContinue)
			w.WriteHeader(http.StatusCreated)
		}, 201, ""},
		"no content": {func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusNoContent)
			_, err := w.Write([]byte("x"))
			check(errors.Is(err, http.ErrBodyNotAllowed), "a body of 204: %v", err)
			_, err = w.Write(nil)
			check(err == nil, "no body of 204: %v", err)
		}, 204, ""},
		"wrong length": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "1000")
			_, _ = io.WriteString(w, "abc")
		}, 200, "abc"},
		"flush": {func(w http.ResponseWriter, _ *http.Request) {
			_, ok := w.(http.Flusher)
			check(!ok, "it is a Flusher")
			err := http.NewResponseController(w).Flush()
			check(errors.Is(err, http.ErrNotSupported) && strings.Contains(err.Error(), "COMMIT"), "Flush: %v", err)
		}, 200, ""},
		"hijack": {func(w http.ResponseWriter, _ *http.Request) {
			conn, _, err := http.NewResponseController(w).Hijack()
			check(conn == nil && errors.Is(err, http.ErrNotSupported) && strings.Contains(err.Error(), "COMMIT"), "Hijack: %v", err)
			err = http.NewResponseController(w).SetWriteDeadline(time.Now())
			check(errors.Is(err, http.ErrNotSupported), "SetWriteDeadline: %v", err)
		}, 200, ""},
		"switch": {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusSwitchingProtocols) }, 500, ""},
		"declared trailer": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Trailer", "X")
			_, _ = io.WriteString(w, "abc")
		}, 500, ""},
		"late trailer": {func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, "abc")
			w.Header().Set(http.TrailerPrefix+"X", "1")
		}, 500, ""},
		"not UTF-8":   {func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Content-Disposition", "a\xff") }, 500, ""},
		"own flag":    {func(w http.ResponseWriter, _ *http.Request) { w.Header().Set(idemclient.HeaderReplayed, "true") }, 200, ""},
		"bad status":  {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(99) }, 0, ""},
		"bad status2": {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(1000) }, 0, ""},
		"form": {func(w http.ResponseWriter, r *http.Request) {
			_, _ = fmt.Fprintf(w, "%s %d", r.FormValue("a"), r.ContentLength)
		}, 200, "1 7"},
	}
	s := start(e, idempotency.Options{}, idemhttp.Options{}, func(s *service[Tx], w http.ResponseWriter, r *http.Request, tx Tx) error {
		if err := s.Effect(r.Context(), tx, r.PathValue("order")); err != nil {
			return err
		}
		cases[r.PathValue("order")].handler(w, r)
		return nil
	})
	for name, c := range cases {
		ask := func() (answer, error) {
			return s.ask(s.Ctx, "POST", "/refunds/"+strings.ReplaceAll(name, " ", "%20"), `"`+name+`"`, "a=1&b=2", "Content-Type", "application/x-www-form-urlencoded")
		}
		first, err := ask()
		if c.status == 0 { // it panicked
			if err == nil {
				e.Errorf("%s: %v", name, first)
			}
			s.wantEffects(name, 0)
			continue
		}
		if err != nil || first.status != c.status || c.body != "" && first.body != c.body {
			e.Errorf("%s: %v, %v", name, first, err)
			continue
		}
		if c.status >= 500 {
			s.want(name, first, 500, idemhttp.ProblemInternal)
			s.wantEffects(name, 0)
			continue
		}
		if name == "twice" && first.header.Get("ETag") != `"1"` {
			e.Errorf("%s: a header field that came too late was sent: %v", name, first)
		}
		second, err := ask()
		if err != nil {
			e.Error(err)
		}
		s.wantReplay(first, second)
		s.wantEffects(name, 1)
	}
}

// tooLarge checks that a response that does not fit the record is rolled back with bounded
// memory, and that the largest response that fits is replayed.
func tooLarge[Tx any](e *conformance.Env[Tx]) {
	const limit = 4096
	s := start(e, idempotency.Options{MaxResult: limit}, idemhttp.Options{}, func(s *service[Tx], w http.ResponseWriter, r *http.Request, tx Tx) error {
		if err := s.Effect(r.Context(), tx, r.PathValue("order")); err != nil {
			return err
		}
		switch r.PathValue("order") {
		case "fits":
			_, _ = io.WriteString(w, strings.Repeat("x", 2800))
		case "encoded":
			_, _ = io.WriteString(w, strings.Repeat("x", 3500))
		case "header":
			w.Header().Set("Link", strings.Repeat("x", 4096))
		case "rejected":
			w.WriteHeader(http.StatusUnprocessableEntity)
			_, _ = io.WriteString(w, strings.Repeat("x", 3500))
			return idempotency.Reject("large", "too large")
		case "failed":
			http.Error(w, strings.Repeat("x", limit+1), http.StatusBadGateway)
			return errBoom
		case "endless":
			var err error
			for n := 0; err == nil; n++ {
				if _, err = io.WriteString(w, "x"); n > limit {
					s.Error("Write takes more than the store keeps")
					break
				}
			}
		}
		return nil
	})
	first := s.post("fits", "fits", "1")
	s.want("fits", first, http.StatusOK, "")
	s.wantReplay(first, s.post("fits", "fits", "1"))
	for _, order := range []string{"encoded", "header", "rejected", "failed", "endless"} {
		s.want(order, s.post(order, order, "1"), http.StatusInternalServerError, idemhttp.ProblemInternal)
		s.wantEffects(order, 0)
	}
	if !strings.Contains(s.log.String(), "MaxResult") {
		e.Error("the log does not say what to do")
	}
}

// trapPanic checks that a panic rolls back, frees the key, and reaches the server.
func trapPanic[Tx any](e *conformance.Env[Tx]) {
	s := start(e, idempotency.Options{}, idemhttp.Options{}, func(s *service[Tx], w http.ResponseWriter, r *http.Request, tx Tx) error {
		err := refund(s, w, r, tx)
		switch s.runs.Load() {
		case 1:
			panic(errBoom)
		case 2:
			panic(http.ErrAbortHandler)
		}
		return err
	})
	for range 2 {
		if a, err := s.ask(s.Ctx, "POST", "/refunds/a", "k", ""); err == nil {
			e.Errorf("got %v of a handler that panicked", a)
		}
		s.wantEffects("a", 0)
	}
	if n := strings.Count(s.log.String(), "panic serving"); n != 1 { // the server does not log ErrAbortHandler
		e.Errorf("the server saw %d panics, want 1:\n%s", n, s.log.String())
	}
	s.want("after the panics", s.post("a", "k", ""), http.StatusCreated, "")
	e.WantOnce("a")
}

// trapClientGoesAway disconnects the client. Before COMMIT, the work is rolled back and a
// retry executes it. After COMMIT, the work stays and a retry replays it.
func trapClientGoesAway[Tx any](e *conformance.Env[Tx]) {
	working, left := make(chan struct{}), make(chan struct{})
	s := start(e, idempotency.Options{}, idemhttp.Options{}, func(s *service[Tx], w http.ResponseWriter, r *http.Request, tx Tx) error {
		err := refund(s, w, r, tx)
		if s.runs.Load() == 1 {
			close(working)
			<-r.Context().Done()
			defer close(left)
		}
		return err
	})
	ctx, leave := context.WithCancel(s.Ctx)
	go func() {
		<-working
		leave()
	}()
	if a, err := s.ask(ctx, "POST", "/refunds/before", "before", ""); err == nil {
		e.Errorf("got %v", a)
	}
	<-left
	again := s.post("before", "before", "")
	s.want("after it was cancelled", again, http.StatusCreated, "")
	e.WantOnce("before")

	// The client reads nothing: the answer is lost, the effect is not.
	conn, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
	if err != nil {
		e.Fatal(err)
	}
	if _, err := fmt.Fprintf(conn, "POST /refunds/after HTTP/1.1\r\nHost: x\r\nIdempotency-Key: after\r\nContent-Length: 0\r\n\r\n"); err != nil {
		e.Fatal(err)
	}
	if _, err := bufio.NewReader(conn).ReadByte(); err != nil { // the first byte comes after COMMIT
		e.Error(err)
	}
	_ = conn.Close()
	e.WantOnce("after")
	if a := s.post("after", "after", ""); !a.replayed || a.status != http.StatusCreated {
		e.Errorf("got %v", a)
	}
	e.WantOnce("after")
}
