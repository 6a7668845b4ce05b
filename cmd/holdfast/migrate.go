package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/adapters/holdfastsql"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/prove"
	"github.com/holdfast-go/holdfast/migrations"
)

type apply func(context.Context, *sql.DB, ...holdfast.Options) error

func newMigrate(f *flags) *cobra.Command {
	return group("migrate", "Create, describe or drop Holdfast's tables",
		newMigrateUp(f),
		newMigrateStatus(f),
		newMigrateDown(f),
		&cobra.Command{
			Use: "version", Short: "Say how far the migrations got", Args: noArgs,
			RunE: func(cmd *cobra.Command, _ []string) error {
				return f.migrate(cmd, nil, false)
			},
		},
		newMigratePrint(f),
		newMigrateFunctions(f),
		newMigrateGrants(f),
		newMigrateRowSecurity(f),
	)
}

func newMigrateUp(f *flags) *cobra.Command {
	var proves bool
	cmd := &cobra.Command{
		Use: "up", Short: "Apply what is missing; several at once are safe", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.migrate(cmd, migrations.Up, true); err != nil {
				return err
			}
			product, err := f.unproven(cmd)
			switch {
			case err != nil || product == "":
				return err
			case !proves:
				_, err := fmt.Fprintf(cmd.ErrOrStderr(), "No test run of Holdfast's names %s, so programs do not open it yet. Run holdfast prove --record, which takes about a minute.\n", product)
				return err
			}
			report, err := f.prove(cmd, prove.Options{})
			if err == nil && report.Verdict == prove.Pass {
				return f.record(cmd, report)
			}
			if err != nil {
				return err
			}
			return f.proved(cmd, report, nil)
		},
	}
	cmd.Flags().BoolVar(&proves, "prove", false, "run holdfast prove --record if no test run names the server's version")
	return cmd
}

// unproven returns the server's product if programs do not open it because nothing was shown on it.
func (f *flags) unproven(cmd *cobra.Command) (string, error) {
	pool, err := f.open()
	if err != nil {
		return "", err
	}
	defer func() { _ = pool.Close() }()
	_, err = holdfastsql.Open(cmd.Context(), pool, f.options())
	var unsupported *holdfast.UnsupportedError
	if errors.As(err, &unsupported) && unsupported.Check == "engine" {
		return unsupported.Engine, nil
	}
	return "", nil // programs report any other reason
}

func newMigrateDown(f *flags) *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use: "down", Short: "Drop the tables and delete every record", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !yes {
				return usage("down deletes every record, so that keys which were used can be used again: if that is meant, add --yes")
			}
			return f.migrate(cmd, migrations.Down, false)
		},
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "yes, delete every record")
	return cmd
}

func newMigratePrint(f *flags) *cobra.Command {
	var engine string
	var vschema, ownerMove bool
	cmd := &cobra.Command{
		Use: "print", Short: "Print the SQL, for a tool of your own; needs no database", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if engine == "" {
				return usage("say for which engine: --engine postgres, mysql, mariadb, tidb, vitess or sqlite")
			}
			var b strings.Builder
			if vschema && ownerMove {
				return usage("--vschema and --owner-move exclude each other: set one")
			}
			if vschema {
				if engine != string(holdfast.Vitess) {
					return usage("--vschema is for --engine vitess")
				}
				if err := migrations.PrintVSchema(&b, f.options()); err != nil {
					return err
				}
				return f.answer(cmd, json.RawMessage(b.String()), b.String())
			}
			text := migrations.Print
			if ownerMove {
				text = migrations.PrintOwnerMove
			}
			if err := text(&b, holdfast.Engine(engine), f.options()); err != nil {
				return err
			}
			return f.answer(cmd, struct {
				Engine  string `json:"engine"`
				Version int    `json:"version"`
				SQL     string `json:"sql"`
			}{engine, migrations.Version, b.String()}, b.String())
		},
	}
	oneOf(cmd, &engine, "engine", "", "for which engine", "postgres", "mysql", "mariadb", "tidb", "vitess", "sqlite")
	cmd.Flags().BoolVar(&ownerMove, "owner-move", false, "the statements that move one owner's rows to another database")
	cmd.Flags().BoolVar(&vschema, "vschema", false, "the entries of a sharded keyspace's VSchema, for Vitess")
	return cmd
}

// migrate runs run, and prints the resulting version. create says that a file may be made: only up does
// that, because nothing else is of use in an empty database.
func (f *flags) migrate(cmd *cobra.Command, run apply, create bool) error {
	open := f.open
	if create {
		open = f.create
	}
	pool, err := open()
	if err != nil {
		return err
	}
	defer func() { _ = pool.Close() }()
	if run != nil {
		p := f.progress(cmd, "migrating")
		err := run(cmd.Context(), pool, f.options())
		p.done()
		if err != nil {
			return f.deniedOn(cmd, pool, err)
		}
	}
	version, dirty, err := migrations.Applied(cmd.Context(), pool, f.options())
	if err != nil {
		return f.deniedOn(cmd, pool, err)
	}
	text := fmt.Sprintf("version %d of %d\n", version, migrations.Version)
	if dirty {
		text = fmt.Sprintf("version %d of %d, cut off: run holdfast migrate up again\n", version, migrations.Version)
	}
	return f.answer(cmd, struct {
		Version int  `json:"version"`
		Latest  int  `json:"latest"`
		Dirty   bool `json:"dirty"`
	}{version, migrations.Version, dirty}, text)
}
