// Command refund is a small payment service that makes each refund once, however often it is
// requested.
//
//	go run ./examples/refund        # a page on http://127.0.0.1:8080
//	go run ./examples/refund storm  # many processes at once, then an audit
//
// Read book.go first (the money), then one protect_*.go (how a second payment is prevented;
// idempotency first), then refund_http.go (the client's view).
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
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
	case "serve": // a replica of a storm
		err = serveCommand(ctx, args)
	case "client": // a client of a storm
		err = clientCommand(ctx, args)
	default:
		err = usagef("there is no command %q: leave it out for the page, or give storm", command)
	}

	var usage usageError
	switch {
	case err == nil, errors.Is(err, flag.ErrHelp):
		return 0
	case errors.As(err, &usage):
		fmt.Fprintln(os.Stderr, "refund:", err)
		return 2
	}
	fmt.Fprintln(os.Stderr, "refund:", err)
	return 1
}

// usageError is an error in the arguments.
type usageError struct{ error }

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// newFlags returns a set of flags for one command, with its own help text.
func newFlags(name, about string) *flag.FlagSet {
	flags := flag.NewFlagSet(name, flag.ContinueOnError)
	flags.Usage = func() {
		fmt.Fprintf(flags.Output(), "%s\n\nFlags of %s:\n", about, name)
		flags.PrintDefaults()
	}
	return flags
}

// parse parses the arguments of a command that takes flags only.
func parse(flags *flag.FlagSet, args []string) error {
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return err
		}
		return usageError{err}
	}
	if flags.NArg() > 0 {
		return usagef("%s takes flags only, not %q", flags.Name(), flags.Arg(0))
	}
	return nil
}
