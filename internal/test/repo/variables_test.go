package repo

import (
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestVariables checks that CONTRIBUTING.md lists each variable that the tests read, and no other.
func TestVariables(t *testing.T) {
	const prefix = "HOLDFAST_TEST_"
	out, err := exec.CommandContext(t.Context(), "git", "grep", "-hoE", prefix+"[A-Z_]+", "--", "*.go", "Makefile", ".ci", "internal", "bench").Output()
	if err != nil {
		t.Fatal(err)
	}
	var read []string
	for name := range strings.Lines(string(out)) {
		if name = strings.TrimPrefix(strings.TrimSpace(name), prefix); !strings.HasSuffix(name, "_") && name != "" {
			read = append(read, name)
		}
	}
	slices.Sort(read)
	read = slices.Compact(read)

	page, err := os.ReadFile("CONTRIBUTING.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(page), "with the prefix `"+prefix+"`")
	table, _, _ = strings.Cut(table, "\n## ")
	var listed []string
	for row := range strings.Lines(table) {
		cells := strings.Split(row, "|")
		if len(cells) < 3 {
			continue
		}
		for _, name := range regexp.MustCompile("`([A-Z_]+)`").FindAllStringSubmatch(cells[1], -1) {
			listed = append(listed, name[1])
		}
	}
	slices.Sort(listed)
	for _, name := range read {
		if !slices.Contains(listed, name) {
			t.Errorf("CONTRIBUTING.md does not list %s%s", prefix, name)
		}
	}
	for _, name := range listed {
		if !slices.Contains(read, name) {
			t.Errorf("no test reads %s%s", prefix, name)
		}
	}
}
