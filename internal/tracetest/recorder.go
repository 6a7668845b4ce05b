// Package tracetest makes each of Holdfast's calls, for the tests of what is told
// of them.
package tracetest

import (
	"context"
	"maps"
	"slices"
	"sync"

	"github.com/holdfast-go/holdfast"
)

// Recorder is a holdfast.Tracer that keeps what it is told.
type Recorder struct {
	mu         sync.Mutex
	calls      []Done
	open       int
	statements []holdfast.Statement
	facts      []holdfast.Fact
}

// Done is a call that has ended. Within is the call that it was made in.
type Done struct {
	holdfast.Call
	holdfast.Ended

	Within string
}

type within struct{}

// Start implements holdfast.Tracer.
func (r *Recorder) Start(ctx context.Context, c holdfast.Call) (context.Context, func(holdfast.Ended)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.open++
	outer, _ := ctx.Value(within{}).(string)
	return context.WithValue(ctx, within{}, c.Name), func(e holdfast.Ended) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.open--
		r.calls = append(r.calls, Done{c, e, outer})
	}
}

// Statement implements holdfast.Tracer.
func (r *Recorder) Statement(_ context.Context, s holdfast.Statement) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.statements = append(r.statements, s)
}

// Fact implements holdfast.Tracer.
func (r *Recorder) Fact(_ context.Context, f holdfast.Fact) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.facts = append(r.facts, f)
}

// Calls are those that have ended, by name.
func (r *Recorder) Calls() map[string][]Done {
	r.mu.Lock()
	defer r.mu.Unlock()
	by := map[string][]Done{}
	for _, c := range r.calls {
		by[c.Name] = append(by[c.Name], c)
	}
	return by
}

// Open is how many calls have not ended.
func (r *Recorder) Open() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.open
}

// Facts are those of a name.
func (r *Recorder) Facts(name string) []holdfast.Fact {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(r.facts), func(f holdfast.Fact) bool { return f.Name != name })
}

// Statements are all statements.
func (r *Recorder) Statements() []holdfast.Statement {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.statements)
}

// Outcomes are those of a call's name.
func (r *Recorder) Outcomes(name string) []string {
	set := map[string]bool{}
	for _, c := range r.Calls()[name] {
		set[c.Outcome] = true
	}
	return slices.Sorted(maps.Keys(set))
}
