package main

import (
	"cmp"
	"database/sql"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/dsn"
)

// flags are the flags that all commands share.
type flags struct {
	source
	prefix, schema string
	untested       string
	outputFlags
}

func newRoot() *cobra.Command {
	var f flags
	root := group("holdfast", "Locks and idempotency in the database you already run", newMigrate(&f), newLocks(&f), newOps(&f), newReap(&f), newLock(&f), newElect(&f), newOnce(&f), newDoctor(&f), newAudit(&f),
		newProve(&f), newAfterRestore(&f), newConsole(&f), newBench(&f), newExplain(&f), newVersion(&f))
	root.Long = root.Short + ".\n\nThe exit status is"
	for _, m := range exitMeanings {
		root.Long += fmt.Sprintf("\n  %d  %s", m.status, m.meaning)
	}
	root.Long += "\n\nlock, elect and once exit as the command that they run does, or with\n" + describeRunStatuses()
	root.SilenceErrors, root.SilenceUsage = true, true
	root.CompletionOptions.SetDefaultShellCompDirective(cobra.ShellCompDirectiveNoFileComp)
	p := root.PersistentFlags()
	f.source.add(root)
	p.StringVar(&f.prefix, "prefix", core.DefaultPrefix, "beginning of the tables' names")
	mayBeEmpty(p, "prefix") // no prefix
	p.StringVar(&f.schema, "schema", "", "schema (MySQL, MariaDB: database) of the tables (default: the connection's own)")
	p.StringVar(&f.untested, "untested", "", "product and version that no test run names, such as 'PostgreSQL 19', where no holdfast prove --record has passed (default: HOLDFAST_UNTESTED)")
	f.outputFlags.add(root)
	root.SetFlagErrorFunc(unknownFlag)
	markTried(root)
	return root
}

// options returns the options of the DB that the flags name.
func (f *flags) options() holdfast.Options {
	o := holdfast.Options{Prefix: f.prefix, Schema: f.schema, Untested: cmp.Or(f.untested, os.Getenv("HOLDFAST_UNTESTED"))}
	if o.Prefix == "" {
		o.Prefix = holdfast.NoPrefix
	}
	return o
}

// group returns a command that only contains other commands.
func group(use, short string, below ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{Use: use, Short: short, Args: noArgs, RunE: func(cmd *cobra.Command, _ []string) error {
		return cmd.Help()
	}}
	cmd.AddCommand(below...)
	return cmd
}

// open opens the database, which must exist: a mistyped path does not become a file.
func (f *flags) open() (*sql.DB, error) {
	url, err := f.existing()
	if err != nil {
		return nil, err
	}
	return openURL(url)
}

// existing returns the URL of a database that exists, as far as a file tells.
func (f *flags) existing() (string, error) {
	url, err := f.url()
	if err != nil {
		return "", err
	}
	return dsn.Existing(url)
}

// create opens the database, and makes SQLite's file.
func (f *flags) create() (*sql.DB, error) {
	url, err := f.url()
	if err != nil {
		return nil, err
	}
	return openURL(url)
}

// openURL opens a pool. Tests replace it: theirs uses sessions again.
var openURL = func(url string) (*sql.DB, error) { return openWithin(url, nil, answersWithin) }
