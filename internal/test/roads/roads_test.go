// Package roads counts how much of Holdfast a call enters that nothing stands in the way of.
package roads

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// budget is the number of files and functions that a call may enter, on SQLite. A number rises only by
// hand, with the reason beside it; it falls with the code.
var budget = map[string][2]int{
	"Do":                {42, 136},
	"DoTx":              {36, 105},
	"Acquire":           {33, 95},
	"Release":           {28, 72}, // the attempt of a Lease is behind a method: programs do not see it
	"InTx with a guard": {32, 92},
	"POST":              {51, 167},
	"staged operation":  {56, 189},
}

// TestRoads fails for a call that enters more than its budget: an option that is off stands in its way. The
// least of several times counts, because work in the background may fall into one.
func TestRoads(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	bin := filepath.Join(dir, "walk")
	run(t, "go", "build", "-cover", "-covermode=atomic", "-coverpkg=github.com/holdfast-go/holdfast/...", "-o", bin, "./walk")
	out := t.TempDir()
	cmd := exec.CommandContext(t.Context(), bin, out)
	cmd.Env = append(cmd.Environ(), "GOCOVERDIR="+dir)
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	for call, most := range budget {
		var least [2]int
		var entered string
		runs, err := filepath.Glob(filepath.Join(out, call, "*"))
		if err != nil || len(runs) == 0 {
			t.Fatalf("%s: %v, %v", call, runs, err)
		}
		for _, dir := range runs {
			files, functions, list := count(run(t, "go", "tool", "covdata", "func", "-i="+dir))
			if least[1] == 0 || functions < least[1] {
				least, entered = [2]int{files, functions}, list
			}
		}
		switch {
		case least[0] > most[0] || least[1] > most[1]:
			t.Errorf("%s enters %d files and %d functions, its budget is %d and %d:\n%s", call, least[0], least[1], most[0], most[1], entered)
		case least != most:
			t.Errorf("%s enters %d files and %d functions: lower its budget, %d and %d", call, least[0], least[1], most[0], most[1])
		}
	}
}

func run(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

// count reads what covdata says of the functions that were entered.
func count(text string) (files, functions int, list string) {
	last := ""
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) < 3 || f[0] == "total" || f[len(f)-1] == "0.0%" || strings.Contains(f[0], "/walk/") {
			continue
		}
		file, _, _ := strings.Cut(strings.TrimPrefix(f[0], "github.com/holdfast-go/holdfast/"), ":")
		if file != last {
			files++
			last = file
			list += fmt.Sprintf("\n  %s:", file)
		}
		functions++
		list += " " + f[1]
	}
	return files, functions, list
}
