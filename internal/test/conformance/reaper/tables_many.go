package reaper

import (
	"errors"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/test/conformance"
	"github.com/holdfast-go/holdfast/reaper"
)

// tableFourReapers checks that four reapers count each row once, beside writers that renew and
// insert rows.
func tableFourReapers[Tx any](e *env[Tx]) {
	const due = 2000
	spec := e.passes("passes", due)
	var swept atomic.Int64
	var wg sync.WaitGroup
	for range 4 {
		r := e.tableReaper(reaper.Options{Batch: 50, Pace: 0.1}, spec)
		wg.Go(func() {
			report, err := r.Sweep(e.Ctx)
			if err != nil {
				e.Errorf("a reaper: %+v, %v", report, err)
			}
			swept.Add(report.Rows())
		})
	}
	renewed := int64(0)
	wg.Go(func() {
		for i := range 100 {
			n, err := e.SQL.ExecContext(e.Ctx, e.Rebind(`UPDATE passes SET expires_at = $1 WHERE id = $2`), e.Now()+hour, due-i)
			if err != nil {
				e.Error(err)
				return
			}
			rows, _ := n.RowsAffected() // the drivers support it
			renewed += rows
			e.Must(`INSERT INTO passes (id, kind, expires_at) VALUES ($1, 'new', $2)`, due+1+i, e.Now()+hour)
		}
	})
	wg.Wait()
	if n := swept.Load(); n != due-renewed {
		e.Errorf("deleted %d rows of %d, %d of which were renewed", n, due, renewed)
	}
	if n := e.Int(`SELECT COUNT(*) FROM passes`); n != int(renewed)+100 {
		e.Errorf("%d rows are left, want %d that were renewed and 100 new ones", n, renewed)
	}
}

// tableGoesOn checks that an error in one table does not stop the next table, and that the next
// sweep continues at the same place.
func tableGoesOn[Tx any](e *env[Tx]) {
	first, second := e.passes("first", 50), e.passes("second", 10)
	e.Records("due", 5, e.Now()-1_000_000)
	seen := &statements{then: func(s holdfast.Statement, nth int) {
		if s.Name == "sweep.table.write" && nth == 2 {
			// The batch runs in a transaction, which ends first.
			return
		}
		if s.Name == "sweep.table.find" && nth == 3 {
			e.Must(`ALTER TABLE first RENAME TO away`)
		}
	}}
	o := quick(10)
	o.Tables = []reaper.Table{first, second}
	r := e.Reaper(o, seen.observe())
	report, err := r.Sweep(e.Ctx)
	var own *reaper.TableError
	if !errors.As(err, &own) || own.Table != "first" || errors.Is(err, holdfast.ErrSchema) || len(report.Tasks) != conformance.SweepTasks+2 ||
		report.Tasks[1].Rows != 5 || report.Tasks[conformance.SweepTasks].Rows != 20 || report.Tasks[conformance.SweepTasks+1].Rows != 10 {
		e.Errorf("got %+v, %v", report, err)
	}
	if p := e.History(1)[0]; p.Rows != 35 || !strings.Contains(p.Error, `table "first"`) {
		e.Errorf("recorded as %+v", p)
	}
	if dry, err := r.DryRun(e.Ctx); !errors.As(err, &own) || len(dry.Tasks) != conformance.SweepTasks+1 {
		e.Errorf("the dry run: %+v, %v", dry, err)
	}
	e.Must(`ALTER TABLE away RENAME TO first`)
	e.sweepTable(r, 30)
}
