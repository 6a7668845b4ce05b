package main

import (
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/idempotency/idemclient"
	"github.com/holdfast-go/holdfast/idempotency/idemhttp"
	"github.com/holdfast-go/holdfast/idempotency/staged"
	"github.com/holdfast-go/holdfast/reaper"
)

// service is one process of the service.
type service interface {
	handler() http.Handler
	// work runs beside the handlers until ctx ends.
	work(ctx context.Context)
	close()
}

// config is what a process of the service has to know.
type config struct {
	bank, protect, secret string
}

// How payments are protected.
const (
	protected   = "holdfast"
	unprotected = "none"
)

// shop is the service on one handle.
type shop[Tx any] struct {
	config
	db       *database[Tx]
	reads    *sql.DB
	store    *idempotency.Store[Tx]
	payments *staged.Runner[request, receipt, Tx]
	reaper   *reaper.Reaper
	bank     *bankClient
	once     *idemhttp.Middleware[Tx]
	status   http.Handler
	count    *counter
	closes   func()
}

func newService[Tx any](ctx context.Context, db *database[Tx], reads *sql.DB, count *counter, c config, closes func()) (service, error) {
	s := &shop[Tx]{config: c, db: db, reads: reads, count: count, closes: closes, bank: &bankClient{url: c.bank, client: http.Client{Transport: &idemclient.SendOnce{}}}}
	// A response is kept for a month, its key for a quarter; the reaper clears them.
	const month = 30 * 24 * time.Hour
	var err error
	if s.store, err = idempotency.New(ctx, db.DB, idempotency.Options{ResultTTL: month, KeyTTL: 3 * month}); err != nil {
		return nil, err
	}
	if s.payments, err = payments(s.store, db, s.bank); err != nil {
		return nil, err
	}
	if s.once, err = idemhttp.New(s.store, idemhttp.Operation("payment request"), idemhttp.Options{
		Owner:  func(*http.Request) (string, error) { return merchant, nil },
		Logger: slog.New(slog.DiscardHandler), // the storm would log thousands of lost connections
	}); err != nil {
		return nil, err
	}
	if s.status, err = idemhttp.Status(s.once, s.payments, "/payments/"); err != nil {
		return nil, err
	}
	s.reaper, err = reaper.New(ctx, db.DB)
	return s, err
}

// work runs the completer, which goes on with what was abandoned, and the reaper.
func (s *shop[Tx]) work(ctx context.Context) {
	swept := make(chan struct{})
	go func() { defer close(swept); _ = s.reaper.Run(ctx) }()
	_ = s.payments.RunCompleter(ctx, staged.RunOptions{Every: 300 * time.Millisecond, Workers: 32})
	<-swept
}

func (s *shop[Tx]) close() {
	s.closes()
	_ = s.reads.Close()
	s.bank.client.CloseIdleConnections()
}

func (s *shop[Tx]) handler() http.Handler {
	mux := http.NewServeMux()
	pay := s.once.Handler(s.pay)
	if s.protect == unprotected {
		pay = http.HandlerFunc(s.payAnyway)
	}
	mux.Handle("POST /orders/{order}/{kind}", pay)
	mux.Handle("GET /payments/", s.status)
	mux.HandleFunc("POST /webhooks/{merchant}", s.webhook)
	mux.HandleFunc("GET /metrics", s.count.serve)
	mux.HandleFunc("GET /{$}", s.page)
	mux.HandleFunc("POST /pay", s.pressed)
	return mux
}

// pay is the handler of a movement of money: the row and the operation are committed together with
// the response, 202 and where its status is. With Prefer: wait=N it waits for the result.
func (s *shop[Tx]) pay(w http.ResponseWriter, r *http.Request, tx Tx) error {
	p := request{r.PathValue("order"), r.PathValue("kind")}
	if !slices.Contains(kinds, p.Kind) {
		http.NotFound(w, r)
		return nil
	}
	started, err := s.start(r.Context(), tx, p)
	if err != nil {
		return err
	}
	return idemhttp.Accept(w, r, started)
}

func (s *shop[Tx]) payAnyway(w http.ResponseWriter, r *http.Request) {
	if err := s.payUnprotected(r.Context(), request{r.PathValue("order"), r.PathValue("kind")}); err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	w.WriteHeader(http.StatusOK)
}

// pressed is the button of the page: it starts a payment without an HTTP key, because the business has one.
func (s *shop[Tx]) pressed(w http.ResponseWriter, r *http.Request) {
	p := request{r.FormValue("order"), r.FormValue("kind")}
	if p.Order == "" || len(p.Order) > 64 || !slices.Contains(kinds, p.Kind) {
		http.Error(w, "an order and a kind are needed", http.StatusBadRequest)
		return
	}
	err := s.db.InTx(r.Context(), func(ctx context.Context, tx Tx) error {
		_, err := s.start(ctx, tx, p)
		return err
	})
	if err != nil && !errors.Is(err, context.Canceled) {
		http.Error(w, "not available, press again", http.StatusServiceUnavailable)
		return
	}
	http.Redirect(w, r, "/", http.StatusSeeOther)
}
