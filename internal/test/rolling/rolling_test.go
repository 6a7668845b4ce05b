// Package rolling runs two versions of a program side by side on one database, in each order that a deployment and its
// way back have, while their processes are killed and stopped, and then judges what they wrote. The other version is
// the last tag, or until there is one a commit: FROM=commit make rolling.
package rolling

import (
	"bufio"
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/test/dbtest"
	"github.com/holdfast-go/holdfast/migrations"
)

// firstBefore is the version before this one until there is a tag: the first with these tables. An earlier one refuses them.
const firstBefore = "78d19e5a"

func TestMain(m *testing.M) { dbtest.VerifyNoLeaks(m) }

// program is a worker of a version.
type program struct{ label, path string }

// build builds the worker of the tree at root; edit changes its copy before.
func build(t *testing.T, label, commit string, edit func(root string)) program {
	t.Helper()
	here, err := filepath.Abs("../../..")
	must(t, err)
	root, path := filepath.Join(t.TempDir(), label), filepath.Join(t.TempDir(), label)
	run(t, here, "git", "worktree", "add", "--quiet", "--detach", root, commit)
	t.Cleanup(func() { run(t, here, "git", "worktree", "remove", "--force", root) })
	worker := filepath.Join(root, "internal", "test", "rolling", "worker")
	must(t, os.MkdirAll(worker, 0o750))
	text, err := os.ReadFile("worker/main.go") // the same on both: it needs the public API alone
	must(t, err)
	must(t, os.WriteFile(filepath.Join(worker, "main.go"), text, 0o600))
	if edit != nil {
		edit(root)
	}
	run(t, root, "go", "build", "-o", path, "./internal/test/rolling/worker")
	return program{label, path}
}

func run(t *testing.T, dir, name string, args ...string) {
	t.Helper()
	cmd := exec.Command(name, args...) // without a context: it also runs in cleanups
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s %q: %v\n%s", name, args, err, out)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// before is the version that this one is deployed beside.
func before(t *testing.T) string {
	t.Helper()
	tag, _ := exec.CommandContext(t.Context(), "git", "describe", "--tags", "--abbrev=0", "--match", "v*").Output()
	return cmp.Or(os.Getenv("FROM"), strings.TrimSpace(string(tag)), firstBefore)
}

// tables are those of the program.
var tables = []string{
	`CREATE TABLE roll_effects (id {serial}, kind VARCHAR(20) NOT NULL, op_key VARCHAR(60) NOT NULL, who VARCHAR(80) NOT NULL)`,
	`CREATE TABLE roll_answers (id {serial}, kind VARCHAR(20) NOT NULL, op_key VARCHAR(60) NOT NULL, who VARCHAR(80) NOT NULL)`,
	`CREATE TABLE roll_counts (lock_key VARCHAR(60) NOT NULL PRIMARY KEY, n BIGINT NOT NULL)`,
	`CREATE TABLE roll_tokens (id {serial}, lock_key VARCHAR(60) NOT NULL, token BIGINT NOT NULL, who VARCHAR(80) NOT NULL)`,
	`CREATE TABLE roll_taken (lock_key VARCHAR(60) NOT NULL, id VARCHAR(60) NOT NULL PRIMARY KEY, amount BIGINT NOT NULL)`,
	`CREATE TABLE roll_accounts (id BIGINT NOT NULL PRIMARY KEY, n BIGINT NOT NULL, version BIGINT NOT NULL)`,
	`CREATE TABLE roll_payments (id VARCHAR(255) NOT NULL PRIMARY KEY, op_key VARCHAR(60) NOT NULL)`,
	`INSERT INTO roll_counts (lock_key, n) VALUES ('lease-0', 0), ('lease-1', 0), ('fair-0', 0), ('fair-1', 0)`,
	`INSERT INTO roll_accounts (id, n, version) VALUES (0, 0, 1), (1, 0, 1)`,
}

// storm is one database with its workers.
type storm struct {
	*testing.T

	engine dbtest.Engine
	url    string
	pool   *sql.DB

	mu     sync.Mutex
	did    map[string]int // by version and kind
	errors map[string]int
	kills  int
	stops  int
}

func newStorm(t *testing.T, e dbtest.Engine) *storm {
	t.Helper()
	return newStormAt(t, e, dbtest.DSN(t, e))
}

func newStormAt(t *testing.T, e dbtest.Engine, url string) *storm {
	t.Helper()
	s := &storm{T: t, engine: e, url: url, did: map[string]int{}, errors: map[string]int{}}
	s.pool = dbtest.OpenSQL(t, s.url)
	must(t, migrations.Up(t.Context(), s.pool))
	serial := map[dbtest.Engine]string{dbtest.Postgres: "BIGSERIAL PRIMARY KEY", dbtest.SQLite: "INTEGER PRIMARY KEY AUTOINCREMENT"}
	for _, table := range tables {
		s.exec(strings.ReplaceAll(table, "{serial}", cmp.Or(serial[e], "BIGINT AUTO_INCREMENT PRIMARY KEY")))
	}
	return s
}

func (s *storm) exec(query string) {
	s.Helper()
	_, err := s.pool.ExecContext(s.Context(), query)
	must(s.T, err)
}

func (s *storm) count(query string) (n int) {
	s.Helper()
	must(s.T, s.pool.QueryRowContext(s.Context(), query).Scan(&n))
	return n
}

// phase runs workers of each program for a while, and until each program has done each thing. Now and then one is killed and begun
// again, or stopped for longer than its leases last.
func (s *storm) phase(lasts time.Duration, programs ...program) {
	s.Helper()
	ctx, cancel := context.WithCancel(s.Context())
	defer cancel()
	go func() {
		defer cancel()
		time.Sleep(lasts)
		for end := time.Now().Add(dbtest.Hang); len(s.undone(programs)) > 0 && ctx.Err() == nil && time.Now().Before(end); {
			time.Sleep(50 * time.Millisecond)
		}
	}()
	var all sync.WaitGroup
	for n, p := range programs {
		all.Go(func() {
			for turn := 0; ctx.Err() == nil; turn++ {
				s.worker(ctx, p, fmt.Sprintf("%s-%d-%d", p.label, n, turn))
			}
		})
	}
	all.Wait()
}

// worker runs one process until it is killed.
func (s *storm) worker(ctx context.Context, p program, name string) {
	driver, dsn, err := dbtest.DriverDSN(s.url)
	if err != nil {
		s.Error(err)
		return
	}
	cmd := exec.Command(p.path, "-driver", driver, "-dsn", dsn, "-name", name) // it is killed below
	read, write := io.Pipe()
	cmd.Stdout, cmd.Stderr = write, write
	if err := cmd.Start(); err != nil {
		s.Error(err)
		return
	}
	lines := make(chan struct{})
	go func() {
		defer close(lines)
		for scan := bufio.NewScanner(read); scan.Scan(); {
			s.heard(p, scan.Text())
		}
		_, _ = io.Copy(io.Discard, read)
	}()
	pause := func(d time.Duration) {
		select {
		case <-ctx.Done():
		case <-time.After(d):
		}
	}
	pause(time.Duration(500+rand.IntN(1500)) * time.Millisecond)
	if rand.IntN(2) == 0 {
		_ = cmd.Process.Signal(syscall.SIGSTOP)
		pause(1500 * time.Millisecond)
		_ = cmd.Process.Signal(syscall.SIGCONT)
		pause(time.Second)
		s.add(&s.stops)
	}
	_ = cmd.Process.Kill()
	s.add(&s.kills)
	_ = cmd.Wait()
	_ = write.Close()
	<-lines
}

func (s *storm) add(n *int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	*n++
}

// heard counts a worker's line.
func (s *storm) heard(p program, line string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if what, ok := strings.CutPrefix(line, "did "); ok {
		s.did[p.label+" "+what]++
	} else if strings.Contains(line, "error") {
		s.errors[p.label+": "+line]++
	}
}

// judge finishes what is open with a worker of p, and returns what is wrong.
func (s *storm) judge(p program) (wrong []string) {
	s.Helper()
	driver, dsn, err := dbtest.DriverDSN(s.url)
	must(s.T, err)
	if out, err := exec.CommandContext(s.Context(), p.path, "-driver", driver, "-dsn", dsn, "-name", "finish", "-finish").CombinedOutput(); err != nil {
		wrong = append(wrong, fmt.Sprintf("finish: %v: %s", err, out))
	}
	for rule, query := range map[string]string{
		"an effect twice":              `SELECT COUNT(*) FROM (SELECT kind, op_key FROM roll_effects GROUP BY kind, op_key HAVING COUNT(*) > 1) x`,
		"two answers":                  `SELECT COUNT(*) FROM (SELECT kind, op_key FROM roll_answers GROUP BY kind, op_key HAVING COUNT(DISTINCT who) > 1) x`,
		"an answer without its effect": `SELECT COUNT(*) FROM roll_answers a WHERE NOT EXISTS (SELECT 1 FROM roll_effects e WHERE e.kind = a.kind AND e.op_key = a.op_key AND e.who = a.who)`,
		"a token below an earlier one": `SELECT COUNT(*) FROM roll_tokens a JOIN roll_tokens b ON a.lock_key = b.lock_key AND a.id < b.id AND a.token > b.token`,
		"a lost count":                 `SELECT COUNT(*) FROM roll_counts c WHERE n <> (SELECT COUNT(*) FROM roll_tokens t WHERE t.lock_key = c.lock_key)`,
		"more than the limit":          `SELECT COUNT(*) FROM (SELECT lock_key FROM roll_taken GROUP BY lock_key HAVING SUM(amount) > 1000) x`,
		"a lost update":                `SELECT COUNT(*) FROM roll_accounts a WHERE n <> version - 1`,
		"two payments":                 `SELECT COUNT(*) FROM (SELECT op_key FROM roll_payments GROUP BY op_key HAVING COUNT(*) > 1) x`,
		"a payment that is not booked": `SELECT COUNT(*) FROM roll_payments p WHERE NOT EXISTS (SELECT 1 FROM roll_effects e WHERE e.kind = 'staged' AND e.op_key = p.op_key AND e.who = p.id)`,
	} {
		if n := s.count(query); n > 0 {
			wrong = append(wrong, fmt.Sprintf("%s: %d", rule, n))
		}
	}
	for line, n := range s.errors {
		wrong = append(wrong, fmt.Sprintf("%d times %s", n, line))
	}
	return wrong
}

// TestRolling deploys this version beside the one before, migrates while both run, goes back, and forward again.
func TestRolling(t *testing.T) {
	onlyRolling(t)
	old, next := build(t, "old", before(t), nil), build(t, "new", "HEAD", nil)
	dbtest.Each(t, func(t *testing.T, e dbtest.Engine) {
		s := newStorm(t, e)
		s.phase(4*time.Second, old, old)
		s.phase(6*time.Second, old, next, old)
		s.phase(8*time.Second, next, old, next)
		s.phase(4*time.Second, old, old) // and back
		s.phase(4*time.Second, next, old)
		s.wantRight(old, next)
	})
}

func onlyRolling(t *testing.T) {
	t.Helper()
	if os.Getenv("HOLDFAST_TEST_ROLLING") == "" {
		t.Skip("make rolling")
	}
}

// wantRight fails unless all is right, and each program did each thing.
func (s *storm) wantRight(programs ...program) {
	s.Helper()
	for _, w := range s.judge(programs[len(programs)-1]) {
		s.Error(w)
	}
	for _, what := range s.undone(programs) {
		s.Errorf("not done once: %s", what)
	}
	s.Logf("%d kills, %d stops, %v", s.kills, s.stops, s.did)
}

// kinds is what a worker does.
var kinds = []string{"do", "dotx", "guard", "fair", "limit", "version", "staged", "reap"}

// undone are the kinds that a program has not done yet.
func (s *storm) undone(programs []program) (kindsOf []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range programs {
		for _, kind := range kinds {
			if s.did[p.label+" "+kind] == 0 {
				kindsOf = append(kindsOf, p.label+" "+kind)
			}
		}
	}
	return kindsOf
}
