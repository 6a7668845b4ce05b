package main

import (
	"encoding/json"
	"errors"
	"flag"
	"math"
	"os"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/bench/internal/sqlengine"
	"github.com/holdfast-go/holdfast/bench/internal/workload"
)

var update = flag.Bool("update", false, "write what was measured into bounds.json")

const boundsFile = "bounds.json"

// bound is the recorded result of a comparison. Statements and round trips are exact; the
// ratio shows the slowdown roughly.
type bound struct {
	Statements float64 `json:"statements,omitempty"`
	Trips      float64 `json:"round_trips,omitempty"`
	Ratio      float64 `json:"ratio"`
}

const (
	// slack is the factor by which a ratio may exceed its bound, because the CI machine is busy.
	slack = 3
	// strayTrips allows for round trips in which a driver checks whether a connection is alive.
	strayTrips = 0.1
)

// TestRatios briefly measures Holdfast in turns with the bare statements. It fails if a
// statement or a round trip was added, or if a ratio is a multiple of the recorded one. It
// never compares times.
func TestRatios(t *testing.T) {
	o := &options{rounds: 3, slice: 60 * time.Millisecond, clients: 1, conns: 8}
	for _, e := range allEngines {
		if e == sqlengine.SQLite || os.Getenv(sqlengine.Variable(e)) != "" {
			o.engines = append(o.engines, e)
		}
	}
	var err error
	if o.workloads, err = pick("pair,refund,replay,settlement", workload.All(), func(w workload.Workload) string { return w.Name }); err != nil {
		t.Fatal(err)
	}
	report, err := measure(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	recorded := map[string]bound{}
	text, err := os.ReadFile(boundsFile)
	if err == nil {
		err = json.Unmarshal(text, &recorded)
	}
	if err != nil && (!*update || !errors.Is(err, os.ErrNotExist)) {
		t.Fatal(err)
	}
	compared := 0
	for _, table := range report.Tables {
		for _, row := range table.Rows {
			if row.Kind != "holdfast" {
				continue
			}
			name := table.Title + ": " + row.Group + ", " + row.Name
			got := bound{row.Values["statements"].Median, math.Round(row.Values["trips"].Median*10) / 10, row.Values["x"].Median}
			if *update {
				got.Ratio = math.Round(got.Ratio*100) / 100
				recorded[name] = got
				continue
			}
			want, known := recorded[name]
			if !known {
				t.Errorf("%s is not in %s: go test -run TestRatios -update", name, boundsFile)
				continue
			}
			compared++
			// A turn has a handful of operations, and what stalls the disk makes most rounds of one of
			// them slow; statements that became slower are so in each round.
			got.Ratio = row.Values["x"].Min
			for _, problem := range want.against(got) {
				t.Errorf("%s: %s", name, problem)
			}
		}
	}
	if *update {
		text, err := json.MarshalIndent(recorded, "", " ")
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(boundsFile, append(text, '\n'), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	t.Logf("%d comparisons on %v", compared, o.engines)
}

// against returns the regressions of got.
func (b bound) against(got bound) (problems []string) {
	if got.Statements != b.Statements {
		problems = append(problems, was("statements", got.Statements, b.Statements))
	}
	if math.Abs(got.Trips-b.Trips) > strayTrips {
		problems = append(problems, was("round trips", got.Trips, b.Trips))
	}
	if got.Ratio > slack*max(1, b.Ratio) {
		problems = append(problems, was("times the bare statements", got.Ratio, b.Ratio))
	}
	return problems
}

func was(what string, got, want float64) string {
	text, _ := json.Marshal(map[string]float64{"measured": got, "recorded": want})
	return what + ": " + string(text)
}

// TestBoundsCatch checks that each kind of regression is detected, and that a busy machine is
// not one.
func TestBoundsCatch(t *testing.T) {
	b := bound{Statements: 2, Trips: 2, Ratio: 1.1}
	for name, c := range map[string]struct {
		got  bound
		want int
	}{
		"the same":             {b, 0},
		"a busy machine":       {bound{2, 2.05, 2.9}, 0},
		"one statement more":   {bound{3, 2, 1.1}, 1},
		"one round trip more":  {bound{2, 3, 1.1}, 1},
		"much slower":          {bound{2, 2, 3.4}, 1},
		"one statement less":   {bound{1, 2, 1.1}, 1}, // the new bound must be recorded
		"slower, with another": {bound{3, 3, 4}, 3},
	} {
		if got := b.against(c.got); len(got) != c.want {
			t.Errorf("%s: got %v", name, got)
		}
	}
}
