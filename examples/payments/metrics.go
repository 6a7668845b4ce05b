package main

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sync"

	"github.com/holdfast-go/holdfast"
)

// counter counts what Holdfast does, for /metrics. A service that has OpenTelemetry uses holdfastotel
// instead; examples/metrics has a dashboard and alerts for it.
type counter struct {
	mu     sync.Mutex
	counts map[string]int
}

func newCounter() *counter { return &counter{counts: map[string]int{}} }

func (c *counter) add(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.counts[name]++
}

// Start implements holdfast.Tracer.
func (c *counter) Start(ctx context.Context, call holdfast.Call) (context.Context, func(holdfast.CallResult)) {
	return ctx, func(r holdfast.CallResult) {
		c.add(fmt.Sprintf("holdfast_calls_total{call=%q,outcome=%q}", call.Name, r.Outcome))
	}
}

// Statement implements holdfast.Tracer.
func (c *counter) Statement(context.Context, holdfast.Statement) { c.add("holdfast_statements_total") }

// Event implements holdfast.Tracer. staged.parked is the one that pages.
func (c *counter) Event(_ context.Context, e holdfast.Event) {
	c.add(fmt.Sprintf("holdfast_events_total{event=%q}", e.Name))
}

func (c *counter) serve(w http.ResponseWriter, _ *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(c.counts)) {
		fmt.Fprintln(w, name, c.counts[name])
	}
}
