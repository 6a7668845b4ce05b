package main

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/migrations"
)

// functionsDone is the answer of migrate functions up and down.
type functionsDone struct {
	Functions string `json:"functions"`
}

func newMigrateFunctions(f *flags) *cobra.Command {
	return group("functions", "Create or drop the SQL functions for clients in other languages (PostgreSQL, MySQL, MariaDB)",
		newMigrateFunctionsRun(f, "up", "Create the functions, or replace them", "created", migrations.FunctionsUp),
		newMigrateFunctionsRun(f, "down", "Drop the functions, and no record", "dropped", migrations.FunctionsDown),
		newMigrateFunctionsPrint(f),
	)
}

func newMigrateFunctionsRun(f *flags, use, short, done string, run apply) *cobra.Command {
	return &cobra.Command{
		Use: use, Short: short, Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			pool, err := f.open()
			if err != nil {
				return err
			}
			defer func() { _ = pool.Close() }()
			if err := run(cmd.Context(), pool, f.options()); err != nil {
				return err
			}
			return f.answer(cmd, functionsDone{done}, "functions "+done+"\n")
		},
	}
}

func newMigrateFunctionsPrint(f *flags) *cobra.Command {
	var engine, role string
	cmd := &cobra.Command{
		Use: "print", Short: "Print their SQL, or with --grant-to the grants of a client; needs no database", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if engine == "" {
				return usage("say for which engine: --engine postgres, mysql or mariadb")
			}
			var b strings.Builder
			var err error
			if role == "" {
				err = migrations.PrintFunctions(&b, holdfast.Engine(engine), f.options())
			} else {
				err = migrations.PrintFunctionGrants(&b, holdfast.Engine(engine), role, f.options())
			}
			if err != nil {
				return err
			}
			return f.answer(cmd, struct {
				Engine string `json:"engine"`
				SQL    string `json:"sql"`
			}{engine, b.String()}, b.String())
		},
	}
	oneOf(cmd, &engine, "engine", "", "for which engine", "postgres", "mysql", "mariadb")
	cmd.Flags().StringVar(&role, "grant-to", "", "print the grants of this role, or account user@host, that calls the functions")
	return cmd
}
