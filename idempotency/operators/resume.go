package operators

import (
	"context"
	"errors"
	"strings"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/idempotency/internal/once"
	"github.com/holdfast-go/holdfast/idempotency/staged"
	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/options"
)

// ResumeOptions configures ResumeAll.
type ResumeOptions struct {
	// DryRun resumes nothing, and returns what would be resumed.
	DryRun bool
	// Because selects operations whose Reason contains this text; empty means all. The case of
	// letters matters.
	Because string
	// Limit bounds how many operations are looked at. Default: 100; at most 10,000.
	Limit int
}

// Resumed is the result of ResumeAll.
type Resumed struct {
	// Operations were resumed; with DryRun they would be.
	Operations []staged.Operation
	// Skipped are parked too, but a person has to look at each and Resolve it: the outcome of a call
	// is unknown, the provider has contradicted itself, or the database was restored.
	Skipped []staged.Operation
	// After continues the list, as Filter.After does. Its ID is nil at the end of the list.
	After staged.Operation
}

// ResumeAll does what [Operators.Resolve] does with Resume, to each operation of f that is parked at
// no step, such as those whose attempts were used up while a database or a provider was down. Each is
// resumed in its own transaction, which records who. f.States and f.Records must not be set. One that
// another call resolves first is left out.
//
// Errors: those of [Operators.List] and of Resolve. Resumed then has what was resumed before.
func (o *Operators[Tx]) ResumeAll(ctx context.Context, f Filter, who holdfast.Actor, opts ...ResumeOptions) (done Resumed, err error) {
	opt, err := options.One(opts)
	if err != nil {
		return done, err
	}
	if len(f.States) > 0 || f.Records {
		return done, once.Invalid("Filter", "has States or Records: only unknown staged operations are resumed")
	}
	if err := check(who); err != nil && !opt.DryRun {
		return done, err
	}
	if opt.Limit == 0 {
		opt.Limit = 100
	}
	if err := options.Many.UpTo(10_000).Of("operations").Check("ResumeOptions.Limit", int64(opt.Limit)); err != nil {
		return done, err
	}
	found, err := core.First(opt.Limit, o.List(ctx, f))
	if err != nil {
		return done, err
	}
	if len(found) == opt.Limit {
		done.After = found[len(found)-1]
	}
	for _, op := range found {
		id, ok := once.ParseID(op.ID)
		switch {
		case !ok || !strings.Contains(op.Reason, opt.Because):
			continue
		case op.Step != "" || op.Contradicted || op.Restored:
			done.Skipped = append(done.Skipped, op)
			continue
		case !opt.DryRun:
			err = o.resolve(ctx, id, Resolution{Resume: true, Token: op.Token}, who)
		}
		switch {
		case err == nil:
			done.Operations = append(done.Operations, op)
		case errors.Is(err, staged.ErrState), errors.Is(err, staged.ErrNotFound):
			err = nil // another call resolved it
		default:
			return done, err
		}
	}
	return done, nil
}
