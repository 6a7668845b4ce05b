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

// bound is the recorded result of a comparison, both of them counted.
type bound struct {
	Statements float64 `json:"statements,omitempty"`
	Trips      float64 `json:"round_trips,omitempty"`
}

// stray allows for round trips in which a driver checks whether a connection is alive, and for three
// statements of thirty-two operations that a busy machine makes ask again.
const stray = 0.1

// TestBounds runs Holdfast in turns with the bare statements, each for a moment, and fails if a
// statement or a round trip was added. It judges no time and no ratio of times: a busy machine
// makes these what it likes. Statements that read more rows than they did are found by the
// plans' tests.
func TestBounds(t *testing.T) {
	o := &options{rounds: 1, slice: time.Millisecond, clients: 1, conns: 8}
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
			got := bound{row.Values["statements"].Median, math.Round(row.Values["trips"].Median*10) / 10}
			if *update {
				recorded[name] = got
				continue
			}
			want, known := recorded[name]
			if !known {
				t.Errorf("%s is not in %s: go test -run TestBounds -update", name, boundsFile)
				continue
			}
			compared++
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
	if math.Abs(got.Statements-b.Statements) > stray {
		problems = append(problems, was("statements", got.Statements, b.Statements))
	}
	if math.Abs(got.Trips-b.Trips) > stray {
		problems = append(problems, was("round trips", got.Trips, b.Trips))
	}
	return problems
}

func was(what string, got, want float64) string {
	text, _ := json.Marshal(map[string]float64{"measured": got, "recorded": want})
	return what + ": " + string(text)
}

// TestBoundsCatch checks that each kind of regression is detected, and that a stray round trip
// is not one.
func TestBoundsCatch(t *testing.T) {
	b := bound{Statements: 2, Trips: 2}
	for name, c := range map[string]struct {
		got  bound
		want int
	}{
		"the same":                {b, 0},
		"a connection is checked": {bound{2, 2.05}, 0},
		"one statement more":      {bound{3, 2}, 1},
		"one round trip more":     {bound{2, 3}, 1},
		"one statement less":      {bound{1, 2}, 1}, // the new bound must be recorded
		"one more of both":        {bound{3, 3}, 2},
	} {
		if got := b.against(c.got); len(got) != c.want {
			t.Errorf("%s: got %v", name, got)
		}
	}
}
