package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/jmoiron/sqlx"
)

const (
	demoMerchant = "demo-shop"
	demoOrders   = 3
	shutdownWait = 5 * time.Second
)

// demo is the default command: the service and its page.
func demo(ctx context.Context, args []string) (err error) {
	flags := newFlags("refund", "A payment service with a page on which to refund twice. Its other command: storm")
	addr := flags.String("addr", "127.0.0.1:8080", "where the page is served")
	url := flags.String("dsn", "", "database: postgres://…, mysql://…, sqlite://path (default: SQLite in a temporary file)")
	protect := flags.String("protect", protections[0].name, "protection of requests that name none: "+protectionNames())
	if err := parse(flags, args); err != nil {
		return err
	}
	if _, err := findProtection(*protect); err != nil {
		return err
	}
	listener, err := listen(ctx, *addr)
	if err != nil {
		return err
	}
	defer func() { _ = listener.Close() }() // open until the end; closing twice does nothing

	where := "the database of -dsn"
	if *url == "" {
		var remove func()
		if *url, remove, err = temporaryDatabase(); err != nil {
			return err
		}
		defer remove()
		where = "SQLite in a temporary file, gone when this ends (-dsn names another)"
	}
	pool, err := openPool(*url)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, pool.Close()) }()
	s, err := prepareDemo(ctx, pool, *protect)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close(ctx)) }()
	fmt.Printf("A payment service, on %s.\n\n  Open http://%s and press Refund twice.\n\nCtrl-C ends it.\n", where, listener.Addr())
	return serve(ctx, listener, s.handler())
}

// prepareDemo creates the tables and, in an empty database, a few orders.
func prepareDemo(ctx context.Context, pool *sqlx.DB, protect string) (*service, error) {
	if err := migrate(ctx, pool); err != nil {
		return nil, err
	}
	there, err := recentOrders(ctx, pool, demoMerchant, 1)
	if err != nil {
		return nil, err
	}
	if len(there) == 0 {
		var orders []Order
		for range demoOrders {
			orders = append(orders, demoOrder(demoMerchant))
		}
		if err := createOrders(ctx, pool, orders); err != nil {
			return nil, err
		}
	}
	return newService(ctx, pool, demoMerchant, protect)
}

func listen(ctx context.Context, addr string) (net.Listener, error) {
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", addr)
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, fmt.Errorf("%s is taken by another program: choose another port, for instance -addr 127.0.0.1:8081", addr)
	}
	return listener, err
}

// temporaryDatabase names a SQLite file that remove deletes.
func temporaryDatabase() (url string, remove func(), err error) {
	dir, err := os.MkdirTemp("", "holdfast-refund-")
	if err != nil {
		return "", nil, err
	}
	return "sqlite://" + filepath.Join(dir, "refund.db"), func() { _ = os.RemoveAll(dir) }, nil
}

// serve answers requests until ctx ends, and waits for requests in progress.
func serve(ctx context.Context, listener net.Listener, handler http.Handler) error {
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownWait)
	defer cancel()
	err := server.Shutdown(ctx)
	if served := <-ended; !errors.Is(served, http.ErrServerClosed) {
		return errors.Join(err, served)
	}
	return err
}
