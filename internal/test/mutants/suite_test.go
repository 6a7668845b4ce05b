package main

import (
	"os"
	"path/filepath"
	"testing"
)

// TestReach checks that a statement belongs to the tests that ran at its time, and that the pattern
// selects them.
func TestReach(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "ran")
	if err := os.WriteFile(path, []byte("11500\tlocks.take\n31000\tlocks.release\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := &suite{runs: map[string]map[string]bool{}}
	err := s.readRan(path, map[string][]window{
		"TestA":     {{11000, 12000}},
		"TestA/x+y": {{11200, 11800}},
		"TestB":     {{2000, 6000}, {28500, 29490}, {32000, 33000}}, // paused between
		"TestC":     {{15000, 16000}},
	})
	if err != nil {
		t.Fatal(err)
	}
	for statement, want := range map[string]string{"locks.take": `^(TestA)$/^(x\+y)$`, "locks.release": `^(TestB)$`} {
		if got := pattern(s.runs[statement]); got != want {
			t.Errorf("%s: %s, want %s", statement, got, want)
		}
	}
}
