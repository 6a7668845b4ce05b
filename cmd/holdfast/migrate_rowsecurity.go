package main

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/migrations"
)

func newMigrateRowSecurity(f *flags) *cobra.Command {
	var setting string
	var everyOwner []string
	cmd := &cobra.Command{
		Use: "row-security", Short: "Print policies of PostgreSQL, by which an account has one owner's rows; needs no database", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o := f.options()
			o.OwnerSetting = setting
			var b strings.Builder
			if err := migrations.PrintRowSecurity(&b, holdfast.PostgreSQL, everyOwner, o); err != nil {
				return err
			}
			return f.answer(cmd, struct {
				SQL string `json:"sql"`
			}{b.String()}, b.String())
		},
	}
	cmd.Flags().StringVar(&setting, "setting", holdfast.DefaultOwnerSetting, "the setting that has the owner: Options.OwnerSetting")
	cmd.Flags().StringSliceVar(&everyOwner, "every-owner", nil, "the accounts that have every owner's rows: reaper, operator, reader, completers and relays")
	return cmd
}
