package doctor_test

import (
	"context"
	"database/sql"
	"errors"
	"strconv"
	"testing"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/doctor"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/internal/dialect"
	"github.com/holdfast-go/holdfast/internal/test/conformance"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
)

// TestSizes checks that a table that has grown is listed with its rows, among all of Holdfast's.
func TestSizes(t *testing.T) {
	t.Parallel()
	conformance.Run(t, conformance.SQL(), func(e *conformance.Env[*sql.Tx]) {
		if e.Engine == dbtest.SQLite || e.Engine == dbtest.TiDB || e.Engine == dbtest.Vitess {
			if _, err := doctor.Sizes(e.Ctx, e.DB); !errors.Is(err, holdfast.ErrUnsupported) {
				e.Errorf("got %v", err)
			}
			return
		}
		store := e.Store(idempotency.Options{})
		for i := range 300 {
			_, err := idempotency.Do(e.Ctx, store, conformance.Op(strconv.Itoa(i)), func(context.Context, *sql.Tx) (string, error) { return "", nil })
			e.Check(err)
		}
		if e.Engine == dbtest.Postgres {
			e.Must(`ANALYZE holdfast_records`)
		} else {
			e.Must(`ANALYZE TABLE holdfast_records`)
		}
		sizes, err := doctor.Sizes(e.Ctx, e.DB)
		e.Check(err)
		if len(sizes) != len(dialect.Tables) {
			e.Errorf("%d tables, want %d: %v", len(sizes), len(dialect.Tables), sizes)
		}
		for i, s := range sizes {
			if i > 0 && s.Bytes > sizes[i-1].Bytes {
				e.Errorf("%s comes after a smaller one", s.Table)
			}
			if s.Table == "records" && (s.Rows < 200 || s.Rows > 400 || s.Bytes < 300*100) {
				e.Errorf("300 records are %+v", s)
			}
		}
	})
}
