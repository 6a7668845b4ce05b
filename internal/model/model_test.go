//go:build !race

// The race detector sees nothing of Spin, so `make race` does not run this again.

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

var bound = flag.String("bound", "small", "how much of the correct model to explore: small or large")

type run struct {
	name   string
	bounds string // as Spin takes them
}

var small = []run{
	{"AnyClock", "-DROUNDS=2"},
	{"AnyClockForced", "-DROUNDS=1 -DFORCES=1"},
	{"Margin", "-DTIMED=1 -DROUNDS=1 -DGUARDS=0"},
	{"MarginTwice", "-DTIMED=1 -DROUNDS=2 -DGUARDS=0 -DREAPER=0"},
	{"MarginForced", "-DTIMED=1 -DROUNDS=1 -DGUARDS=0 -DREAPER=0 -DFORCES=1"},
}

var large = []run{
	{"AnyClockTwiceForced", "-DROUNDS=2 -DFORCES=1"},
	{"AnyClockThree", "-DROUNDS=1 -DCLIENTS=3"},
	{"AnyClockAllLose", "-DROUNDS=1 -DLOSERS=2 -DFORCES=1"},
	{"MarginGuards", "-DTIMED=1 -DROUNDS=1"},
	{"MarginReaperForced", "-DTIMED=1 -DROUNDS=1 -DGUARDS=0 -DTTL=2 -DFORCES=1"},
}

func TestLease(t *testing.T) {
	runs := small
	switch *bound {
	case "small":
	case "large":
		runs = slices.Concat(small, large)
	default:
		t.Fatalf("-bound is %q, want small or large", *bound)
	}
	if testing.Short() {
		runs = runs[1:2]
	}
	for _, r := range runs {
		t.Run(r.name, func(t *testing.T) {
			got := explore(t, "-O2", strings.Fields(r.bounds)...)
			if got.violated != "" {
				t.Fatalf("the model violates %s:\n%s", got.violated, got.trail)
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
		})
	}
}

var summary = regexp.MustCompile(`depth reached \d+|\d\S* states, stored|elapsed time \S+ seconds`)

var (
	anyClock = "-DROUNDS=1"
	forced   = "-DROUNDS=1 -DFORCES=1"
	margin   = "-DTIMED=1 -DROUNDS=1 -DGUARDS=0"
	noReaper = "-DTIMED=1 -DROUNDS=2 -DGUARDS=0 -DREAPER=0"
)

var planted = []struct {
	bug      string
	violates string
	bounds   string
}{
	{"GUARD_LAST", "G2", anyClock},
	{"GUARD_UNLOCKED", "G2", anyClock},
	{"GUARD_BY_OWNER", "G2", anyClock},
	{"FORCE_BY_EXPIRY", "G2", forced},
	{"DELETE_ON_RELEASE", "G3", anyClock},
	{"HANDOVER_KEEPS_TOKEN", "G3", anyClock},
	{"FLOOR_UNLOCKED", "G3", anyClock},
	{"REAP_ANY_TOKEN", "G3", anyClock},
	{"REAP_FLOOR_LAST", "DONE", anyClock},
	{"FREE_BY_EXPIRY", "FREE", anyClock},
	{"TAKE_UNTESTED", "G1", noReaper},
	{"RELEASE_BY_NAME", "G1", noReaper},
	{"RELEASE_BEFORE_END", "G1", noReaper},
	{"HANDOVER_BY_NAME", "G1", noReaper},
	{"REAP_WITHOUT_RETEST", "G1", margin + " -DHANDOVERS=0 -DRENEWERS=0 -DTTL=2"},
	{"TRUST_FROM_REPLY", "G1", noReaper},
	{"NO_MARGIN", "G1", noReaper},
	{"RESEND_SHORTENS", "G1", noReaper},
	{"RENEW_RESURRECTS", "OVER", noReaper},
	{"RENEW_INSERTS", "OVER", margin + " -DLOSERS=0"},
}

// TestPlanted shows that the properties see what they are there to see.
func TestPlanted(t *testing.T) {
	for _, p := range planted {
		t.Run(p.bug, func(t *testing.T) {
			got := explore(t, "-O0", append(strings.Fields(p.bounds), "-D"+p.bug)...)
			if got.violated == "" {
				t.Fatalf("not found, want a violation of %s:\n%s", p.violates, got.output)
			}
			if got.violated != p.violates {
				t.Errorf("violates %s, want %s:\n%s", got.violated, p.violates, got.trail)
			}
		})
	}
}

// TestEveryPlantedBug compares the bugs that the model has, that its head lists
// and that TestPlanted runs.
func TestEveryPlantedBug(t *testing.T) {
	source, err := os.ReadFile("lease.pml")
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
	for _, p := range planted {
		bugs = append(bugs, p.bug)
		lines = append(lines, p.bug+" "+p.violates)
	}
	slices.Sort(bugs)
	slices.Sort(lines)
	// A bound begins with #ifndef.
	if got := names(`(?m)^#(?:ifdef |(?:el)?if defined\()(\w+)`); !slices.Equal(got, bugs) {
		t.Errorf("the model has %v, TestPlanted runs %v", got, bugs)
	}
	if got := names(`(?m)^ \*   ([A-Z_]{7,}) +(G\d|OVER|FREE|DONE) `); !slices.Equal(got, lines) {
		t.Errorf("the model's head lists %v, TestPlanted runs %v", got, lines)
	}
}

type result struct {
	output   string
	violated string // the property, or what Spin said instead of one
	trail    string // how it came to that
}

var violation = regexp.MustCompile(`(?m)^pan:1: (?:assertion violated (\w+) )?(.*)`)

// explore compiles the model with these bounds and searches all its states.
func explore(t *testing.T, optimize string, bounds ...string) result {
	t.Helper()
	requireTools(t)
	source, err := os.ReadFile("lease.pml")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "lease.pml"), source, 0o600); err != nil {
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
	command("spin", append(bounds, "-a", "lease.pml")...)
	// COLLAPSE compresses states without loss.
	command("gcc", optimize, "-w", "-DSAFETY", "-DCOLLAPSE", "-DVECTORSZ=512", "-o", "pan", "pan.c")
	got := result{output: command(filepath.Join(dir, "pan"), "-m10000", "-w22")}
	if match := violation.FindStringSubmatch(got.output); match != nil {
		got.violated = match[1]
		if got.violated == "" {
			got.violated = match[2]
		}
		got.trail = command("spin", append(bounds, "-t", "-p", "lease.pml")...)
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
