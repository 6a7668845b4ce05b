package main

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/migrations"
)

// roles are the values of --role.
var roles = []string{string(migrations.App), string(migrations.Reaper), string(migrations.Operator), string(migrations.Reader), string(migrations.Migrator)}

func newMigrateGrants(f *flags) *cobra.Command {
	var engine, role, to string
	cmd := &cobra.Command{
		Use: "grants", Short: "Print the GRANT statements of a role: the least that it needs; needs no database", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case engine == "":
				return usage("say for which engine: --engine postgres, mysql, mariadb or tidb")
			case role == "":
				return usage("say for which role: --role %s", strings.Join(roles, ", "))
			case to == "":
				return usage("say which account gets the grants: --to ACCOUNT (MySQL and MariaDB: user@host)")
			}
			var b strings.Builder
			if err := migrations.PrintGrants(&b, holdfast.Engine(engine), migrations.Role(role), to, f.options()); err != nil {
				return err
			}
			return f.answer(cmd, struct {
				Engine string `json:"engine"`
				Role   string `json:"role"`
				SQL    string `json:"sql"`
			}{engine, role, b.String()}, b.String())
		},
	}
	oneOf(cmd, &engine, "engine", "", "for which engine", "postgres", "mysql", "mariadb", "tidb", "vitess", "sqlite")
	oneOf(cmd, &role, "role", "", "what the account is for", roles...)
	cmd.Flags().StringVar(&to, "to", "", "the account: a role of PostgreSQL, or user@host")
	return cmd
}
