// Command payments is a payment service that charges, captures and refunds at a provider that fails in
// every way, and moves the money of each request once.
//
//	go run ./examples/payments        # a page on http://127.0.0.1:8080
//	go run ./examples/payments storm  # processes are killed and stopped, then an audit
//
// Read payment.go first (what happens to a payment), then http.go (the client's view) and webhook.go (the
// provider's). bank.go is the provider.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

func main() { os.Exit(run(os.Args[1:])) }

// run is main with its arguments as parameters. It returns the exit status: 0, 1 for a failure, 2
// for invalid arguments.
func run(args []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	command := ""
	if len(args) > 0 && !strings.HasPrefix(args[0], "-") {
		command, args = args[0], args[1:]
	}
	var err error
	switch command {
	case "":
		err = demo(ctx, args)
	case "storm":
		err = stormCommand(ctx, args)
	case "serve": // a process of a storm
		err = serveCommand(ctx, args)
	default:
		fmt.Fprintf(os.Stderr, "payments: there is no command %q: leave it out for the page, or give storm\n", command)
		return 2
	}
	switch {
	case err == nil, errors.Is(err, flag.ErrHelp):
		return 0
	case errors.Is(err, errUsage):
		return 2
	}
	fmt.Fprintln(os.Stderr, "payments:", err)
	return 1
}

var errUsage = errors.New("invalid arguments")

func parse(flags *flag.FlagSet, args []string) error {
	err := flags.Parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return err
	case err != nil: // printed already
		return fmt.Errorf("%w: %w", errUsage, err)
	case flags.NArg() > 0:
		fmt.Fprintf(os.Stderr, "payments: %q is no flag\n", flags.Arg(0))
		return errUsage
	}
	return nil
}

// demo serves the page, with a provider in this process.
func demo(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("payments", flag.ContinueOnError)
	address := flags.String("addr", "127.0.0.1:8080", "where the page is served")
	url := flags.String("dsn", "", dsnUsage)
	if err := parse(flags, args); err != nil {
		return err
	}
	if *url == "" {
		temporary, remove, err := temporaryDatabase()
		if err != nil {
			return err
		}
		defer remove()
		*url = temporary
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", *address)
	if err != nil {
		return err
	}
	b := newBank(func() string { return "http://" + listener.Addr().String() })
	defer b.close()
	s, err := openService(ctx, *url, config{bank: b.url(), protect: protected, secret: demoSecret})
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	defer s.close()
	fmt.Fprintf(os.Stderr, "http://%s\n", listener.Addr())
	return serve(ctx, listener, s)
}

const (
	dsnUsage = "database: postgres://…, mysql://…, sqlite://path (default: SQLite in a temporary file)"
	// merchant is the owner of all operations. A real service has it from the request's credential.
	merchant = "demo-shop"
	// demoSecret signs webhooks. A real one is in the provider's settings and the service's secrets.
	demoSecret = "whsec_demo" //nolint:gosec // it protects nothing
)

func temporaryDatabase() (url string, remove func(), err error) {
	dir, err := os.MkdirTemp("", "payments")
	if err != nil {
		return "", nil, err
	}
	return "sqlite://" + filepath.Join(dir, "payments.db"), func() { _ = os.RemoveAll(dir) }, nil
}

// serve serves until ctx ends, with what runs beside the handlers.
func serve(ctx context.Context, listener net.Listener, s service) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan struct{})
	go func() { defer close(ended); s.work(ctx) }()
	server := &http.Server{Handler: s.handler(), ReadHeaderTimeout: 10 * time.Second}
	go func() {
		<-ctx.Done()
		_ = server.Close()
	}()
	err := server.Serve(listener)
	stop()
	<-ended
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}
