package main

import (
	"context"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/audit"
)

func newAudit(f *flags) *cobra.Command {
	return group("audit", "Look at what people did to locks and operations, and verify that nobody changed it",
		newAuditList(f), newAuditExport(f), newAuditVerify(f))
}

// auditFlags select rows.
type auditFlags struct {
	filter  audit.Filter
	subject string
}

func (a *auditFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&a.filter.Owner, "owner", "", "only what was done to this owner's")
	oneOf(cmd, &a.filter.Kind, "kind", "", "only what was done to this", auditKinds...)
	flags.StringVar(&a.subject, "subject", "", "only what was done to the key with this hash, in hexadecimal digits")
	flags.Int64Var(&a.filter.After.Seq, "after", 0, "go on behind the row with this number")
	flags.StringVar(&a.filter.After.Chain, "after-chain", "", "the chain of that row (Vitess)")
}

// auditKinds are those that audit.Record has.
var auditKinds = []string{"lease", "fair lock", "semaphore", "record", "staged", "operation", "similar", "limit", "limit entry", "dead letter", "database"}

// each runs do for each row that the flags select.
func (a *auditFlags) each(f *flags, cmd *cobra.Command, do func(r audit.Record) error) error {
	var err error
	if a.filter.Subject, err = hex.DecodeString(a.subject); err != nil {
		return usage("--subject is not an even number of hexadecimal digits")
	}
	if a.filter.Kind != "" && !slices.Contains(auditKinds, a.filter.Kind) {
		return unknownChoice("--kind", a.filter.Kind, auditKinds)
	}
	return f.with(cmd, func(ctx context.Context, db *holdfast.DB[*sql.Tx]) error {
		for r, err := range audit.List(ctx, db, a.filter) {
			if err == nil {
				err = do(r)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}

func newAuditList(f *flags) *cobra.Command {
	var a auditFlags
	var limit int
	cmd := &cobra.Command{
		Use: "list", Short: "List interventions, the last ones last", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkLimit(limit); err != nil {
				return err
			}
			list := []audit.Record{}
			err := a.each(f, cmd, func(r audit.Record) error {
				if list = append(list, r); len(list) > 2*limit {
					list = slices.Clone(list[len(list)-limit:])
				}
				return nil
			})
			if err != nil {
				return err
			}
			list = list[max(0, len(list)-limit):]
			rows := [][]string{}
			for _, r := range list {
				rows = append(rows, []string{
					strconv.FormatInt(r.Seq, 10), moment(r.At), text(r.By), text(r.Action), text(r.Kind), text(r.Owner), text(r.Reason), text(r.ConfirmedBy), text(r.Session), text(string(r.Before)), text(string(r.After)),
				})
			}
			return f.answer(cmd, list, f.table(cmd, "no such interventions", "SEQ AT BY ACTION KIND OWNER REASON CONFIRMED | SESSION BEFORE AFTER", rows))
		},
	}
	a.add(cmd)
	cmd.Flags().IntVar(&limit, "limit", 100, "how many at most: the last ones")
	return cmd
}

func newAuditExport(f *flags) *cobra.Command {
	var a auditFlags
	cmd := &cobra.Command{
		Use: "export", Short: "Write interventions as JSON lines, one a row", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			e := json.NewEncoder(cmd.OutOrStdout())
			e.SetEscapeHTML(false)
			return a.each(f, cmd, func(r audit.Record) error { return e.Encode(r) })
		},
	}
	a.add(cmd)
	return cmd
}

// auditHead is the last row of a chain, in JSON.
type auditHead struct {
	Chain string `json:"chain,omitempty"`
	Seq   int64  `json:"seq"`
	Hash  string `json:"hash"`
}

func newAuditVerify(f *flags) *cobra.Command {
	var expect []string
	cmd := &cobra.Command{
		Use: "verify", Short: "Verify the audit's chain of hashes, and name the first row that somebody changed", Args: noArgs,
		Long: "Verify the audit's chain of hashes, and name the first row that was changed, deleted or inserted.\n\n" +
			"It prints the hash of the last row. Keep that where the database's users cannot write, and give it\n" +
			"to the next run with --expect: that finds deleted last rows, and a chain that was computed anew.\n",
		RunE: func(cmd *cobra.Command, _ []string) error {
			var o audit.VerifyOptions
			for _, h := range expect {
				b, err := hex.DecodeString(h)
				if err != nil {
					return usage("--expect is not a hash in hexadecimal digits, as holdfast audit verify prints it")
				}
				o.Expect = append(o.Expect, b)
			}
			return f.with(cmd, func(ctx context.Context, db *holdfast.DB[*sql.Tx]) error {
				report, err := audit.Verify(ctx, db, o)
				if err != nil {
					if errors.Is(err, audit.ErrBroken) {
						err = statusError{exitBroken, err}
					}
					return err
				}
				heads, said := []auditHead{}, strings.Builder{}
				fmt.Fprintf(&said, "rows %d, as written\n", report.Rows)
				for _, h := range report.Heads {
					heads = append(heads, auditHead{h.Chain, h.Seq, hex.EncodeToString(h.Hash)})
					fmt.Fprintf(&said, "head %d %x%s\n", h.Seq, h.Hash, strings.TrimRight(" "+text(h.Chain), " -"))
				}
				return f.answer(cmd, struct {
					Rows  int64       `json:"rows"`
					Heads []auditHead `json:"heads"`
				}{report.Rows, heads}, said.String())
			})
		},
	}
	cmd.Flags().StringSliceVar(&expect, "expect", nil, "hash of a row that must still be there, such as the head of an earlier run")
	return cmd
}
