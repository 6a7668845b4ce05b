package holdfast_test

import (
	"context"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/holdfasttest"
	"github.com/holdfast-go/holdfast/internal/test/tracetest"
	"github.com/holdfast-go/holdfast/sqllock"
)

// TestTracerIsTold checks that each call ends once, with the outcome that its error means.
func TestTracerIsTold(t *testing.T) {
	t.Parallel()
	r, other := &tracetest.Recorder{}, &tracetest.Recorder{}
	tracetest.Everything(t, holdfast.Options{Observers: []holdfast.Observer{nil}, Tracers: []holdfast.Tracer{r, other, nil}})
	if r.Open() != 0 || len(other.Calls()) != len(r.Calls()) {
		t.Errorf("%d calls have not ended; %d and %d names", r.Open(), len(r.Calls()), len(other.Calls()))
	}
	wanted := map[string][]string{
		"lease.acquire":             {"acquired", "invalid", "timeout"},
		"lease.try_acquire":         {"held"},
		"lease.release":             {"done", "lost"},
		"lease.guard":               {"done", "lost"},
		"lease.do":                  {"aborted", "done"},
		"lease.acquire_all":         {"acquired"},
		"lease.try_acquire_all":     {"held"},
		"lease.force_release":       {"done"},
		"lease.resume":              {"acquired", "lost"},
		"lease.renew":               {"done"},
		"fair.acquire":              {"acquired"},
		"fair.try_acquire":          {"held"},
		"fair.release":              {"done", "lost"},
		"fair.force_release":        {"done"},
		"fair.do":                   {"done"},
		"shared.acquire":            {"acquired"},
		"shared.try_acquire":        {"held"},
		"shared.release":            {"done"},
		"shared.do":                 {"done"},
		"semaphore.acquire":         {"acquired"},
		"semaphore.try_acquire":     {"held"},
		"semaphore.release":         {"done"},
		"semaphore.force_release":   {"done"},
		"semaphore.do":              {"done"},
		"election.campaign":         {"acquired"},
		"hold.acquire":              {"unsupported"},
		"row.lock_key":              {"acquired"},
		"row.lock":                  {"not_found"},
		"row.next":                  {"acquired"},
		"transaction":               {"done", "error"},
		"idempotency.do":            {"error", "executed", "expired", "in_progress", "invalid", "mismatch", "rejected", "replayed", "similar", "unfinished", "unknown"},
		"idempotency.do_tx":         {"executed"},
		"business_row.do":           {"executed", "replayed"},
		"business_row.claim_tx":     {"mismatch"},
		"business_row.claim_all_tx": {"executed"},
		"idempotency.lookup":        {"done"},
		"idempotency.void":          {"executed", "too_late"},
		"outbox.write":              {"done", "invalid"},
		"outbox.publish":            {"done", "error"},
		"staged.do":                 {"executed", "parked", "replayed", "retrying", "settling"},
		"staged.start":              {"executed"},
		"staged.lookup":             {"done"},
		"staged.cancel":             {"executed", "too_late"},
		"staged.attempt":            {"executed", "parked", "retrying", "settling"},
		"staged.complete":           {"done"},
		"staged.event":              {"executed", "replayed"},
		"version.get":               {"done", "not_found"},
		"version.get_tx":            {"done"},
		"version.insert":            {"done", "duplicate"},
		"version.insert_tx":         {"done"},
		"version.update":            {"conflict", "done"},
		"version.update_tx":         {"conflict"},
		"version.delete":            {"done"},
		"version.delete_tx":         {"done"},
		"version.retry":             {"conflict"},
		"register.get":              {"done"},
		"register.get_tx":           {"done"},
		"register.create":           {"conflict", "done"},
		"register.create_tx":        {"done"},
		"register.compare_and_swap": {"done"},
		"register.delete":           {"done"},
		"register.delete_tx":        {"done"},
		"limits.get":                {"done", "not_found"},
		"limits.set":                {"done", "rejected"},
		"limits.set_tx":             {"done"},
		"limits.reserve":            {"done", "mismatch", "replayed"},
		"limits.reserve_tx":         {"done"},
		"limits.take":               {"done", "invalid", "rejected"},
		"limits.take_tx":            {"done"},
		"limits.capture":            {"done"},
		"limits.capture_tx":         {"conflict"},
		"limits.void":               {"conflict", "done"},
		"limits.void_tx":            {"done"},
		"limits.expire":             {"done"},
		"limits.erase":              {"done"},
		"reaper.sweep":              {"done"},

		"register.compare_and_swap_tx": {"done"},
	}
	for name := range r.Calls() {
		if wanted[name] == nil {
			t.Errorf("%s is told of, and not expected", name)
		}
	}
	for name, want := range wanted {
		if got := r.Outcomes(name); !slices.Equal(got, want) {
			t.Errorf("%s: outcomes %v, want %v", name, got, want)
		}
		for _, c := range r.Calls()[name] {
			if c.Engine != "sqlite" || c.Duration <= 0 {
				t.Errorf("%+v", c)
			}
		}
	}
}

// TestEventsAreReported checks that the end of a granted lease is reported with its cause, and
// that the work of one call within another is not reported as another call.
func TestEventsAreReported(t *testing.T) {
	t.Parallel()
	r := &tracetest.Recorder{}
	tracetest.Everything(t, holdfast.Options{Tracers: []holdfast.Tracer{r}})
	if g, e := len(r.Events("lease.granted")), len(r.Events("lease.ended")); g == 0 || g != e {
		t.Errorf("%d leases were granted, %d ended", g, e)
	}
	causes := map[string]int{}
	for _, f := range r.Events("lease.lost") {
		causes[f.Lock+" "+f.Cause]++
	}
	if want := map[string]int{"lease expired": 1, "lease taken": 2, "lease release": 1, "fair release": 1}; !maps.Equal(causes, want) {
		t.Errorf("lost: %v, want %v", causes, want)
	}
	tasks := map[string]int64{}
	for _, f := range r.Events("reaper.task") {
		tasks[f.Task] += f.Count
	}
	if tasks["keys"] == 0 {
		t.Errorf("reaper: %v", tasks)
	}
	if p := r.Events("staged.parked"); len(p) != 1 || p[0].Operation != "payout" || p[0].Count != 1 {
		t.Errorf("parked: %+v", p)
	}
	for _, c := range r.Calls()["transaction"] {
		if strings.HasPrefix(c.Within, "version.update") || strings.HasPrefix(c.Within, "register.") {
			t.Errorf("a transaction is told of within %s", c.Within)
		}
	}
	retry := r.Calls()["version.retry"][0]
	if retry.Attempts != 2 {
		t.Errorf("%+v", retry)
	}
	for _, s := range r.Statements() {
		if s.Engine != "sqlite" && s.Name != "" || s.Command == "" || strings.ContainsAny(s.Command, " \n") {
			t.Errorf("%+v", s)
		}
	}
}

type mark struct{}

// TestLeaseHasItsCallersValues checks that a lease's context has the values of its caller,
// also if another call handed the lease over, and none of the tracer's values from the call
// that acquired it.
func TestLeaseHasItsCallersValues(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	locks, err := sqllock.New(ctx, holdfasttest.SQLite(t, holdfast.Options{SingleOwner: true, Tracers: []holdfast.Tracer{marker{}}}).DB, sqllock.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer locks.Close(ctx)
	value := func(l *sqllock.Lease) any { return l.Context().Value(mark{}) }
	first, err := locks.Acquire(context.WithValue(ctx, mark{}, "first"), "a")
	if err != nil || value(first) != "first" {
		t.Fatal(err, value(first))
	}
	second := make(chan any)
	go func() {
		l, err := locks.Acquire(context.WithValue(ctx, mark{}, "second"), "a")
		if err != nil {
			second <- err
			return
		}
		second <- value(l)
		_ = l.Release(ctx)
	}()
	time.Sleep(20 * time.Millisecond) // in the queue by then; if not, the test checks nothing
	if err := first.Release(context.WithValue(ctx, mark{}, "first")); err != nil {
		t.Fatal(err)
	}
	if got := <-second; got != "second" {
		t.Errorf("the lease that was handed over has the value %v", got)
	}
	all, err := locks.AcquireAll(context.WithValue(ctx, mark{}, "all"), []string{"b"})
	if err != nil || value(all.All()[0]) != "all" {
		t.Error(err, value(all.All()[0]))
	}
}

// marker marks the contexts of calls.
type marker struct{}

func (marker) Start(ctx context.Context, c holdfast.Call) (context.Context, func(holdfast.CallResult)) {
	return context.WithValue(ctx, mark{}, c.Name), nil
}
func (marker) Statement(context.Context, holdfast.Statement) {}
func (marker) Event(context.Context, holdfast.Event)         {}
