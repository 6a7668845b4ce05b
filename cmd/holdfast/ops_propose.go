package main

import (
	"context"
	"database/sql"
	"encoding/hex"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-go/holdfast/idempotency/operators"
)

// proposeFlags turn an intervention into a proposal.
type proposeFlags struct {
	only bool
	ttl  time.Duration
}

func (p *proposeFlags) add(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&p.only, "propose", false, "only propose it: another person confirms, with holdfast ops confirm")
	cmd.Flags().DurationVar(&p.ttl, "propose-for", 24*time.Hour, "how long the proposal can be confirmed")
}

func (p *proposeFlags) options() operators.ProposeOptions {
	return operators.ProposeOptions{TTL: p.ttl}
}

// proposal is one proposal in JSON, without results.
type proposal struct {
	ID     string `json:"id"`
	Action string `json:"action"`
	Kind   string `json:"kind"`
	Owner  string `json:"owner,omitempty"`
	Name   string `json:"name,omitempty"`
	key
	Token    int64     `json:"token,omitempty"`
	By       string    `json:"by"`
	Session  string    `json:"session,omitempty"`
	Reason   string    `json:"reason"`
	Proposed time.Time `json:"proposed"`
	Expires  time.Time `json:"expires"`

	text string // the key
}

func proposalOf(p *operators.Proposal) proposal {
	out := proposal{
		ID: hex.EncodeToString(p.ID), Action: p.Action, Kind: "operation", By: p.By, Session: p.Session, Reason: p.Reason, Proposed: p.ProposedAt, Expires: p.ExpiresAt,
	}
	if l := p.Lock; l != nil {
		out.Kind, out.Owner, out.Token, out.text = l.Kind, l.Owner, l.Token, l.Key
	} else {
		out.Owner, out.Name, out.text = p.Operation.Owner, p.Operation.Name, p.Operation.Key
	}
	out.key = jsonKey(out.text)
	return out
}

func proposed(f *flags, cmd *cobra.Command, p *operators.Proposal, err error) error {
	if err != nil {
		return err
	}
	out := proposalOf(p)
	return f.answer(cmd, out, "proposed, until "+moment(p.ExpiresAt)+"; another person confirms with:\n  holdfast ops confirm --id "+out.ID+" --by NAME\n")
}

func newOpsProposals(o *opsFlags) *cobra.Command {
	cmd := &cobra.Command{
		Use: "proposals", Short: "List what was proposed and waits for another person to confirm it", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return o.operators(cmd, func(ctx context.Context, ops *operators.Operators[*sql.Tx]) error {
				list, rows := []proposal{}, [][]string{}
				for found, err := range ops.Proposals(ctx) {
					if err != nil {
						return err
					}
					p := proposalOf(&found)
					list = append(list, p)
					rows = append(rows, []string{p.ID, p.Action, p.Kind, text(p.Owner), text(p.Name), text(p.text), text(p.By), text(p.Reason), moment(p.Expires)})
				}
				return o.answer(cmd, list, o.table(cmd, "no proposals", "ID ACTION KIND OWNER NAME KEY BY REASON EXPIRES", rows))
			})
		},
	}
	o.addWatch(cmd)
	return cmd
}

func newOpsConfirm(o *opsFlags) *cobra.Command {
	var id, by string
	var other, yes bool
	cmd := &cobra.Command{
		Use: "confirm", Short: "Do what another person proposed", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			b, err := hex.DecodeString(id)
			if err != nil {
				return usage("--id is that of a proposal, as holdfast ops proposals has it")
			}
			return o.operators(cmd, func(ctx context.Context, ops *operators.Operators[*sql.Tx]) error {
				if !yes {
					if err := o.unsureOf(ctx, ops, b); err != nil {
						return err
					}
				}
				if err := ops.Confirm(ctx, b, by, operators.ConfirmOptions{OtherAccount: other}); err != nil {
					return err
				}
				return o.answer(cmd, struct {
					Confirmed bool `json:"confirmed"`
				}{true}, "confirmed, and done\n")
			})
		},
	}
	cmd.Flags().StringVar(&id, "id", "", "the proposal's id (required)")
	cmd.Flags().StringVar(&by, "by", "", "who confirms: another person than the one who proposed (required; recorded)")
	cmd.Flags().BoolVar(&other, "other-account", false, "also want another account of the database than that of the proposal")
	cmd.Flags().BoolVar(&yes, "yes", false, "yes, what it says that it does is right")
	_ = cmd.MarkFlagRequired("id") // the flags exist
	_ = cmd.MarkFlagRequired("by")
	return cmd
}
