// Command holdfast is for operators: it creates and describes Holdfast's tables,
// lists locks and takes them away, settles operations whose outcome is unknown,
// clears what has expired, looks for settings that break a promise, measures, serves a page,
// and makes a restored database safe to work on. docs/cli.md lists every command,
// flag and exit status.
//
//	HOLDFAST_DSN=postgres://user:pw@host/db holdfast migrate up
//
// The database is named by HOLDFAST_DSN, by a file (HOLDFAST_DSN_FILE, -dsn-file),
// or by -dsn where no other user of the machine can read the process list.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"strings"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends it at once
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// run is main with everything given, and returns the exit status.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	root := newRoot() //nolint:contextcheck // the context comes with ExecuteContext
	root.SetArgs(longFlags(args))
	root.SetOut(completionsFor(args, stdout))
	root.SetErr(stderr)
	err := root.ExecuteContext(ctx)
	if err != nil {
		fmt.Fprintln(stderr, "holdfast: "+strings.TrimPrefix(withoutPassword(err.Error()), "holdfast: "))
	}
	return statusOf(err)
}

// longFlags lets -dsn stand for --dsn, as Go's own flags do; no flag has a
// form of one letter but -h.
func longFlags(args []string) []string {
	out := make([]string, len(args))
	for i, a := range args {
		if a == "--" {
			copy(out[i:], args[i:])
			break
		}
		if len(a) > 2 && a[0] == '-' && a[1] != '-' {
			a = "-" + a
		}
		out[i] = a
	}
	return out
}

var password = regexp.MustCompile(`(://[^:@/\s]*:).*@`)

// withoutPassword is for texts that quote what was typed at the wrong place.
func withoutPassword(text string) string {
	return password.ReplaceAllString(text, "${1}***@")
}
