//go:build !race

// The race detector finds nothing in Spin, so `make race` does not run this again.

package model_test

import (
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var bound = flag.String("bound", "small", "how much of the correct models to explore: small or large")

type run struct {
	name   string
	bounds string // in Spin's syntax
}

// A bug is a planted bug: one rule of the protocol removed, the property that then fails, and
// bounds within which the failure is found.
type bug struct {
	name     string
	violates string
	bounds   string
}

// model is a file, and the bounds under which it is explored.
type model struct {
	file         string
	small, large []run
	short        int // the small one that -short explores
	planted      []bug
}

var models = []model{lockFirst, claimFirst, fence, similar, lease, tickets, staged, outbox, limits}

// TestModels explores the correct models completely. -run 'TestModels/lease' selects one of
// them.
func TestModels(t *testing.T) {
	for _, m := range models {
		runs := m.small
		switch *bound {
		case "small":
		case "large":
			runs = slices.Concat(m.small, m.large)
		default:
			t.Fatalf("-bound is %q, want small or large", *bound)
		}
		if testing.Short() {
			runs = runs[m.short : m.short+1]
		}
		for _, r := range runs {
			t.Run(m.name()+"/"+r.name, func(t *testing.T) { m.correct(t, r) })
		}
	}
}

func (m model) name() string { return strings.TrimSuffix(m.file, ".pml") }

func (m model) correct(t *testing.T, r run) {
	got := m.explore(t, "-O1", strings.Fields(r.bounds)...)
	if got.violated != "" {
		t.Fatalf("the model violates %s:\n%s", got.violated, got.trail())
	}
	for _, want := range []string{"Full statespace search for:", "errors: 0"} {
		if !strings.Contains(got.output, want) {
			t.Errorf("Spin did not say %q", want)
		}
	}
	for _, unwanted := range []string{"max search depth too small", "Search not completed", "Hash-Compact", "Bit statespace"} {
		if strings.Contains(got.output, unwanted) {
			t.Errorf("the search is not complete: %s", unwanted)
		}
	}
	if t.Failed() {
		t.Log(got.output)
	}
	t.Log(strings.Join(summary.FindAllString(got.output, -1), "; "))
}

var summary = regexp.MustCompile(`depth reached \d+|\d\S* states, stored|elapsed time \S+ seconds`)

// TestPlanted checks that each property detects the bugs planted for it.
func TestPlanted(t *testing.T) {
	for _, m := range models {
		for _, p := range m.planted {
			t.Run(m.name()+"/"+p.name, func(t *testing.T) {
				got := m.explore(t, "-O0", append(strings.Fields(p.bounds), "-D"+p.name)...)
				if got.violated == "" {
					t.Fatalf("not found, want a violation of %s:\n%s", p.violates, got.output)
				}
				if got.violated != p.violates {
					t.Errorf("violates %s, want %s:\n%s", got.violated, p.violates, got.trail())
				}
			})
		}
	}
}

// TestEveryPlantedBug checks that a model, its head and TestPlanted list the same bugs.
func TestEveryPlantedBug(t *testing.T) {
	for _, m := range models {
		source, err := os.ReadFile(m.file)
		if err != nil {
			t.Fatal(err)
		}
		names := func(pattern string) []string {
			var found []string
			for _, match := range regexp.MustCompile(pattern).FindAllStringSubmatch(string(source), -1) {
				found = append(found, strings.Join(match[1:], " "))
			}
			slices.Sort(found)
			return slices.Compact(found)
		}
		var bugs, lines []string
		for _, p := range m.planted {
			bugs = append(bugs, p.name)
			lines = append(lines, p.name+" "+p.violates)
		}
		slices.Sort(bugs)
		slices.Sort(lines)
		defined := names(`(?m)^#define (\w+)`) // bounds, and names derived from them
		got := slices.DeleteFunc(names(`(?:#ifn?def |defined\()(\w+)`), func(name string) bool { return slices.Contains(defined, name) })
		if !slices.Equal(got, bugs) {
			t.Errorf("%s has %v, TestPlanted runs %v", m.file, got, bugs)
		}
		if got := names(`(?m)^ \*   ([A-Z_]{7,}) +([A-Z]\w+) `); !slices.Equal(got, lines) {
			t.Errorf("the head of %s lists %v, TestPlanted runs %v", m.file, got, lines)
		}
	}
}

type result struct {
	output   string
	violated string        // the property, or Spin's message if it names none
	trail    func() string // the steps that led to it
}

var violation = regexp.MustCompile(`(?m)^pan:1: (?:assertion violated (\w+) )?(.*)`)

// explore compiles the model with these bounds and searches all its states.
func (m model) explore(t *testing.T, optimize string, bounds ...string) result {
	t.Helper()
	requireTools(t)
	source, err := os.ReadFile(m.file)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, m.file), source, 0o600); err != nil {
		t.Fatal(err)
	}
	command := func(name string, args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), name, args...)
		cmd.Dir = dir
		output, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v\n%s", cmd, err, output)
		}
		return string(output)
	}
	command("spin", append(bounds, "-a", m.file)...)
	// COLLAPSE compresses states without loss.
	command("gcc", optimize, "-w", "-DSAFETY", "-DCOLLAPSE", "-DVECTORSZ=512", "-o", "pan", "pan.c")
	got := result{output: command(filepath.Join(dir, "pan"), "-m10000", "-w22")}
	if match := violation.FindStringSubmatch(got.output); match != nil {
		got.violated = match[1]
		if got.violated == "" {
			got.violated = match[2]
		}
		got.trail = func() string { return command("spin", append(bounds, "-t", "-p", m.file)...) }
	}
	return got
}

func requireTools(t *testing.T) {
	t.Helper()
	for _, name := range []string{"spin", "gcc"} {
		if _, err := exec.LookPath(name); err == nil {
			continue
		}
		if os.Getenv("HOLDFAST_TEST_REQUIRE_MODEL") != "" {
			t.Fatalf("HOLDFAST_TEST_REQUIRE_MODEL is set and %s was not found: apt-get install spin gcc", name)
		}
		t.Skipf("%s was not found, so the model was not checked: apt-get install spin gcc", name)
	}
}
