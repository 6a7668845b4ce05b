package main

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"github.com/holdfast-go/holdfast"
)

// handler returns the service's API and its page.
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
	// Prevent a page of another site from sending refunds from a browser.
	return http.NewCrossOriginProtection().Handler(mux)
}

// authenticate returns the merchant of a request. In this demo every request comes from one
// merchant. A real service takes the merchant from a verified credential, and never from a field
// that the client fills in.
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

func (s *service) getProtections(w http.ResponseWriter, r *http.Request) {
	type choice struct {
		Name    string `json:"name"`
		Says    string `json:"says"`
		Safe    bool   `json:"safe"`
		Refused string `json:"refused,omitempty"` // why the engine cannot support it
	}
	var choices []choice
	for _, p := range protections {
		_, err := s.strategy(r.Context(), p)
		why := refusal(err)
		if err != nil && why == "" {
			writeFailure(w, err)
			return
		}
		choices = append(choices, choice{p.name, p.says, p.safe, why})
	}
	writeJSON(w, http.StatusOK, map[string]any{"protections": choices, "default": s.protect})
}

// refusal says what an engine cannot guarantee; empty for any other error.
func refusal(err error) string {
	var refused *holdfast.UnsupportedError
	if !errors.As(err, &refused) {
		return ""
	}
	return refused.What + ": " + refused.Problem
}

// writeUnopened answers a request for a protection that cannot be opened.
func writeUnopened(w http.ResponseWriter, err error) {
	why := refusal(err)
	if why == "" {
		writeFailure(w, err)
		return
	}
	writeProblem(w, problem{Status: http.StatusNotImplemented, Code: "unsupported", Detail: why})
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

// writeFailure answers a failed read. The database's message goes to the log, not to the client.
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
	_, _ = w.Write(body) // the client may have disconnected
}

// problem is an error as defined by RFC 9457.
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
