// Package roads counts how much of Holdfast a call enters that nothing stands in the way of.
package roads

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	// The program that is walked is built outside of this test, so what it links must be in here: else its
	// result is taken from the cache although the roads have changed.
	_ "github.com/holdfast-go/holdfast/adapters/holdfastsql"
	_ "github.com/holdfast-go/holdfast/idempotency/idemhttp"
	_ "github.com/holdfast-go/holdfast/idempotency/staged"
	_ "github.com/holdfast-go/holdfast/migrations"
	_ "github.com/holdfast-go/holdfast/sqllock"
)

// budget is the number of files and functions that a call may enter, on SQLite, and of goroutines that may
// start. A number rises only by hand, with the reason beside it; it falls with the code.
//
// database/sql starts a goroutine for each transaction, and the driver one for each statement whose context
// may end. A transaction's context ends a while after the call's, on SQLite too: database/sql then rolls it back
// and frees the only write lock, also while a function hangs.
var budget = map[string][3]int{
	"Do":                {42, 136, 4},
	"DoTx":              {36, 108, 6}, // 105 until savepoints travelled with other statements on pgx: two round trips less
	"Acquire":           {33, 95, 2},
	"Release":           {28, 70, 1}, // the attempt of a Lease is behind a method: programs do not see it
	"InTx with a guard": {32, 93, 5},
	"POST":              {51, 167, 4},
	"staged operation":  {56, 191, 16}, // 190 until a local step was claimed before its function: a write within its transaction
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
		var least [3]int
		var entered string
		runs, err := filepath.Glob(filepath.Join(out, call, "*"))
		if err != nil || len(runs) == 0 {
			t.Fatalf("%s: %v, %v", call, runs, err)
		}
		for n, dir := range runs {
			files, functions, list := count(run(t, "go", "tool", "covdata", "func", "-i="+dir))
			started := number(t, filepath.Join(dir, "goroutines"))
			if least[1] == 0 || functions < least[1] {
				least[0], least[1], entered = files, functions, list
			}
			if n == 0 || started < least[2] {
				least[2] = started
			}
		}
		switch {
		case least[0] > most[0] || least[1] > most[1] || least[2] > most[2]:
			t.Errorf("%s: files, functions, goroutines: %d, its budget is %d:\n%s", call, least, most, entered)
		case least != most:
			t.Errorf("%s: files, functions, goroutines: lower its budget from %d to %d", call, most, least)
		}
	}
}

func number(t *testing.T, file string) int {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.Atoi(string(text))
	if err != nil {
		t.Fatal(err)
	}
	return n
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
