// Package tracetest makes each of Holdfast's calls, for the tests of tracing.
package tracetest

import (
	"context"
	"maps"
	"slices"
	"sync"

	"github.com/holdfast-go/holdfast"
)

// Recorder is a holdfast.Tracer that keeps what it receives.
type Recorder struct {
	mu         sync.Mutex
	calls      []Done
	open       int
	statements []holdfast.Statement
	facts      []holdfast.Event
}

// Done is a call that has ended. Within is the call that made it.
type Done struct {
	holdfast.Call
	holdfast.CallResult

	Within string
}

type within struct{}

// Start implements holdfast.Tracer.
func (r *Recorder) Start(ctx context.Context, c holdfast.Call) (context.Context, func(holdfast.CallResult)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.open++
	outer, _ := ctx.Value(within{}).(string)
	return context.WithValue(ctx, within{}, c.Name), func(e holdfast.CallResult) {
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

// Event implements holdfast.Tracer.
func (r *Recorder) Event(_ context.Context, f holdfast.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.facts = append(r.facts, f)
}

// Calls returns the calls that have ended, by name.
func (r *Recorder) Calls() map[string][]Done {
	r.mu.Lock()
	defer r.mu.Unlock()
	by := map[string][]Done{}
	for _, c := range r.calls {
		by[c.Name] = append(by[c.Name], c)
	}
	return by
}

// Open returns the number of calls that have not ended.
func (r *Recorder) Open() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.open
}

// Events returns the events with this name.
func (r *Recorder) Events(name string) []holdfast.Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(r.facts), func(f holdfast.Event) bool { return f.Name != name })
}

// Statements returns all statements.
func (r *Recorder) Statements() []holdfast.Statement {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.statements)
}

// Outcomes returns the outcomes of the calls with this name.
func (r *Recorder) Outcomes(name string) []string {
	set := map[string]bool{}
	for _, c := range r.Calls()[name] {
		set[c.Outcome] = true
	}
	return slices.Sorted(maps.Keys(set))
}
