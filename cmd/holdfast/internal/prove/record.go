package prove

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/json"
	"fmt"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/adapters/holdfastsql"
	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/dialect"
)

// Record stores a report that passed in Holdfast's own table, with its SHA-256: from then on every program and
// command opens this version line of the server. It replaces the line's earlier report. opts are those with
// which the programs open.
//
// Errors: [holdfast.ErrInvalid] (the report did not pass, or is of another server or engine),
// [holdfast.ErrSchema], [holdfast.ErrDenied], the driver's.
func Record(ctx context.Context, pool *sql.DB, r Report, opts ...holdfast.Options) error {
	db, err := holdfastsql.Open(dialect.Without(ctx, dialect.RuleUntested), pool, opts...)
	if err != nil {
		return err
	}
	a := access.Of(db)
	switch {
	case r.Verdict != Pass:
		return &holdfast.InputError{Field: "Report.Verdict", Problem: fmt.Sprintf("it is %q: only a run that passed is recorded", r.Verdict)}
	case r.Product != db.Product():
		return &holdfast.InputError{Field: "Report.Product", Problem: fmt.Sprintf("it is %q, and this server is %s", r.Product, db.Product())}
	case a.Dialect.Admission.Lines == "":
		return &holdfast.InputError{Field: "Report.Engine", Problem: fmt.Sprintf("on %s no record admits a version: declare it with holdfast.Options{Untested: %q}", db.Product(), r.Product)}
	}
	if err := db.CheckSchema(dialect.Without(ctx, dialect.RuleTables)); err != nil {
		return err
	}
	report, err := json.Marshal(r)
	if err != nil {
		return err
	}
	hash := sha256.Sum256(report)
	seen := a.Dialect.SeenLine(a.Table("servers"))
	proven := core.Compile("line.proven", "UPDATE "+a.Table("servers")+" SET proven_at = "+a.Dialect.Now+", report = $1, hash = $2 WHERE product = $0", a.Dialect.QuestionMarks)
	return a.OnConn(ctx, "", func(q core.Querier) error {
		if _, err := seen.Exec(ctx, q, r.Product); err != nil {
			return err
		}
		_, err := proven.Exec(ctx, q, r.Product, string(report), hash[:])
		return err
	})
}
