package main

import (
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/dsn"
)

// dsnVariable holds the database's URL, so that no secret is on the command line.
const dsnVariable = "HOLDFAST_DSN"

// flags are those that all commands share.
type flags struct {
	dsn, prefix, schema string
	json                bool
}

func newRoot() *cobra.Command {
	var f flags
	root := group("holdfast", "Locks and idempotency in the database you already run", newMigrate(&f), newLocks(&f), newOps(&f), newReap(&f), newDoctor(&f), newAfterRestore(&f))
	root.SilenceErrors, root.SilenceUsage = true, true
	p := root.PersistentFlags()
	p.StringVar(&f.dsn, "dsn", "", "database URL: postgres://…, mysql://user:pw@tcp(host:port)/db, sqlite://path (default: $"+dsnVariable+")")
	p.StringVar(&f.prefix, "prefix", holdfast.DefaultPrefix, "beginning of the tables' names")
	p.StringVar(&f.schema, "schema", "", "schema (MySQL, MariaDB: database) of the tables (default: the connection's own)")
	p.BoolVar(&f.json, "json", false, "answer in JSON")
	return root
}

// group is a command that only has others below it.
func group(use, short string, below ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{Use: use, Short: short, Args: noArgs, RunE: func(cmd *cobra.Command, _ []string) error {
		return cmd.Help()
	}}
	cmd.AddCommand(below...)
	return cmd
}

// noArgs quotes nothing: what is left over may be a URL with a password.
func noArgs(cmd *cobra.Command, args []string) error {
	switch {
	case len(args) == 0:
		return nil
	case cmd.HasSubCommands():
		return fmt.Errorf("unknown command: see %s --help", cmd.CommandPath())
	}
	return fmt.Errorf("%s takes flags only: see %s --help", cmd.CommandPath(), cmd.CommandPath())
}

// url is the database's.
func (f *flags) url() (string, error) {
	if f.dsn != "" {
		return f.dsn, nil
	}
	if url := os.Getenv(dsnVariable); url != "" {
		return url, nil
	}
	return "", errors.New("no database is named: set " + dsnVariable + " or give -dsn")
}

func (f *flags) open() (*sql.DB, error) {
	url, err := f.url()
	if err != nil {
		return nil, err
	}
	pool, _, err := dsn.Open(url)
	return pool, err
}

// answer writes value as JSON, or else text.
func (f *flags) answer(cmd *cobra.Command, value any, text string) error {
	if !f.json {
		_, err := fmt.Fprint(cmd.OutOrStdout(), text)
		return err
	}
	e := json.NewEncoder(cmd.OutOrStdout())
	e.SetEscapeHTML(false)
	return e.Encode(value)
}
