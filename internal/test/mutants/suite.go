package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// mutant is a fault in a statement, or in a function: see sqlmutant.Mutant and gomutant.Mutant.
type mutant struct {
	place, id, what string
	ran             string // what a test that reaches it writes down
}

func (m mutant) String() string { return m.place + ": " + m.what }

type verdict string

// The verdicts. A mutant is unreached if no test runs its statement.
const (
	killed    verdict = "killed"
	survived  verdict = "SURVIVED"
	unreached verdict = "UNREACHED"
	broken    verdict = "not SQL"
	isEqual   verdict = "equal"
)

type result struct {
	pkg, engine string
	mutant      mutant
	verdict     verdict
	test        string // that failed
	reason      string // of an equal one
}

// suite is the test binary of a package, with what a first run of it showed.
type suite struct {
	pkg, folder, binary, work string
	engine                    string
	mutants                   []mutant
	runs                      map[string]map[string]bool // the tests that run a statement, or reach a fault
	lasts                     map[string]time.Duration   // each test
	took                      time.Duration
}

// learn builds the tests of a package and runs those that match, one at a time.
func learn(ctx context.Context, pkg, engine, overlay, tests string) (*suite, error) {
	work, err := os.MkdirTemp("", "mutants")
	if err != nil {
		return nil, err
	}
	s := &suite{pkg: pkg, binary: filepath.Join(work, "tests"), work: work, engine: engine, runs: map[string]map[string]bool{}, lasts: map[string]time.Duration{}}
	folder, err := exec.CommandContext(ctx, "go", "list", "-f", "{{.Dir}}", pkg).Output() //nolint:gosec // a package that the user names
	if err != nil {
		return nil, fmt.Errorf("find the package: %w", err)
	}
	s.folder = strings.TrimSpace(string(folder))
	build := exec.CommandContext(ctx, "go", "test", "-tags", "mutants", "-vet=off", "-ldflags=-w", "-overlay="+overlay, "-c", "-o", s.binary, pkg) //nolint:gosec // the same
	build.Stderr = os.Stderr
	if err := build.Run(); err != nil {
		return nil, fmt.Errorf("build its tests: %w", err)
	}
	list, ran := filepath.Join(work, "mutants"), filepath.Join(work, "ran")
	began := time.Now()
	cmd := s.command(ctx, "-test.run="+tests, "-test.v=test2json", "-test.parallel=1", "-test.timeout=30m")
	cmd.Env = append(cmd.Env, "HOLDFAST_TEST_MUTANTS="+list, "HOLDFAST_TEST_RAN="+ran)
	times, err := faultless(ctx, cmd)
	if err != nil {
		return nil, err
	}
	s.took = time.Since(began)
	for test, windows := range times {
		for _, w := range windows {
			s.lasts[test] += time.Duration(w.to-w.from) * time.Millisecond
		}
	}
	if err := s.readMutants(list); err != nil {
		return nil, err
	}
	if err := s.readRan(ran, times); err != nil {
		return nil, err
	}
	for _, tests := range s.runs {
		if len(tests) == 0 || s.took < 2*time.Second { // its time says nothing
			for test := range times {
				tests[test] = true
			}
		}
	}
	return s, nil
}

func (s *suite) close() { _ = os.RemoveAll(s.work) }

func (s *suite) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, s.binary, args...) //nolint:gosec // its own tests
	cmd.Dir = s.folder
	cmd.Env = append(os.Environ(), "HOLDFAST_TEST_ENGINES="+s.engine, "HOLDFAST_TEST_REQUIRE=")
	return cmd
}

// window is a time in which a test ran, in Unix milliseconds.
type window struct{ from, to int64 }

// faultless runs tests without a fault, and returns when each of them ran.
func faultless(ctx context.Context, cmd *exec.Cmd) (map[string][]window, error) {
	tests, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	events := exec.CommandContext(ctx, "go", "tool", "test2json", "-t")
	events.Stdin = tests
	read, err := events.StdoutPipe()
	if err != nil {
		return nil, err
	}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := errors.Join(cmd.Start(), events.Start()); err != nil {
		return nil, err
	}
	times, since := map[string][]window{}, map[string]int64{}
	var output, failures []string
	of := map[string][]string{} // each test
	for d := json.NewDecoder(bufio.NewReader(read)); ; {
		var e struct {
			Time   time.Time `json:"Time"`
			Action string    `json:"Action"`
			Test   string    `json:"Test"`
			Output string    `json:"Output"`
		}
		if d.Decode(&e) != nil {
			break
		}
		if e.Test == "" && e.Action != "output" {
			continue
		}
		at := e.Time.UnixMilli()
		switch e.Action {
		case "run", "cont":
			since[e.Test] = at
		case "pause", "pass", "fail", "skip":
			times[e.Test] = append(times[e.Test], window{since[e.Test], at})
		case "output":
			output = append(output, e.Output)
			of[e.Test] = append(of[e.Test], e.Output)
		}
		if e.Action == "fail" {
			failures = append(failures, of[e.Test]...)
		}
	}
	if err := errors.Join(cmd.Wait(), events.Wait()); err != nil {
		if len(failures) == 0 { // the process ended
			failures = output[max(0, len(output)-40):]
		}
		return nil, fmt.Errorf("the tests fail without a fault: %w\n%s%s", err, strings.Join(failures, ""), stderr.String())
	}
	return times, nil
}

func (s *suite) readMutants(path string) error {
	return lines(path, func(field []string) {
		m := mutant{field[0], field[1], field[2], field[0]}
		if !slices.Contains(s.mutants, m) {
			s.mutants = append(s.mutants, m)
		}
	}, 3)
}

// readRan notes for each statement the tests that ran at that time, or near it: a goroutine that a test
// started may run one shortly after it, and a test's times are those at which its output was read.
func (s *suite) readRan(path string, times map[string][]window) error {
	const near, part = 1500, 50
	parts := map[int64][]string{} // the tests of each part of a second
	running := func(at int64) []string {
		from := at - at%part
		tests, known := parts[from]
		if known {
			return tests
		}
		for test, windows := range times {
			if slices.ContainsFunc(windows, func(w window) bool { return w.from < from+part+near && from <= w.to+near }) {
				tests = append(tests, test)
			}
		}
		parts[from] = tests
		return tests
	}
	return lines(path, func(field []string) {
		at, _ := strconv.ParseInt(field[0], 10, 64)
		if s.runs[field[1]] == nil {
			s.runs[field[1]] = map[string]bool{}
		}
		for _, test := range running(at) {
			s.runs[field[1]][test] = true
		}
	}, 2)
}

func lines(path string, f func(field []string), n int) error {
	text, err := os.ReadFile(path) //nolint:gosec // a file of ours
	if errors.Is(err, os.ErrNotExist) {
		return nil // no statement
	}
	for line := range strings.Lines(string(text)) {
		if field := strings.SplitN(strings.TrimSuffix(line, "\n"), "\t", n); len(field) == n {
			f(field)
		}
	}
	return err
}

var (
	failed = regexp.MustCompile(`--- FAIL: (\S+)`)
	// What the servers say of a text that is no statement of theirs: PostgreSQL's class 42 but for
	// rights, MySQL's and MariaDB's 1052, 1054, 1060, 1064, 1093 and 1111, SQLite's first code.
	notSQL = regexp.MustCompile(`SQLSTATE 42(601|702|703|803|804|846|883|P\d\d)|Error 1(052|054|060|064|093|111) |SQL logic error`)
)

// try runs a suite's tests that reach a mutant, with the fault, until one fails: first a few that end
// soon, which notice most faults.
func (s *suite) try(ctx context.Context, m mutant) (verdict, string) {
	all := s.runs[m.ran]
	if few := s.soonest(all); len(few) < len(all) {
		if v, test := s.run(ctx, m, few); v != survived {
			return v, test
		}
	}
	return s.run(ctx, m, all)
}

// soonest returns the tests that end first, of those that have no tests within them.
func (s *suite) soonest(tests map[string]bool) map[string]bool {
	const few, total = 8, time.Second
	outer := map[string]bool{}
	for test := range tests {
		if i := strings.LastIndexByte(test, '/'); i >= 0 {
			outer[test[:i]] = true
		}
	}
	sorted := slices.SortedFunc(maps.Keys(tests), func(a, b string) int { return cmp.Or(cmp.Compare(s.lasts[a], s.lasts[b]), cmp.Compare(a, b)) })
	chosen, sum := map[string]bool{}, time.Duration(0)
	for _, test := range sorted {
		if outer[test] {
			continue
		}
		if sum += s.lasts[test]; len(chosen) > 0 && (sum > total || len(chosen) == few) {
			break
		}
		chosen[test] = true
	}
	return chosen
}

func (s *suite) run(ctx context.Context, m mutant, tests map[string]bool) (verdict, string) {
	// A fault may make a test hang. The bound is far above what the tests need.
	bound := 30 * time.Second
	for test := range tests {
		if !strings.Contains(test, "/") {
			bound += 3 * s.lasts[test]
		}
	}
	cmd := s.command(ctx, "-test.failfast", "-test.parallel=4", "-test.run", pattern(tests), "-test.timeout", bound.String())
	cmd.Env = append(cmd.Env, "HOLDFAST_TEST_MUTANT="+m.place+" "+m.id)
	out, err := cmd.CombinedOutput()
	var test string
	for _, f := range failed.FindAllSubmatch(out, -1) { // the innermost
		if len(f[1]) > len(test) {
			test = string(f[1])
		}
	}
	switch {
	case err == nil:
		return survived, ""
	case notSQL.Match(out):
		return broken, string(notSQL.Find(out))
	case test == "":
		return killed, "(the process ended)"
	}
	return killed, test
}

// pattern returns the argument of -test.run that selects tests: those of each level.
func pattern(tests map[string]bool) string {
	var levels []map[string]bool
	for test := range tests {
		for i, name := range strings.Split(test, "/") {
			if len(levels) == i {
				levels = append(levels, map[string]bool{})
			}
			levels[i][regexp.QuoteMeta(name)] = true
		}
	}
	parts := make([]string, len(levels))
	for i, names := range levels {
		parts[i] = "^(" + strings.Join(slices.Sorted(maps.Keys(names)), "|") + ")$"
	}
	return strings.Join(parts, "/")
}
