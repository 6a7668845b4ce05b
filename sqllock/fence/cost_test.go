package fence_test

import (
	"context"
	"database/sql"
	"fmt"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/measure"
	"github.com/holdfast-go/holdfast/internal/test/conformance"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
	"github.com/holdfast-go/holdfast/sqllock"
	"github.com/holdfast-go/holdfast/sqllock/fence"
)

// TestEnforceCostAtScale measures an UPDATE of one row by its key, in autocommit, with the triggers
// and without, in turns.
func TestEnforceCostAtScale(t *testing.T) {
	dbtest.OnlyAtScale(t)
	conformance.Run(t, conformance.SQL(), func(e *conformance.Env[*sql.Tx]) {
		lease := e.TryAcquire(e.LockerWith(sqllock.Options{TTL: time.Hour}), "all")
		var ops []measure.Op
		for _, table := range []string{"plain", "fenced"} {
			e.Must(`CREATE TABLE ` + table + ` (id BIGINT NOT NULL PRIMARY KEY, n BIGINT NOT NULL DEFAULT 0, fence BIGINT NOT NULL)`)
			if table == "fenced" {
				orders, err := fence.New(e.Ctx, e.DB, fence.Spec{Table: table, Key: "all"})
				e.Check(err)
				e.Check(orders.Enforce(e.Ctx))
			}
			for id := range 100 {
				e.Must(`INSERT INTO `+table+` (id, fence) VALUES ($1, $2)`, id, lease.Token())
			}
			e.SQL.SetMaxOpenConns(1)
			update, err := e.SQL.PrepareContext(e.Ctx, e.Rebind(`UPDATE `+table+` SET n = n + 1, fence = $1 WHERE id = $2`))
			e.Check(err)
			e.Cleanup(func() { _ = update.Close() })
			n := 0
			ops = append(ops, func(ctx context.Context, _ int) error {
				n++
				_, err := update.ExecContext(ctx, lease.Token(), n%100)
				return err
			})
		}
		ratios := ""
		for range 3 {
			taken, err := measure.Turns(e.Ctx, 1, 5*time.Second, ops)
			e.Check(err)
			plain, fenced := taken[0].Took, taken[1].Took
			p, f := plain[len(plain)/2], fenced[len(fenced)/2]
			ratios += fmt.Sprintf(" %.2f (%v, %v)", float64(f)/float64(p), f.Round(time.Microsecond), p.Round(time.Microsecond))
		}
		e.Logf("engine=%s an update with the fence / without (medians):%s", e.Engine, ratios)
	})
}
