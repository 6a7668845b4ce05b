package once

import (
	"context"
	"errors"

	"github.com/holdfast-go/holdfast/internal/trace"
)

// StartSpan starts the span of a call. operation is the program's name for it.
func StartSpan(ctx context.Context, t *trace.Tracer, name, operation string) (context.Context, trace.Span) {
	return t.Start(ctx, trace.Call{Name: name, Operation: operation})
}

// Name is an error and its name in a span.
type Name struct {
	Err  error
	Name string
}

// NameOf returns the name of the first entry of names that matches err; empty for none.
func NameOf(err error, names []Name) string {
	for _, n := range names {
		if errors.Is(err, n.Err) {
			return n.Name
		}
	}
	return ""
}

// OutcomeOf names the outcome of a call whose rejections are of type Rej. It returns "" for
// outcomes that all packages share. An error may name its own, with a method TraceOutcome.
func OutcomeOf[Rej error](replayed, executed bool, err error, names []Name) string {
	var rej Rej
	var named interface{ TraceOutcome() string }
	switch {
	case replayed: // possibly a rejection
		return trace.Replayed
	case err == nil && executed:
		return trace.Executed
	case err == nil:
		return trace.Aborted // the function panicked
	case errors.As(err, &rej):
		return trace.Rejected
	case errors.As(err, &named) && named.TraceOutcome() != "":
		return named.TraceOutcome()
	}
	return NameOf(err, names)
}
