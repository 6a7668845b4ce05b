package holdfastotel_test

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"strings"
	"testing"

	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/holdfastotel"
	"github.com/holdfast-go/holdfast/holdfasttest"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/idempotency/operators"
	"github.com/holdfast-go/holdfast/idempotency/staged"
)

// TestObserveBacklog checks that the gauge of unknown operations stands for as long as one is unknown.
func TestObserveBacklog(t *testing.T) {
	t.Parallel()
	ctx, kit := t.Context(), holdfasttest.SQLite(t, holdfast.Options{SingleOwner: true})
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	reader := sdkmetric.NewManualReader()
	stop, err := holdfastotel.ObserveBacklog(kit.DB, holdfastotel.Options{MeterProvider: sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))})
	must(err)
	gauges := func() map[string]int64 {
		var got metricdata.ResourceMetrics
		must(reader.Collect(ctx, &got))
		all := map[string]int64{}
		for _, scope := range got.ScopeMetrics {
			for _, m := range scope.Metrics {
				for _, p := range m.Data.(metricdata.Gauge[int64]).DataPoints {
					all[m.Name] += p.Value
				}
			}
		}
		return all
	}
	const unknown = "holdfast.staged.unknown"
	all := gauges()
	if len(all) != 4 || all[unknown] != 0 {
		t.Errorf("nothing waits: %v", all)
	}
	page, err := os.ReadFile("../docs/reference/observability.md")
	must(err)
	for name := range all {
		if !strings.Contains(string(page), "| `"+name+"` |") {
			t.Errorf("docs/reference/observability.md has no %s", name)
		}
	}
	store, err := idempotency.New(ctx, kit.DB)
	must(err)
	refunds, err := staged.New(store, staged.Workflow[string, string, *sql.Tx]{Name: "refund", Run: func(ctx context.Context, r *staged.Run[*sql.Tx], _ string) (string, error) {
		return staged.Call(ctx, r, staged.ExternalCall[string]{Step: "pay"}, func(context.Context, string) (string, error) { return "", errors.New("no answer") })
	}})
	must(err)
	if _, err := refunds.Do(ctx, idempotency.Op{Key: "1"}, "r"); !errors.As(err, new(*staged.ParkedError)) {
		t.Fatal(err)
	}
	for range 3 {
		if n := gauges()[unknown]; n != 1 {
			t.Errorf("%d operations are unknown, want 1", n)
		}
	}
	ops := operators.New(store)
	for op, err := range ops.List(ctx) {
		must(err)
		must(ops.Resolve(ctx, op.Ref, operators.Resolution{Succeed: true, Result: "paid"}, holdfast.Actor{By: "ana", Reason: "seen at the bank"}))
	}
	if n := gauges()[unknown]; n != 0 {
		t.Errorf("%d operations are unknown after the resolution", n)
	}
	must(stop())
	if all := gauges(); len(all) != 0 {
		t.Errorf("after stop: %v", all)
	}
	if _, err := holdfastotel.ObserveBacklog[*sql.Tx](nil); !errors.Is(err, holdfast.ErrInvalid) {
		t.Error(err)
	}
}
