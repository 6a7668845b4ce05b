package main

import (
	"context"
	"database/sql"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/holdfast-go/holdfast/internal/test/conformance/hostile"
	"github.com/holdfast-go/holdfast/sqllock"
)

// evilEach is the number of SQL values that each flag of a command gets. The values rotate, so that
// every value is tested on some flags. A flag of all commands gets one value in each command.
const evilEach = 4

var syntax = regexp.MustCompile(`(?i)syntax|unterminated|unrecognized token|incomplete input`)

// TestInjection checks that a flag's value that contains SQL is used as a value or refused,
// and never becomes part of a statement.
func TestInjection(t *testing.T) {
	onEveryEngine(t, func(o operator) {
		o.Must(`CREATE TABLE canary (n INT NOT NULL)`)
		o.Must(`INSERT INTO canary VALUES (7)`)
		locks := worker(o)
		if _, err := locks.Acquire(o.Ctx, "innocent"); err != nil {
			o.Fatal(err)
		}
		next := 0
		for _, cmd := range leaves(newRoot()) {
			path := strings.Fields(cmd.CommandPath())[1:]
			if slices.Contains([]string{"bench", "console", "prove", "completion", "help", "explain", "version", "lock", "elect", "once"}, path[0]) {
				continue // these keep running, take only the flags of all commands, or are TestInjectionRun's
			}
			var texts []string
			each(cmd, func(f *pflag.Flag) {
				_, file := f.Annotations[cobra.BashCompFilenameExt]
				if strings.HasPrefix(f.Value.Type(), "string") && !strings.Contains(f.Name, "dsn") && !file {
					texts = append(texts, f.Name)
				}
			})
			for _, name := range texts {
				values := evilEach
				if cmd.InheritedFlags().Lookup(name) != nil {
					values = 1
				}
				for range values {
					next++
					evil := hostile.Strings()[next%len(hostile.Strings())]
					args := append(slices.Clone(path), "--"+name+"="+evil)
					each(cmd, func(f *pflag.Flag) {
						_, required := f.Annotations[cobra.BashCompOneRequiredFlag]
						switch {
						case f.Name == name:
						case f.Name == "yes" && (name == "prefix" || name == "schema" || path[0] == "ops" || path[0] == "locks"):
							args = append(args, "--yes")
						case f.Name == "as":
							args = append(args, "--as=rejected")
						case f.Name == "key" && name != "key-hex", required && f.Name != "key-hex":
							args = append(args, "--"+f.Name+"=plain")
						}
					})
					code, _, err := o.run(args...)
					if name == "prefix" && code != exitUsage || code > exitUsage && path[0] != "doctor" && code != exitPending || syntax.MatchString(err) {
						o.Errorf("%q: status %d, %s", args, code, err)
					}
				}
			}
		}
		if next < 180 {
			o.Errorf("%d values were tried", next)
		}
		if n := o.Int(`SELECT SUM(n) FROM canary`); n != 7 {
			o.Error("a table was changed")
		}
		if seen, _, err := locks.Inspect(o.Ctx, "innocent"); err != nil || !seen.Held {
			o.Errorf("a lock that was not named: %+v, %v", seen, err)
		}
	})
}

// TestInjectionNames checks that a key that contains SQL is found, listed and released under
// its exact name.
func TestInjectionNames(t *testing.T) {
	onEveryEngine(t, func(o operator) {
		locks := worker(o)
		if _, err := locks.Acquire(o.Ctx, "innocent"); err != nil {
			o.Fatal(err)
		}
		for _, evil := range hostile.Strings() {
			if _, err := locks.Acquire(o.Ctx, evil, sqllock.AcquireOptions{NoRenewal: true}); err != nil {
				o.Fatal(err)
			}
			var list []lease
			if o.json(&list, "locks", "list", "--begin="+evil); len(list) != 1 {
				o.Errorf("%q begins %d keys", evil, len(list))
			}
			if out := o.ok("locks", "release", "--yes", "--key="+evil, "--by=ada", "--reason=; DROP TABLE holdfast_locks"); out != "released\n" {
				o.Errorf("%q: %s", evil, out)
			}
		}
		var list []lease
		if o.json(&list, "locks", "list"); len(list) != 1 || list[0].Key != "innocent" {
			o.Errorf("held: %+v", list)
		}
	})
}

func worker(o operator) *sqllock.Locker[*sql.Tx] {
	o.Helper()
	l, err := sqllock.New(o.Ctx, o.DB, sqllock.Options{Holder: "worker", TTL: time.Hour})
	if err != nil {
		o.Fatal(err)
	}
	o.Cleanup(func() { _ = l.Close(context.WithoutCancel(o.Ctx)) })
	return l
}

// leaves returns the commands that have no subcommands.
func leaves(cmd *cobra.Command) (list []*cobra.Command) {
	if !cmd.HasSubCommands() {
		return []*cobra.Command{cmd}
	}
	for _, below := range cmd.Commands() {
		list = append(list, leaves(below)...)
	}
	return list
}

// each calls f for every flag of the command.
func each(cmd *cobra.Command, f func(*pflag.Flag)) {
	cmd.InheritedFlags().VisitAll(f)
	cmd.NonInheritedFlags().VisitAll(f)
}
