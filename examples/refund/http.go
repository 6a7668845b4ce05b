package main

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"time"
)

// handler is the service's API and its page.
func (s *service) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /orders/{order}/refunds", s.postRefund)
	mux.HandleFunc("GET /orders", s.getOrders)
	mux.HandleFunc("POST /orders", s.postOrder)
	mux.HandleFunc("GET /ledger", s.getLedger)
	mux.HandleFunc("GET /events", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, http.StatusOK, map[string]any{"events": s.events.recent()})
	})
	mux.HandleFunc("GET /protections", s.getProtections)
	mux.HandleFunc("GET /healthz", s.getHealth)
	mux.HandleFunc("GET /{$}", getPage)
	// A page of another site must not be able to send refunds from a browser.
	return http.NewCrossOriginProtection().Handler(mux)
}

// authenticate says whose request it is. Here everybody is the one merchant of
// the demo; a real service takes the merchant from a verified credential, and
// never from a field that the client fills in.
func (s *service) authenticate(*http.Request) string { return s.merchant }

func (s *service) getOrders(w http.ResponseWriter, r *http.Request) {
	overview, err := s.overview(r.Context(), s.authenticate(r))
	if err != nil {
		writeFailure(w, err)
		return
	}
	writeJSON(w, http.StatusOK, map[string]any{"orders": overview})
}

func (s *service) postOrder(w http.ResponseWriter, r *http.Request) {
	order := demoOrder(s.authenticate(r))
	if err := createOrders(r.Context(), s.pool, []Order{order}); err != nil {
		writeFailure(w, err)
		return
	}
	writeJSON(w, http.StatusCreated, order)
}

func (s *service) getLedger(w http.ResponseWriter, r *http.Request) {
	entries, paidOut, err := s.ledger(r.Context(), s.authenticate(r))
	if err != nil {
		writeFailure(w, err)
		return
	}
	writeJSON(w, http.StatusOK, map[string]any{"entries": entries, "paid_out": paidOut})
}

func (s *service) getProtections(w http.ResponseWriter, _ *http.Request) {
	type choice struct {
		Name string `json:"name"`
		Says string `json:"says"`
		Safe bool   `json:"safe"`
	}
	var choices []choice
	for _, p := range protections {
		choices = append(choices, choice{p.name, p.says, p.safe})
	}
	writeJSON(w, http.StatusOK, map[string]any{"protections": choices, "default": s.protect})
}

func (s *service) getHealth(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), time.Second)
	defer cancel()
	if err := s.pool.PingContext(ctx); err != nil {
		writeProblem(w, problem{Status: http.StatusServiceUnavailable, Code: "unavailable", Detail: "the database does not answer"})
		return
	}
	writeJSON(w, http.StatusOK, map[string]string{"status": "ok"})
}

// writeFailure answers a read that failed. What the database said goes to the
// log, not to the client.
func writeFailure(w http.ResponseWriter, err error) {
	slog.Error("request failed", "error", err)
	writeProblem(w, problem{Status: http.StatusServiceUnavailable, Code: "unavailable", Detail: "try again in a moment"})
}

func writeJSON(w http.ResponseWriter, status int, body any) {
	text, err := json.Marshal(body)
	if err != nil {
		slog.Error("an answer has no JSON form", "error", err)
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	if w.Header().Get("Content-Type") == "" {
		w.Header().Set("Content-Type", "application/json")
	}
	send(w, status, text)
}

func send(w http.ResponseWriter, status int, body []byte) {
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_, _ = w.Write(body) // a client that is gone is told nothing
}

// problem is an error as RFC 9457 has it.
type problem struct {
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail,omitempty"`
	Code   string `json:"code"` // for programs; stable
}

func writeProblem(w http.ResponseWriter, p problem) {
	p.Type, p.Title = "about:blank", http.StatusText(p.Status)
	w.Header().Set("Content-Type", "application/problem+json")
	writeJSON(w, p.Status, p)
}
