package main

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/dsn"
)

// flags are the flags that all commands share.
type flags struct {
	source
	prefix, schema string
	untested       string
	json           bool
}

func newRoot() *cobra.Command {
	var f flags
	root := group("holdfast", "Locks and idempotency in the database you already run", newMigrate(&f), newLocks(&f), newOps(&f), newReap(&f), newLock(&f), newElect(&f), newOnce(&f), newDoctor(&f), newAudit(&f),
		newProve(&f), newAfterRestore(&f), newConsole(&f), newBench(&f), newVersion(&f))
	root.Long = root.Short + ".\n\nThe exit status is"
	for _, m := range exitMeanings {
		root.Long += fmt.Sprintf("\n  %d  %s", m.status, m.meaning)
	}
	root.Long += "\n\nlock, elect and once exit as the command that they run does, or with\n" + describeRunStatuses()
	root.SilenceErrors, root.SilenceUsage = true, true
	root.CompletionOptions.SetDefaultShellCompDirective(cobra.ShellCompDirectiveNoFileComp)
	p := root.PersistentFlags()
	f.add(root)
	p.StringVar(&f.prefix, "prefix", holdfast.DefaultPrefix, "beginning of the tables' names")
	p.StringVar(&f.schema, "schema", "", "schema (MySQL, MariaDB: database) of the tables (default: the connection's own)")
	p.StringVar(&f.untested, "untested", "", "product and version that no test run names, such as 'PostgreSQL 19', after holdfast prove passed there")
	p.BoolVar(&f.json, "json", false, "answer in JSON")
	markTried(root)
	return root
}

// options returns the options of the DB that the flags name.
func (f *flags) options() holdfast.Options {
	o := holdfast.Options{Prefix: f.prefix, Schema: f.schema, Untested: f.untested}
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

// noArgs refuses arguments without quoting them, because one may be a URL with a password.
func noArgs(cmd *cobra.Command, args []string) error {
	switch {
	case len(args) == 0:
		return nil
	case cmd.HasSubCommands():
		return fmt.Errorf("unknown command: see %s --help", cmd.CommandPath())
	}
	return fmt.Errorf("%s takes flags only: see %s --help", cmd.CommandPath(), cmd.CommandPath())
}

func (f *flags) open() (*sql.DB, error) {
	url, err := f.url()
	if err != nil {
		return nil, err
	}
	return openURL(url)
}

// openURL opens a pool. Tests replace it: theirs uses sessions again.
var openURL = func(url string) (*sql.DB, error) {
	pool, _, err := dsn.Open(url)
	return pool, err
}

// answer writes value as JSON, or text.
func (f *flags) answer(cmd *cobra.Command, value any, text string) error {
	return f.answerTo(cmd.OutOrStdout(), value, text)
}

func (f *flags) answerTo(w io.Writer, value any, text string) error {
	if !f.json {
		_, err := fmt.Fprint(w, text)
		return err
	}
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	return e.Encode(value)
}
