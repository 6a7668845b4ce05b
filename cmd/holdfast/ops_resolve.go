package main

import (
	"context"
	"database/sql"
	"errors"

	"github.com/spf13/cobra"

	"github.com/holdfast-go/holdfast/idempotency/operators"
)

func newOpsResolve(o *opsFlags) *cobra.Command {
	var r refFlags
	var who whoFlags
	var as, result, code, message string
	var propose proposeFlags
	var yes bool
	var token int64
	cmd := &cobra.Command{
		Use: "resolve", Short: "Settle an operation whose outcome is unknown, once you know it", Args: noArgs,
		Long: "Settle an operation whose outcome is unknown. --as says how:\n\n" +
			"  step-done      its outside call was made; --result is what it returned, in JSON\n" +
			"                 (holdfast ops show says of which type); also instead of a result\n" +
			"                 that the program could not read\n" +
			"  step-not-done  it was not made: the operation makes it\n" +
			"  step-rejected  the provider refused for good (--code, --message)\n" +
			"  resume         go on with an operation that is parked at no step, or at one whose\n" +
			"                 result the program could not read, with a program that reads it\n" +
			"  succeeded      end it with --result, in JSON\n" +
			"  rejected       end it with --code and --message\n" +
			"  free           forget the record of a Do that committed without a result\n\n" +
			"Where a mistake loses work or money for good (step-not-done, succeeded, rejected, free), it\n" +
			"first says what it would do, what would not run and what would stay reserved, and wants --yes.\n",
		RunE: func(cmd *cobra.Command, _ []string) error {
			ref, err := r.ref()
			if err != nil {
				return err
			}
			resolution, err := resolutionOf(as, result, code, message)
			if err != nil {
				return err
			}
			resolution.Token = token
			return o.operators(cmd, func(ctx context.Context, ops *operators.Operators[*sql.Tx]) error {
				if propose.only {
					p, err := ops.Propose(ctx, ref, resolution, who.Actor, propose.options())
					return proposed(o.flags, cmd, p, err)
				}
				if !yes && operators.Hazardous(as) {
					if err := o.unsure(ctx, ops, ref, as, "--token"); err != nil {
						return err
					}
				}
				if err := ops.Resolve(ctx, ref, resolution, who.Actor); err != nil {
					return err
				}
				return o.intervened(ctx, cmd, ops, ref, "")
			})
		},
	}
	r.add(cmd)
	who.add(cmd)
	propose.add(cmd)
	flags := cmd.Flags()
	oneOf(cmd, &as, "as", "", "how (required)", resolutions...)
	flags.StringVar(&result, "result", "", "what was returned, in JSON")
	flags.StringVar(&code, "code", "", "code of the rejection")
	flags.StringVar(&message, "message", "", "message of the rejection")
	flags.Int64Var(&token, "token", 0, "only if the operation has this token, as shown: not if it has gone on since")
	flags.BoolVar(&yes, "yes", false, "yes, what it says that it does is right")
	_ = cmd.MarkFlagRequired("as") // the flag exists
	return cmd
}

// resolutions are the values of --as.
var resolutions = []string{
	"step-done\tits outside call was made", "step-not-done\tit was not made: make it",
	"step-rejected\tthe provider refused for good", "resume\tgo on, parked at no step", "succeeded\tend it with a result",
	"rejected\tend it with a code", "free\tforget the record of a Do",
}

// resolutionOf converts errors to messages that name the flags.
func resolutionOf(as, result, code, message string) (operators.Resolution, error) {
	r, err := operators.ParseResolution(as, result, code, message)
	switch {
	case errors.Is(err, operators.ErrChoice):
		err = unknownChoice("--as", as, resolutions)
	case errors.Is(err, operators.ErrNoCode):
		err = usage("say why it was rejected: --code, and --message for people")
	case err != nil:
		err = usage("--result: %v", err)
	}
	return r, err
}
