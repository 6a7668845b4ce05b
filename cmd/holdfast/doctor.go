package main

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/doctor"
	"github.com/holdfast-go/holdfast/internal/dsn"
)

// finding is a finding of the doctor, in JSON.
type finding struct {
	Check    string `json:"check"`
	Severity string `json:"severity"`
	Problem  string `json:"problem"`
	Advice   string `json:"advice"`
}

func newDoctor(f *flags) *cobra.Command {
	var o doctor.Options
	var tables []string
	var role string
	cmd := &cobra.Command{
		Use: "doctor", Short: "Look for settings that break or weaken what Holdfast promises, and for what waits for a person; only reads", Args: noArgs,
		Long: "Look for settings that break or weaken what Holdfast promises, and for what waits for a person, a completer or a reaper. The exit status is 3 when a promise is broken.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			for _, t := range tables {
				name, key, ok := strings.Cut(t, ":")
				if !ok || name == "" || key == "" {
					return usage("--table is a table and its unique key, such as refunds:refund_no or days:merchant,day")
				}
				o.Tables = append(o.Tables, doctor.Table{Name: name, Key: strings.Split(key, ",")})
			}
			o.Role = doctor.Role(role)
			var found []doctor.Finding
			err := f.with(cmd, func(ctx context.Context, db *holdfast.DB[*sql.Tx]) (err error) {
				found, err = doctor.Check(ctx, db, o)
				return err
			})
			if refused, ok := doctor.Refused(err); ok {
				found, err = refused, nil
			}
			if err != nil {
				return err
			}
			url, err := f.url()
			if err != nil {
				return err
			}
			return f.findings(cmd, append(found, certificate(url, found)...))
		},
	}
	cmd.Flags().StringArrayVar(&tables, "table", nil, "a table of your own and its key, such as refunds:refund_no; may be repeated")
	oneOf(cmd, &role, "role", "", "what the account is for: what it lacks is broken, what it may do beyond a warning", roles[:len(roles)-1]...)
	cmd.Flags().DurationVar(&o.MaxDrift, "max-drift", time.Second, "how far this machine's clock may be from the database's")
	return cmd
}

// certificate says that the driver does not check the server's certificate.
func certificate(url string, found []doctor.Finding) []doctor.Finding {
	setting, better := dsn.Unchecked(url)
	if setting == "" || dsn.Local(url) || slices.ContainsFunc(found, func(f doctor.Finding) bool { return f.Check == "encryption" }) {
		return nil
	}
	return []doctor.Finding{{
		Check: "certificate", Severity: doctor.Warning,
		Problem: "with " + setting + " the driver does not check the server's certificate: who is on the connection's way can take the server's place",
		Advice:  "connect with " + better + ", and the programs likewise: see docs/howto/tls.md",
	}}
}

// findings prints all findings, and returns an error if any of them is broken.
func (f *flags) findings(cmd *cobra.Command, found []doctor.Finding) error {
	list, broken := []finding{}, 0
	var said strings.Builder
	for _, x := range found {
		x.Problem = withoutPassword(x.Problem)
		list = append(list, finding{x.Check, x.Severity.String(), x.Problem, x.Advice})
		fmt.Fprintf(&said, "%s: %s: %s\n  do: %s\n", x.Severity, x.Check, x.Problem, x.Advice)
		if x.Severity == doctor.Broken {
			broken++
		}
	}
	if len(found) == 0 {
		said.WriteString("nothing found\n")
	}
	if err := f.answer(cmd, list, said.String()); err != nil {
		return err
	}
	if broken > 0 {
		return brokenError(broken)
	}
	return nil
}
