//go:build unix

// Command polyglot refunds orders from four languages on one database: Go with package
// idempotency, and Python, PHP and Java with the protocol of docs/reference/protocol.md. All of them get the
// same orders at the same moment, and are killed and stopped during that. README.md says what it needs.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "polyglot:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) == 0 {
		return errors.New("say storm, vectors or client: see examples/polyglot/README.md")
	}
	s := storm{out: os.Stdout, log: os.Stderr}
	flags := flag.NewFlagSet(args[0], flag.ContinueOnError)
	flags.StringVar(&s.url, "dsn", os.Getenv("HOLDFAST_DSN"), "database: postgres://… or mysql://… (default: $HOLDFAST_DSN)")
	flags.IntVar(&s.orders, "orders", 60, "orders to refund")
	flags.IntVar(&s.each, "each", 1, "clients of each language")
	flags.StringVar(&s.protect, "protect", protocol, "protection of the refunds: "+protocol+" or "+none)
	languages := flags.String("languages", strings.Join(allLanguages, ","), "who takes part")
	folder := flags.String("clients", "examples/polyglot/clients", "folder of the clients")
	flags.StringVar(&s.vectors, "vectors", "docs/reference/protocol/vectors.json", "file of the test vectors")
	if err := flags.Parse(args[1:]); err != nil {
		return err
	}
	s.languages, s.folder = strings.Split(*languages, ","), *folder
	switch {
	case args[0] == "client":
		return client(ctx, os.Stdin, os.Stdout)
	case flags.NArg() > 0 || s.orders < 1 || s.each < 1 || s.protect != protocol && s.protect != none:
		return errors.New("a flag is wrong: see -h")
	case args[0] == "storm":
		return s.run(ctx)
	case args[0] == "vectors":
		return checkVectors(ctx, &s)
	}
	return fmt.Errorf("%q is no command", args[0])
}
