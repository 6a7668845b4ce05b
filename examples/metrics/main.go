// Command metrics is a small refund service with monitoring of Holdfast: /metrics is for
// Prometheus, dashboard.json for Grafana, alerts.yml contains rules, and the log contains the
// events that need a person.
//
//	go run . -addr 127.0.0.1:8080
//	curl -X POST 'http://127.0.0.1:8080/refund?order=42&cents=1250'
//	curl http://127.0.0.1:8080/metrics
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"time"
)

func main() {
	addr := flag.String("addr", "127.0.0.1:8080", "where to listen")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *addr, func() {}); err != nil {
		fmt.Fprintln(os.Stderr, "metrics:", err)
		os.Exit(1) //nolint:gocritic // there is nothing left to stop
	}
}

// run serves until ctx ends. It calls ready when it listens.
func run(ctx context.Context, addr string, ready func()) error {
	dir, err := os.MkdirTemp("", "holdfast-metrics")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	t, err := newTelemetry()
	if err != nil {
		return err
	}
	s, err := open(ctx, filepath.Join(dir, "shop.db"), t)
	if err != nil {
		return err
	}
	defer s.close(ctx)
	background := s.start(ctx)
	defer background()

	mux := http.NewServeMux()
	mux.Handle("GET /metrics", t.handler)
	mux.HandleFunc("POST /refund", s.refund)
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	stopped := context.AfterFunc(ctx, func() {
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		_ = server.Shutdown(last)
	})
	defer stopped()
	slog.InfoContext(ctx, "listening", "metrics", "http://"+listener.Addr().String()+"/metrics")
	ready()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
