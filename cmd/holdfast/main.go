// Command holdfast is for operators. It creates and describes Holdfast's tables, lists and
// releases locks, resolves operations whose outcome is unknown, deletes expired rows, checks for
// settings that break a promise, demonstrates the behaviour that the promises rely on, runs
// benchmarks, serves the console, and makes a restored database safe to use. For scripts it runs a
// command under a lock, while elected, or once for a key. docs/reference/cli.md lists every command, flag and
// exit status.
//
//	HOLDFAST_DSN=postgres://user:pw@host/db holdfast migrate up
//
// Name the database in HOLDFAST_DSN, in a file (HOLDFAST_DSN_FILE, -dsn-file), or in -dsn if no
// other user of the machine can read the process list.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"strings"
	"syscall"

	"github.com/holdfast-go/holdfast"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the program at once
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// run is main with its inputs as arguments. It returns the exit status.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	root := newRoot() //nolint:contextcheck // the context comes with ExecuteContext
	root.SetArgs(longFlags(root, args))
	root.SetOut(completionsFor(args, stdout))
	root.SetErr(stderr)
	cmd, err := root.ExecuteContextC(ctx)
	var ended statusError
	if err != nil && (!errors.As(err, &ended) || ended.err != nil) {
		fmt.Fprintln(stderr, errorLine(inFlags(cmd, err)))
		if code := holdfast.Code(err); code != "" && isTerminal(stderr) {
			fmt.Fprintln(stderr, "what to do: holdfast explain "+code)
		}
	}
	return statusOf(cmd, err)
}

// errorLine is an error as people read it.
func errorLine(err error) string {
	return "holdfast: " + strings.TrimPrefix(withoutPassword(err.Error()), "holdfast: ")
}

var password = regexp.MustCompile(`(://[^:@/\s]*:).*@`)

// withoutPassword removes passwords from a message that quotes misplaced arguments.
func withoutPassword(text string) string {
	return password.ReplaceAllString(text, "${1}***@")
}
