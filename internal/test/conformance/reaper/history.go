package reaper

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/test/conformance"
	"github.com/holdfast-go/holdfast/reaper"
)

// History is the suite of the recorded passes.
func History[Tx any](t *testing.T, h conformance.Handle[Tx]) {
	for name, f := range map[string]func(*env[Tx]){
		"PassesAreRecorded":        passesAreRecorded[Tx],
		"FailuresAreRecorded":      failuresAreRecorded[Tx],
		"HistoryIsBounded":         historyIsBounded[Tx],
		"SweepsWithoutTheirRecord": sweepsWithoutHistory[Tx],
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(t, h, f)
		})
	}
}

func passesAreRecorded[Tx any](e *env[Tx]) {
	o := quick(2)
	o.Holder, o.MaxRows = "Gärtner 1", 5
	r := e.Reaper(o)
	e.Sweep(r, 0, 0)
	e.Records("due", 6, e.Now()-1_000_000)
	_, err := r.DryRun(e.Ctx)
	e.Check(err)
	e.History(0) // neither of them did anything
	before := e.Now()
	report := e.Sweep(r, 0, 5)
	e.Sweep(e.Reaper(quick(2)), 0, 1)
	e.Sweep(r, 0, 0)
	after := e.Now()
	passes := e.History(2)
	first := passes[1]
	if first.Holder != "Gärtner 1" || first.Rows != 5 || !first.More || first.Error != "" || len(first.Tasks) != len(report.Tasks) {
		e.Errorf("got %+v", first)
	}
	for i, t := range report.Tasks {
		t.Oldest, t.Duration = t.Oldest.Truncate(time.Microsecond), t.Duration.Truncate(time.Microsecond)
		if first.Tasks[i] != t {
			e.Errorf("got %+v, want %+v", first.Tasks[i], t)
		}
	}
	if last := passes[0]; last.Holder == "" || last.Holder == first.Holder || last.Rows != 1 || last.More {
		e.Errorf("got %+v", last)
	}
	const milli = 1000 // SQLite's clock has no more
	for _, p := range passes {
		if p.Began.UnixMicro() < int64(before)-milli || p.Ended.Before(p.Began) || p.Ended.UnixMicro() > int64(after)+milli {
			e.Errorf("from %v to %v, want between %d and %d", p.Began, p.Ended, before, after)
		}
	}
	for i, pass := range passes {
		rest, err := core.First(9, reaper.History(e.Ctx, e.DB, reaper.HistoryOptions{After: pass}))
		if err != nil || len(rest) != 1-i || i == 0 && !reflect.DeepEqual(rest[0], first) {
			e.Errorf("after pass %d: %+v, %v", i, rest, err)
		}
	}
	for _, holder := range []string{strings.Repeat("x", 255+1), "\xff", "\x00"} {
		if _, err := reaper.New(e.Ctx, e.DB, reaper.Options{Holder: holder}); !errors.Is(err, holdfast.ErrInvalid) {
			e.Errorf("holder %q: %v", holder, err)
		}
	}
}

// failuresAreRecorded checks that each failure is recorded once, with a text that contains no
// value.
func failuresAreRecorded[Tx any](e *env[Tx]) {
	r := e.Reaper(quick(10))
	e.Must(`ALTER TABLE holdfast_records RENAME TO away`)
	for range 3 {
		if report, err := r.Sweep(e.Ctx); !errors.Is(err, holdfast.ErrSchema) || report.Unrecorded != nil {
			e.Fatalf("got %+v, %v", report, err)
		}
	}
	if p := e.History(1)[0]; !strings.Contains(p.Error, "records") || !strings.Contains(p.Error, "missing") || p.Rows != 0 {
		e.Errorf("got %+v", p)
	}
	e.Must(`ALTER TABLE away RENAME TO holdfast_records`)
	e.Sweep(r, 0, 0) // fixes it
	column := map[bool]string{false: "key_expires_at", true: "due_at"}[e.InnoDB()]
	e.Must(`ALTER TABLE holdfast_records RENAME COLUMN ` + column + ` TO secret`)
	if _, err := r.Sweep(e.Ctx); err == nil || errors.Is(err, holdfast.ErrSchema) {
		e.Fatalf("got %v", err)
	}
	if p := e.History(2)[0]; !strings.HasPrefix(p.Error, "the database's error (") || strings.Contains(p.Error, column) {
		e.Errorf("got %+v", p)
	}
}

func historyIsBounded[Tx any](e *env[Tx]) {
	now := e.Now()
	plant := func(n, ended int) {
		var rows []string
		for i := range n {
			id := fmt.Appendf(nil, "%016d", i)
			rows = append(rows, fmt.Sprintf(`(%s, 1, %d, 'old', 1, 0, '[]', NULL)`, e.Blob(id), ended+i))
		}
		e.Must(`INSERT INTO holdfast_sweeps (id, began_at, ended_at, holder, cleared, more, tasks, error) VALUES ` + strings.Join(rows, ", "))
	}
	life := int((90 * 24 * time.Hour).Microseconds())
	plant(5, now-life-hour)
	plant(3, now-life+hour)
	r := e.Reaper(quick(10))
	e.Records("due", 1, now-1_000_000)
	e.Sweep(r, 0, 1)
	if p := e.History(4); p[0].Holder == "old" || p[1].Holder != "old" {
		e.Errorf("got %+v", p)
	}
	plant(reaper.HistoryRows, now-hour)
	e.Records("due", 1, now-1_000_000)
	e.Sweep(r, 0, 1)
	if n := e.Int(`SELECT COUNT(*) FROM holdfast_sweeps`); n != reaper.HistoryRows {
		e.Errorf("%d passes are kept", n)
	}
	if p := e.History(reaper.HistoryRows); p[0].Holder == "old" || p[1].Holder == "old" || p[2].Holder != "old" || p[2].Ended.UnixMicro() != int64(now-hour+reaper.HistoryRows-1) {
		e.Errorf("got %+v", p[:3])
	}
}

// sweepsWithoutHistory checks that a pass works even if it cannot be recorded.
func sweepsWithoutHistory[Tx any](e *env[Tx]) {
	r := e.Reaper(quick(10))
	e.Must(`DROP TABLE holdfast_sweeps`)
	e.Records("due", 5, e.Now()-1_000_000)
	if report := e.Sweep(r, 0, 5); report.Unrecorded == nil {
		e.Error("a history that is lost is not reported")
	}
	if _, err := core.First(1, reaper.History(e.Ctx, e.DB)); !errors.Is(err, holdfast.ErrSchema) {
		e.Errorf("got %v", err)
	}
}
