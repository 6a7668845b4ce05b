package repo

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"
)

// TestActionsArePinned checks that each action of the workflows is named by its commit: a tag can be moved.
func TestActionsArePinned(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(".github/workflows/*.yml")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	pinned := regexp.MustCompile(`uses: [\w./-]+@[0-9a-f]{40} # v\d`)
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			if strings.Contains(line, "uses:") && !pinned.MatchString(line) {
				t.Errorf("%s: %s", file, strings.TrimSpace(line))
			}
		}
	}
}

// TestChecks compares what CI runs in its three forms: make verify, .ci/run and the workflows.
func TestChecks(t *testing.T) {
	t.Parallel()
	makefile, err := os.ReadFile("Makefile")
	if err != nil {
		t.Fatal(err)
	}
	list := regexp.MustCompile(`(?m)^CHECKS = (.*)$`).FindSubmatch(makefile)
	if list == nil {
		t.Fatal("the Makefile has no CHECKS")
	}
	for _, file := range []string{".ci/run", ".github/workflows/ci.yml"} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for check := range strings.FieldsSeq(string(list[1])) {
			if !regexp.MustCompile(`(?m)(run: |step '.*' |timed '.*' |beside '.*' |nice )make ` + check + `( |$)`).Match(text) {
				t.Errorf("%s does not run make %s", file, check)
			}
		}
	}
}

// TestParts runs the long parts with something in place of make that fails for one of them: the others run,
// each has its line at the end, and the status says that one failed.
func TestParts(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("no bash")
	}
	instead := filepath.Join(t.TempDir(), "make")
	if err := os.WriteFile(instead, []byte("#!/bin/sh\necho \"ran $*\"\ntest \"$1\" != matrix\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		kind, parts, times string
		status, ok, failed int
	}{
		{"weekly", "", "1", 1, 6, 1},
		{"weekly", "roles matrix", "3", 1, 3, 3},
		{"nightly", "", "2", 0, 14, 0},
		{"nightly", "fuzz", "10", 0, 10, 0},
		{"nightly", "cluster", "1", 2, 0, 0}, // it has no such part
		{"nightly", "", "0", 2, 0, 0},
		{"monthly", "", "1", 2, 0, 0},
	} {
		cmd := exec.CommandContext(t.Context(), ".ci/parts", c.kind)
		cmd.Env = append(os.Environ(), "PART_MAKE="+instead, "PARTS="+c.parts, "TIMES="+c.times)
		out, _ := cmd.CombinedOutput()
		_, end, _ := strings.Cut(string(out), "\n=== "+c.kind+"\n")
		ok, failed := strings.Count("\n"+end, "\nok "), strings.Count("\n"+end, "\nFAILED ")
		if got := cmd.ProcessState.ExitCode(); got != c.status || ok != c.ok || failed != c.failed || strings.Count(string(out), "\nran ") != c.ok+c.failed {
			t.Errorf("%+v: status %d, %d ok, %d failed:\n%s", c, got, ok, failed, out)
		}
	}
}
