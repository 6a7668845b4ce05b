package main

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/idempotency/operators"
	"github.com/holdfast-go/holdfast/idempotency/staged"
	"github.com/holdfast-go/holdfast/internal/core"
)

func newOps(f *flags) *cobra.Command {
	o := &opsFlags{flags: f}
	cmd := group("ops", "Look at idempotent operations, and settle those whose outcome is unknown",
		newOpsList(o), newOpsShow(o), newOpsResolve(o), newOpsResume(o), newOpsCancel(o), newOpsErase(o), newOpsSimilar(o), newOpsProposals(o), newOpsConfirm(o))
	cmd.SuggestFor = []string{"operations", "operation", "records"}
	addNamespace(cmd.PersistentFlags(), &o.namespace)
	return cmd
}

type opsFlags struct {
	*flags
	namespace string
}

func (o *opsFlags) operators(cmd *cobra.Command, run func(ctx context.Context, ops *operators.Operators[*sql.Tx]) error) error {
	return o.store(cmd, func(ctx context.Context, store *idempotency.Store[*sql.Tx]) error {
		return run(ctx, operators.New(store))
	})
}

func (o *opsFlags) store(cmd *cobra.Command, run func(ctx context.Context, store *idempotency.Store[*sql.Tx]) error) error {
	return o.with(cmd, func(ctx context.Context, db *holdfast.DB[*sql.Tx]) error {
		store, err := idempotency.New(ctx, db, idempotency.Options{Namespace: o.namespace})
		if err != nil {
			return err
		}
		return run(ctx, store)
	})
}

// refFlags name an operation.
type refFlags struct {
	owner, name string
	key         keyFlags
}

func (r *refFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&r.owner, "owner", "", "the operation's owner (tenant, merchant or account), none where the program has one only")
	mayBeEmpty(cmd.Flags(), "owner")
	cmd.Flags().StringVar(&r.name, "name", "", "the operation's name (required)")
	_ = cmd.MarkFlagRequired("name") // the flag exists
	r.key.add(cmd)
}

func (r *refFlags) ref() (staged.Ref, error) {
	k, err := r.key.key()
	return staged.Ref{Owner: r.owner, Name: r.name, Key: k}, err
}

// operation is one operation in JSON.
type operation struct {
	ID    string `json:"id"`
	Owner string `json:"owner,omitempty"`
	Name  string `json:"name"`
	key
	Staged        bool           `json:"staged"`
	State         string         `json:"state"`
	Step          string         `json:"step,omitempty"`
	Started       int            `json:"started"`
	Finished      int            `json:"finished"`
	Created       time.Time      `json:"created"`
	Moved         time.Time      `json:"moved"`
	DueMS         int64          `json:"due_ms,omitempty"`
	Token         int64          `json:"token,omitempty"`
	Reason        string         `json:"reason,omitempty"`
	Reversed      *time.Time     `json:"reversed,omitempty"`
	Contradicted  bool           `json:"contradicted,omitempty"`
	Restored      bool           `json:"restored,omitempty"`
	Holder        string         `json:"holder,omitempty"`
	Program       string         `json:"program,omitempty"`
	RequestID     string         `json:"request_id,omitempty"`
	ResultType    string         `json:"result_type,omitempty"`
	Steps         []step         `json:"steps,omitempty"`
	Events        []event        `json:"events,omitempty"`
	Interventions []intervention `json:"interventions,omitempty"`
}

type step struct {
	Name        string    `json:"name"`
	State       string    `json:"state"`
	ProviderKey string    `json:"provider_key,omitempty"`
	ResultType  string    `json:"result_type"`
	Starts      int       `json:"starts"`
	Begun       time.Time `json:"begun"`
	Moved       time.Time `json:"moved"`

	// What the provider calls it, by when it settles it, and when it was taken back.
	Provider  string     `json:"provider,omitempty"`
	Reference string     `json:"reference,omitempty"`
	Deadline  *time.Time `json:"deadline,omitempty"`
	Reversed  *time.Time `json:"reversed,omitempty"`
}

// timeOrNil returns a time for JSON; nil for never.
func timeOrNil(at time.Time) *time.Time {
	if at.IsZero() {
		return nil
	}
	return &at
}

// event leaves out the body, because a provider's text may be personal.
type event struct {
	ID       string     `json:"id"`
	Kind     string     `json:"kind"`
	Received *time.Time `json:"received,omitempty"` // none: its function has not succeeded
}

type intervention struct {
	Action string    `json:"action"`
	By     string    `json:"by"`
	Reason string    `json:"reason"`
	At     time.Time `json:"at"`
}

func operationOf(op *staged.Operation) operation {
	out := operation{
		ID: hex.EncodeToString(op.ID), Owner: op.Owner, Name: op.Name, key: jsonKey(op.Key), Staged: op.Staged, State: op.State.String(),
		Step: op.Step, Started: op.Started, Finished: op.Finished, Created: op.Created, Moved: op.Moved, Token: op.Token,
		Reason: op.Reason, Reversed: timeOrNil(op.Reversed), Contradicted: op.Contradicted, Restored: op.Restored, Holder: op.Holder, Program: op.Program, RequestID: op.RequestID, ResultType: op.ResultType,
	}
	out.DueMS = op.Due.Milliseconds()
	for _, s := range op.Steps {
		out.Steps = append(out.Steps, step{
			Name: s.Name, State: s.State.String(), ProviderKey: s.ProviderKey, ResultType: s.ResultType, Starts: s.Starts, Begun: s.Begun, Moved: s.Moved,
			Provider: s.Provider, Reference: s.Reference, Deadline: timeOrNil(s.Deadline), Reversed: timeOrNil(s.Reversed),
		})
	}
	for _, n := range op.Events {
		out.Events = append(out.Events, event{n.ID, n.Kind, timeOrNil(n.Received)})
	}
	for _, i := range op.Interventions {
		out.Interventions = append(out.Interventions, intervention{i.Action, i.By, i.Reason, i.At})
	}
	return out
}

// states are the values of --state: what is printed, also with dashes, which need no quotes.
var states = []string{
	"unknown", "in-progress", "waiting", "settling", "succeeded", "rejected", "succeeded-and-expired", "rejected-and-expired",
}

// stateOf returns the state that has a text.
func stateOf(text string) (idempotency.State, error) {
	for s := idempotency.StateInProgress; s <= idempotency.StateRejectedExpired; s++ {
		if s.String() == strings.ReplaceAll(text, "-", " ") {
			return s, nil
		}
	}
	return 0, unknownChoice("--state", text, states)
}

func newOpsList(o *opsFlags) *cobra.Command {
	var filter operators.Filter
	var state, after string
	var limit int
	cmd := &cobra.Command{
		Use: "list", Short: "List operations: those whose outcome is unknown, or others by --state", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			for text := range strings.SplitSeq(state, ",") {
				s, err := stateOf(text)
				if err != nil {
					return err
				}
				filter.States = append(filter.States, s)
			}
			err := checkLimit(limit)
			if err != nil {
				return err
			}
			if filter.After.ID, err = hex.DecodeString(after); err != nil {
				return usage("--after is the id of an operation, as holdfast ops list -json has it")
			}
			return o.operators(cmd, func(ctx context.Context, ops *operators.Operators[*sql.Tx]) error {
				found, err := core.First(limit, ops.List(ctx, filter))
				if err != nil {
					return err
				}
				list, rows := []operation{}, [][]string{}
				for i := range found {
					op := &found[i]
					list = append(list, operationOf(op))
					rows = append(rows, []string{
						text(op.Owner), text(op.Name), text(op.Key), op.State.String(), text(op.Step),
						fmt.Sprintf("%d/%d", op.Finished, op.Started), moment(op.Moved), text(op.Reason),
						hex.EncodeToString(op.ID), moment(op.Created), text(op.Holder), text(op.Program), text(op.RequestID),
					})
				}
				none := ""
				if len(rows) == 0 && o.forPeople() {
					if none, err = o.operationsElsewhere(ctx, ops, filter); err != nil {
						return err
					}
				}
				return o.answer(cmd, list, o.table(cmd, none, "OWNER NAME KEY STATE STEP ATTEMPTS MOVED REASON | ID CREATED HOLDER PROGRAM REQUEST", rows))
			})
		},
	}
	flags := cmd.Flags()
	o.addWatch(cmd)
	someOf(cmd, &state, "state", "unknown", "in which states", states...)
	flags.DurationVar(&filter.Overdue, "overdue", 0, "only those that nobody came for in so long: with --state waiting,settling, those that are stuck")
	flags.BoolVar(&filter.Records, "records", false, "records of Do instead of staged operations")
	flags.StringVar(&filter.Owner, "owner", "", "only the operations of this owner")
	flags.StringVar(&filter.Name, "name", "", "only operations of this name")
	flags.IntVar(&limit, "limit", 100, "how many at most")
	flags.StringVar(&after, "after", "", "go on behind the one with this id")
	return cmd
}

func newOpsShow(o *opsFlags) *cobra.Command {
	var r refFlags
	cmd := &cobra.Command{
		Use: "show", Short: "Show one operation, with its steps, its provider events and who intervened", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ref, err := r.ref()
			if err != nil {
				return err
			}
			return o.operators(cmd, func(ctx context.Context, ops *operators.Operators[*sql.Tx]) error {
				op, err := ops.Show(ctx, ref)
				if err != nil {
					return err
				}
				return o.answer(cmd, operationOf(op), o.describe(cmd, op))
			})
		},
	}
	r.add(cmd)
	return cmd
}

func (o *opsFlags) describe(cmd *cobra.Command, op *staged.Operation) string {
	rows := [][]string{
		{"owner", text(op.Owner)},
		{"name", text(op.Name)},
		{"key", text(op.Key)},
		{"state", op.State.String()},
		{"created", moment(op.Created)},
		{"moved", moment(op.Moved)},
		{"holder", text(op.Holder)},
		{"program", text(op.Program)},
		{"request", text(op.RequestID)},
	}
	if op.Staged {
		rows = append(rows, []string{"attempts", fmt.Sprintf("%d started, %d finished", op.Started, op.Finished)},
			[]string{"step", text(op.Step)}, []string{"reason", text(op.Reason)}, []string{"result", "is " + op.ResultType})
		if !op.Reversed.IsZero() {
			rows = append(rows, []string{"reversed", "reported as taken back " + moment(op.Reversed)})
		}
		if op.Contradicted {
			rows = append(rows, []string{"contradicted", "the provider gave two answers that exclude each other: see the reason"})
		}
	}
	for _, s := range op.Steps {
		rows = append(rows, []string{"step " + text(s.Name), fmt.Sprintf("%s, begun %d times, provider key %s, result is %s", s.State, s.Starts, text(s.ProviderKey), s.ResultType)})
		if s.Reference != "" {
			rows = append(rows, []string{"  reference", text(s.Provider) + " " + text(s.Reference)})
		}
		if !s.Deadline.IsZero() {
			rows = append(rows, []string{"  settles", "by " + moment(s.Deadline)})
		}
		if !s.Reversed.IsZero() {
			rows = append(rows, []string{"  reversed", moment(s.Reversed)})
		}
	}
	for _, n := range op.Events {
		received := moment(n.Received)
		if n.Received.IsZero() {
			received = "its function ended its transaction itself: look what it did"
		}
		rows = append(rows, []string{"event " + text(n.ID), text(n.Kind) + " " + received})
	}
	for _, i := range op.Interventions {
		rows = append(rows, []string{i.Action, fmt.Sprintf("by %s %s: %s", text(i.By), moment(i.At), text(i.Reason))})
	}
	return o.table(cmd, "", "WHAT IS", rows)
}

// intervened answers with an operation that was changed. The change stands, also if the operation cannot be read.
func (o *opsFlags) intervened(ctx context.Context, cmd *cobra.Command, ops *operators.Operators[*sql.Tx], ref staged.Ref, said string) error {
	op, err := ops.Show(ctx, ref)
	state := cmp.Or(said, "free")
	switch {
	case err == nil:
		return o.answer(cmd, operationOf(op), cmp.Or(said, op.State.String())+"\n")
	case !errors.Is(err, staged.ErrNotFound): // it was not freed
		fmt.Fprintln(cmd.ErrOrStderr(), "holdfast: it was done. Only reading the operation afterwards failed: "+withoutPassword(err.Error()))
		state = cmp.Or(said, "done")
	}
	return o.answer(cmd, struct {
		State string `json:"state"`
	}{state}, state+"\n")
}

func newOpsErase(o *opsFlags) *cobra.Command {
	var r refFlags
	var who whoFlags
	cmd := &cobra.Command{
		Use: "erase", Short: "Delete what was asked and answered, and keep that it was done", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ref, err := r.ref()
			if err != nil {
				return err
			}
			return o.operators(cmd, func(ctx context.Context, ops *operators.Operators[*sql.Tx]) error {
				if err := ops.Erase(ctx, ref, who.Actor); err != nil {
					return err
				}
				return o.intervened(ctx, cmd, ops, ref, "")
			})
		},
	}
	r.add(cmd)
	who.add(cmd)
	return cmd
}
