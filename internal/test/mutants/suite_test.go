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
	if err := os.WriteFile(path, []byte("1150\tlocks.take\n3100\tlocks.release\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := &suite{runs: map[string]map[string]bool{}}
	err := s.readRan(path, map[string][]window{
		"TestA":     {{1100, 1200}},
		"TestA/x+y": {{1120, 1180}},
		"TestB":     {{200, 600}, {2850, 2890}, {3200, 3300}}, // paused between
		"TestC":     {{1500, 1600}},
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
