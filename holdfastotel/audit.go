package holdfastotel

import (
	"context"
	"encoding/hex"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/log"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/audit"
)

// AuditEvent is the event name of the log records of [ExportAudit].
const AuditEvent = "holdfast.audit"

// ExportAudit emits the rows of the audit that the filter selects as log records, in the order in which
// they were written, and returns the last one, or the filter's After if there is none. Keep its Chain and
// Seq, and give it to the next call as audit.Filter's After. A row that a crash kept from being recorded as exported is
// emitted again: holdfast.audit.chain and holdfast.audit.seq identify it.
//
// Unlike metrics and spans, these records name persons, owners and reasons: that is what they are for. The
// action is the body, the row's time the timestamp, and the other columns are attributes. ExportAudit does
// not flush the provider.
//
// Errors: those of [audit.List]. The records before the error were emitted.
func ExportAudit[Tx any](ctx context.Context, db *holdfast.DB[Tx], p log.LoggerProvider, filter ...audit.Filter) (last audit.Record, err error) {
	for _, f := range filter {
		last = f.After
	}
	logger := p.Logger(Scope)
	for r, err := range audit.List(ctx, db, filter...) {
		if err != nil {
			return last, err
		}
		logger.Emit(ctx, logRecord(&r))
		last = r
	}
	return last, nil
}

func logRecord(r *audit.Record) (out log.Record) {
	out.SetEventName(AuditEvent)
	out.SetTimestamp(r.At)
	out.SetSeverity(log.SeverityInfo)
	out.SetBody(attribute.StringValue(r.Action))
	out.AddAttributes(
		attribute.String("holdfast.audit.chain", r.Chain), attribute.Int64("holdfast.audit.seq", r.Seq),
		attribute.String("holdfast.audit.by", r.By), attribute.String("holdfast.audit.session", r.Session), attribute.String("holdfast.audit.reason", r.Reason), attribute.String("holdfast.audit.confirmed_by", r.ConfirmedBy),
		attribute.String("holdfast.audit.kind", r.Kind), attribute.String("holdfast.audit.owner", r.Owner), attribute.String("holdfast.audit.namespace", r.Namespace),
		attribute.String("holdfast.audit.subject", hex.EncodeToString(r.Subject)), attribute.String("holdfast.audit.hash", hex.EncodeToString(r.Hash)),
		attribute.String("holdfast.audit.before", string(r.Before)), attribute.String("holdfast.audit.after", string(r.After)),
	)
	return out
}
