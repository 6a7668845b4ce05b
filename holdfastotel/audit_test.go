package holdfastotel_test

import (
	"context"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	sdklog "go.opentelemetry.io/otel/sdk/log"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/audit"
	"github.com/holdfast-go/holdfast/holdfastotel"
	"github.com/holdfast-go/holdfast/holdfasttest"
	"github.com/holdfast-go/holdfast/sqllock"
)

// records collects what is emitted.
type records struct{ list []sdklog.Record }

func (r *records) Export(_ context.Context, list []sdklog.Record) error {
	for _, one := range list {
		r.list = append(r.list, one.Clone())
	}
	return nil
}
func (*records) Shutdown(context.Context) error   { return nil }
func (*records) ForceFlush(context.Context) error { return nil }

// TestExportAudit exports two interventions, and then what came after the first.
func TestExportAudit(t *testing.T) {
	t.Parallel()
	kit := holdfasttest.SQLite(t)
	locks, err := sqllock.New(t.Context(), kit.DB, sqllock.Options{Holder: "olga"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = locks.Close(context.WithoutCancel(t.Context())) })
	for _, key := range []string{"a", "b"} {
		if _, err := locks.For("anna").Acquire(t.Context(), key); err != nil {
			t.Fatal(err)
		}
		if had, err := locks.For("anna").ForceRelease(t.Context(), key, 0, holdfast.Actor{By: "olga", Reason: "ticket 12"}); err != nil || !had {
			t.Fatal(had, err)
		}
	}
	var got records
	p := sdklog.NewLoggerProvider(sdklog.WithProcessor(sdklog.NewSimpleProcessor(&got)))
	last, err := holdfastotel.ExportAudit(t.Context(), kit.DB, p)
	if err != nil || last.Seq != 2 || len(got.list) != 2 {
		t.Fatalf("%+v, %v, %d records", last, err, len(got.list))
	}
	attributes := map[string]string{}
	got.list[0].WalkAttributes(func(kv attribute.KeyValue) bool {
		attributes[string(kv.Key)] = kv.Value.String()
		return true
	})
	if r := got.list[0]; r.EventName() != holdfastotel.AuditEvent || r.Body().AsString() != "force release" || r.Timestamp().IsZero() ||
		attributes["holdfast.audit.by"] != "olga" || attributes["holdfast.audit.owner"] != "anna" || attributes["holdfast.audit.reason"] != "ticket 12" ||
		attributes["holdfast.audit.seq"] != "1" || len(attributes["holdfast.audit.hash"]) != 64 {
		t.Errorf("%+v, %v", r, attributes)
	}
	last, err = holdfastotel.ExportAudit(t.Context(), kit.DB, p, audit.Filter{After: audit.Record{Seq: 1}})
	if err != nil || last.Seq != 2 || len(got.list) != 3 {
		t.Errorf("%+v, %v, %d records", last, err, len(got.list))
	}
}
