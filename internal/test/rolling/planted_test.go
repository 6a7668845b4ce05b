package rolling

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/test/dbtest"
)

// TestPlanted deploys versions that must not run beside the one before, and wants the storm to say so: one whose tables have a column
// that the one before does not fill, and one that tests a limit without what is used of it.
func TestPlanted(t *testing.T) {
	onlyRolling(t)
	old := build(t, "old", before(t), nil)
	weak := build(t, "weak", "HEAD", replaced(t, "limits/counter.go", "+ r.limit + ` - ` + r.captured + ` - ` + reserved", "+ r.limit"))
	dbtest.Each(t, func(t *testing.T, e dbtest.Engine) {
		s := newStorm(t, e)
		s.phase(5*time.Second, old, weak)
		s.wantWrong("a weakened predicate", weak, "limit")
		if e == dbtest.SQLite {
			return // it adds no column that must be filled
		}
		s = newStorm(t, e)
		s.phase(time.Second, old)
		had := s.doneOf(old)
		var running sync.WaitGroup
		running.Go(func() { s.phase(4*time.Second, old) })
		dbtest.Eventually(t, "the version before runs", func() bool { return s.doneOf(old) > had })
		s.exec(map[bool]string{
			true:  `ALTER TABLE holdfast_records ADD COLUMN region BIGINT NOT NULL DEFAULT 0`,
			false: `ALTER TABLE holdfast_records ADD COLUMN region BIGINT NOT NULL`,
		}[e == dbtest.Postgres])
		if e == dbtest.Postgres {
			s.exec(`ALTER TABLE holdfast_records ALTER COLUMN region DROP DEFAULT`)
		}
		running.Wait()
		s.wantWrong("a column that the version before does not fill", old, "region")
	})
}

// replaced changes a file of a tree, which must have the text once.
func replaced(t *testing.T, name, was, is string) func(root string) {
	return func(root string) {
		t.Helper()
		path := filepath.Join(root, filepath.FromSlash(name))
		text, err := os.ReadFile(path)
		must(t, err)
		if strings.Count(string(text), was) != 1 {
			t.Fatalf("%s does not have %q once", name, was)
		}
		must(t, os.WriteFile(path, []byte(strings.Replace(string(text), was, is, 1)), 0o600))
	}
}

// doneOf counts what a program has done.
func (s *storm) doneOf(p program) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, kind := range kinds {
		n += s.did[p.label+" "+kind]
	}
	return n
}

// wantWrong fails unless the judgement names the fault.
func (s *storm) wantWrong(what string, p program, named string) {
	s.Helper()
	wrong := s.judge(p)
	if !strings.Contains(strings.Join(wrong, "\n"), named) {
		s.Errorf("%s is not found: %q", what, wrong)
		return
	}
	s.Logf("%s: %.300s", what, strings.Join(wrong, "; "))
}
