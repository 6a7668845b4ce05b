package limits

import (
	"context"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/auditlog"
	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/trace"
)

// eraseBatch bounds the rows that one transaction of Erase deletes.
const eraseBatch = 256

// Erase deletes what the owner has under this name: the entries that have ended, and the limits in
// Holdfast's table of which nothing is reserved. It returns how many rows it deleted, also with an error.
// Their ids can then be used again, and a limit that is set again begins with nothing used. So stop the
// owner's calls first, and void its reservations: these, and their limits, stay. The program's own rows
// (Options.Table) stay too.
//
// Each batch is a separate transaction, which also appends to the audit (package audit). After an
// interruption, call it again.
//
// Errors: [holdfast.ErrInvalid], [holdfast.ErrRetry], [holdfast.ErrUnknown]; the error of ctx; the
// driver's.
func (l *Limits[Tx]) Erase(ctx context.Context, who holdfast.Actor) (deleted int64, err error) {
	ctx, span := l.access.Trace.Start(ctx, trace.Call{Name: "limits.erase", Operation: l.name})
	defer func() {
		span.Rows = deleted
		span.End(err, outcome)
	}()
	if l.owner.Err != nil {
		return 0, l.owner.Err
	}
	if err := auditlog.Check("Actor.", who.By, who.Reason); err != nil {
		return 0, err
	}
	deleted, err = l.eraseAll(ctx, who, l.sql.old, "limit entry", l.sql.remove)
	if err != nil || !l.home.own {
		return deleted, err
	}
	n, err := l.eraseAll(ctx, who, l.sql.unused, "limit", l.sql.removeLimits)
	return deleted + n, err
}

// eraseAll deletes the rows that find returns page by page. remove tests again whether they may go.
func (l *Limits[Tx]) eraseAll(ctx context.Context, who holdfast.Actor, find core.Stmt, kind, remove string) (deleted int64, err error) {
	audit := auditlog.New(l.access.Dialect, l.access.Table)
	for after := []byte{}; ; {
		rows, err := find.Query(ctx, l.access.Pool, l.own(after, eraseBatch)...)
		if err != nil {
			return deleted, err
		}
		ids, err := core.Collect(rows, core.Value[[]byte])
		if err != nil || len(ids) == 0 {
			return deleted, err
		}
		stmt := l.withIDs("erase", remove, 2, ids)
		n, err := inTx(ctx, l, func(ctx context.Context, q core.Querier) (int64, error) {
			r, err := stmt.Exec(ctx, q, withIDs(l.own(), ids)...)
			if err != nil || r.Affected == 0 {
				return 0, err
			}
			return r.Affected, audit.Append(ctx, q, auditlog.Entry{
				Actor: who.By, Action: "erase limits", Reason: who.Reason, Kind: kind, Owner: l.owner.ID,
				After: struct {
					Erased int64  `json:"erased"`
					Name   string `json:"name"`
				}{r.Affected, l.name},
			})
		})
		deleted += n
		if err != nil || len(ids) < eraseBatch {
			return deleted, err
		}
		after = ids[len(ids)-1]
	}
}
