// Command settlement books a day's settlement file with several workers. It books each line once,
// although the file is fed twice and workers are killed.
//
//	go run ./examples/settlement             # 2,000 lines, SQLite in a temporary file
//	go run ./examples/settlement -rows 100000 -kill -dsn postgres://…
//
// Read feed.go first (a line's own row is its record), then work.go (workers share the rows), then
// closing.go (one leader closes the day).
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
		err = dayCommand(ctx, args)
	case "feed": // a process of the day
		err = feedCommand(ctx, args)
	case "work": // another process of the day
		err = workCommand(ctx, args)
	default:
		err = usageError{fmt.Errorf("there is no command %q: give flags only", command)}
	}
	var usage usageError
	switch {
	case err == nil, errors.Is(err, flag.ErrHelp):
		return 0
	case errors.As(err, &usage):
		fmt.Fprintln(os.Stderr, "settlement:", err)
		return 2
	}
	fmt.Fprintln(os.Stderr, "settlement:", err)
	return 1
}

// usageError is an error in the arguments.
type usageError struct{ error }

// parse parses the arguments of a command that takes flags only.
func parse(flags *flag.FlagSet, args []string) error {
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return err
		}
		return usageError{err}
	}
	if flags.NArg() > 0 {
		return usageError{fmt.Errorf("%q is no flag: give flags only", flags.Arg(0))}
	}
	return nil
}
