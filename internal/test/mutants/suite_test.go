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
	if err := os.WriteFile(path, []byte("150\tlocks.take\n900\tlocks.release\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := &suite{runs: map[string]map[string]bool{}}
	err := s.readRan(path, map[string][]window{
		"TestA":     {{100, 200}},
		"TestA/x+y": {{120, 180}},
		"TestB":     {{20, 60}, {850, 890}}, // paused between
		"TestC":     {{300, 400}},
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
