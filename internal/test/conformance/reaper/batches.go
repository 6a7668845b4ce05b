package reaper

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/reaper"
)

// statements counts the statements of a DB by name.
type statements struct {
	mu    sync.Mutex
	count map[string]int
	// then runs after a statement, on the statement's goroutine.
	then func(s holdfast.Statement, nth int)
}

func (s *statements) observe() holdfast.Options {
	s.count = map[string]int{}
	return holdfast.Options{Observers: []holdfast.Observer{func(_ context.Context, st holdfast.Statement) {
		s.mu.Lock()
		s.count[st.Name]++
		nth := s.count[st.Name]
		s.mu.Unlock()
		if s.then != nil {
			s.then(st, nth)
		}
	}}}
}

func sweepBatches[Tx any](e *env[Tx]) {
	e.Records("due", 95, e.Now()-1_000_000)
	seen := &statements{}
	o := quick(10)
	o.MaxRows = 25
	r := e.Reaper(o, seen.observe())
	for i, want := range []int64{25, 25, 25, 20} {
		report := e.Sweep(r, 0, want)
		if b := report.Tasks[1].Batches; b != int((want+9)/10) || report.More != (i < 3) {
			e.Errorf("sweep %d: %+v", i, report)
		}
		if left := e.records("due"); left != 95-min(25*(i+1), 95) {
			e.Errorf("sweep %d: %d rows are left", i, left)
		}
	}
	if n := seen.count["sweep.keys.write"]; n != 3+3+3+2 {
		e.Errorf("%d writes, want one a batch", n)
	}
	e.Sweep(r, 0, 0)
	if n := seen.count["sweep.keys.write"]; n != 11 {
		e.Error("a sweep without work wrote")
	}
}

// sweepRests compares each pause with the batch before it, so that a slow machine slows both.
func sweepRests[Tx any](e *env[Tx]) {
	const pace = 4
	e.Records("due", 30, e.Now()-1_000_000)
	var began, ended time.Time
	rests := 0
	seen := &statements{then: func(s holdfast.Statement, _ int) {
		switch s.Name {
		case "sweep.keys.find":
			start := time.Now().Add(-s.Duration)
			if work, rest := ended.Sub(began), start.Sub(ended); !ended.IsZero() {
				rests++
				if rest < pace*work {
					e.Errorf("a batch took %v, and the rest after it %v", work, rest)
				}
			}
			began = start
		case "commit":
			ended = time.Now()
		}
	}}
	e.Sweep(e.Reaper(reaper.Options{Batch: 10, BatchTime: time.Minute, Pace: pace}, seen.observe()), 0, 30)
	if rests != 3 {
		e.Errorf("%d rests, want one after each batch", rests)
	}
}

func sweepCancelled[Tx any](e *env[Tx]) {
	e.Records("due", 50, e.Now()-1_000_000)
	ctx, cancel := context.WithCancel(e.Ctx)
	defer cancel()
	seen := &statements{then: func(s holdfast.Statement, nth int) {
		if s.Name == "commit" && nth == 2 {
			cancel()
		}
	}}
	r := e.Reaper(quick(10), seen.observe())
	report, err := r.Sweep(ctx)
	if !errors.Is(err, context.Canceled) || report.Rows() != 20 || e.records("due") != 30 {
		e.Errorf("%+v, %v, and %d rows are left", report, err, e.records("due"))
	}
	for _, f := range []func(context.Context) (reaper.Report, error){r.Sweep, r.DryRun} {
		if report, err := f(ctx); !errors.Is(err, context.Canceled) || report.Rows() != 0 {
			e.Errorf("a context that has ended: %+v, %v", report, err)
		}
	}
	e.Sweep(r, 0, 30)
}

// sweepGoesOn checks that an error ends a sweep with a partial report, and that the next sweep
// needs no information about it.
func sweepGoesOn[Tx any](e *env[Tx]) {
	e.Records("due", 50, e.Now()-1_000_000)
	seen := &statements{then: func(s holdfast.Statement, nth int) {
		if s.Name == "commit" && nth == 2 {
			e.Must(`ALTER TABLE holdfast_records RENAME TO away`)
		}
	}}
	r := e.Reaper(quick(10), seen.observe())
	report, err := r.Sweep(e.Ctx)
	if !errors.Is(err, holdfast.ErrSchema) || report.Rows() != 20 || len(report.Tasks) != 2 {
		e.Errorf("%+v, %v", report, err)
	}
	if _, err := r.DryRun(e.Ctx); !errors.Is(err, holdfast.ErrSchema) {
		e.Errorf("dry run: %v", err)
	}
	e.Must(`ALTER TABLE away RENAME TO holdfast_records`)
	e.Sweep(r, 0, 30)
}
