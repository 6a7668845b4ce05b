//go:build unix

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/holdfast-go/holdfast/internal/test/dbtest"
)

// setup is what a line of a page needs besides sampleData, and its exit status.
type setup struct {
	page, has string
	engine    dbtest.Engine // default: SQLite
	given     func(s *shell)
	status    int
}

// setups are those of lines that need more than sampleData, or that fail on purpose.
var setups = []setup{
	{page: "docs/howto/audit.md", has: "ops confirm", engine: dbtest.Postgres, given: accountOfBen},
	{page: "docs/howto/operate.md", has: "locks blocked", engine: dbtest.Postgres, given: blockedSession},
	{page: "docs/howto/shell.md", has: "ops resolve", given: killedJob},
	{page: "docs/howto/shell.md", has: "ops list", given: killedJob},
	{page: "docs/reference/doctor.md", has: "doctor --table", given: looseTable, status: exitBroken},
	{page: "docs/reference/doctor.md", has: "locks blocked", engine: dbtest.Postgres, given: blockedSession},
	{page: "docs/reference/protocol.md", has: "functions up", engine: dbtest.Postgres},
	{page: "docs/reference/reaper.md", has: "--table", engine: dbtest.Postgres, given: ownTables},
}

// long are the commands that last until they are interrupted: what they say when they have begun.
var long = []struct {
	command, begun *regexp.Regexp
	status         int
}{
	{regexp.MustCompile(`holdfast console`), regexp.MustCompile(`(?m)^console: http://`), exitOK},
	{regexp.MustCompile(`holdfast reap .*--every`), regexp.MustCompile(`(?m)^holdfast: .*until interrupted$`), exitOK},
	{regexp.MustCompile(`holdfast .*--watch`), regexp.MustCompile(`(?m)^# \d`), exitOK},
	{regexp.MustCompile(`\./relay --forever`), regexp.MustCompile(`(?m)^relaying$`), exitSignal + int(syscall.SIGINT)},
}

// aboveGo are the marks of blocks of Go, which TestHowToRuns of internal/test/docs looks at.
var aboveGo = regexp.MustCompile("<!-- not run here[^>]*-->\\s*```go")

// programs are those of the reader that the pages name.
var programs = map[string]string{
	"settle.sh": "#!/bin/sh\necho settled\n",
	"relay":     "#!/bin/sh\necho relaying\nexec sleep 1000\n",
}

// TestDocsCommands runs every command line of holdfast that the pages show in a block. A line that shows
// a session's output must print that. The lines of a block with prompts follow each other on one
// database; each other line has its own. A block that cannot be run says above it what runs it, or why
// nothing does: <!-- not run here: TestX -->
func TestDocsCommands(t *testing.T) {
	t.Parallel()
	pages, tests, targets := docsPages(t), testNames(t), makeTargets(t)
	for page, text := range pages {
		for _, err := range unmarked(text, tests, targets) {
			t.Errorf("%s:%v", page, err)
		}
	}
	for _, s := range setups {
		if !slices.ContainsFunc(shellLines(pages[s.page]), func(line string) bool { return strings.Contains(line, s.has) }) {
			t.Errorf("a setup for a line that %s does not have: %s", s.page, s.has)
		}
	}
	dbtest.Each(t, func(t *testing.T, e dbtest.Engine) {
		if e != dbtest.SQLite && e != dbtest.Postgres {
			return // no page needs another
		}
		d := newDatabases(t, e)
		for _, page := range slices.Sorted(maps.Keys(pages)) {
			for _, p := range sessionsOf(page, pages[page]) {
				if p.engine != e {
					continue
				}
				t.Run(fmt.Sprintf("%s:%d", page, p.line), func(t *testing.T) {
					t.Parallel()
					for _, err := range d.run(t, p) {
						t.Errorf("%s:%d: %v", page, p.line, err)
					}
				})
			}
		}
	})
}

// session is what runs on one database: a line, or a block with prompts.
type session struct {
	line   int
	engine dbtest.Engine
	typed  []typed
	setups []setup // of each line
}

// sessionsOf returns what a page shows and does not mark.
func sessionsOf(page, text string) []session {
	var all []session
	for _, b := range shellBlocks(text) {
		if b.mark != "" {
			continue
		}
		p := session{line: b.line, engine: dbtest.SQLite}
		for _, l := range b.typed {
			if !commandLine.MatchString(l.text) {
				continue
			}
			s := setupOf(page, l.text)
			if s.engine != "" {
				p.engine = s.engine
			}
			p.typed, p.setups = append(p.typed, l), append(p.setups, s)
			if !b.prompts {
				all = append(all, p)
				p = session{line: b.line, engine: dbtest.SQLite}
			}
		}
		if len(p.typed) > 0 {
			all = append(all, p)
		}
	}
	return all
}

func setupOf(page, line string) setup {
	for _, s := range setups {
		if s.page == page && strings.Contains(line, s.has) {
			return s
		}
	}
	return setup{}
}

var (
	quotation = regexp.MustCompile(`'[^']*'|"[^"]*"|\s#.*`)
	called    = regexp.MustCompile(`(?:^|[|;&(]|\s--\s)\s*(?:[A-Z_]+=\S*\s+)*([^\s=|;&()<>-][^\s=|;&()<>]*)`)
	// allowed are the programs that a line may run here: the shell's, coreutils, and those above.
	allowed = regexp.MustCompile(`^(holdfast|\./(settle\.sh|relay)|cd|echo|eval|exec|exit|export|false|printf|set|source|test|trap|true|cat|date|env|head|sleep|sort|tail|tee|timeout|tr|uniq|wc)$`)
	// runBy names what runs the lines of a marked block.
	runBy = regexp.MustCompile(`\bTest\w+|\bmake [a-z-]+`)
)

// unmarked returns the faults of a page's marks: a block that cannot be run and has none, and one that is of no use.
func unmarked(text string, tests, targets map[string]bool) []error {
	var faults []error
	marks := strings.Count(aboveGo.ReplaceAllString(text, ""), "<!-- not run here")
	for _, b := range shellBlocks(text) {
		var found []error
		if b.mark == "" {
			found = b.missing()
		} else {
			marks--
			found = b.needless(tests, targets)
		}
		for _, err := range found {
			faults = append(faults, fmt.Errorf("%d: %w", b.line, err))
		}
	}
	if marks > 0 {
		faults = append(faults, errors.New("1: a mark that is not right above a block of command lines"))
	}
	return faults
}

// missing returns the programs for which the block needs a mark.
func (b shellBlock) missing() (faults []error) {
	for _, l := range b.typed {
		if !mentions(l.text) {
			continue
		}
		for _, m := range called.FindAllStringSubmatch(quotation.ReplaceAllString(l.text, " ''"), -1) {
			if !allowed.MatchString(m[1]) {
				faults = append(faults, fmt.Errorf("%s needs %s: mark the block with <!-- not run here: … -->", l.text, m[1]))
			}
		}
	}
	return faults
}

// needless returns what is wrong with the block's mark.
func (b shellBlock) needless(tests, targets map[string]bool) (faults []error) {
	if !slices.ContainsFunc(b.typed, func(l typed) bool { return mentions(l.text) }) {
		faults = append(faults, errors.New("marked as not run, and has no line of holdfast"))
	}
	named := runBy.FindAllString(b.mark, -1)
	for _, name := range named {
		if target, ok := strings.CutPrefix(name, "make "); ok && !targets[target] || !ok && !tests[name] {
			faults = append(faults, errors.New("there is no "+name))
		}
	}
	if len(named) == 0 && len(strings.Fields(b.mark)) < 3 {
		faults = append(faults, errors.New("marked as not run, and does not say why"))
	}
	return faults
}

// mention is a line that runs holdfast, also through a program such as sudo.
var mention = sync.OnceValue(func() *regexp.Regexp {
	var names []string
	for _, cmd := range newRoot().Commands() {
		names = append(names, cmd.Name())
	}
	return regexp.MustCompile(`(^|\s)holdfast\s+(` + strings.Join(names, "|") + `)\b`)
})

func mentions(line string) bool {
	return commandLine.MatchString(line) || mention().MatchString(quotation.ReplaceAllString(line, ""))
}

// testNames returns the names of the repository's tests.
func testNames(t *testing.T) map[string]bool {
	t.Helper()
	names, declared := map[string]bool{}, regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && d.Name() == "node_modules" {
			return fs.SkipDir
		}
		if err != nil || d.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		for _, m := range declared.FindAllStringSubmatch(string(text), -1) {
			names[m[1]] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// shell is where lines are run: an empty folder, a database, and holdfast in the PATH.
type shell struct {
	*testing.T

	url    string
	others map[string]string // URLs of other accounts, by their name
	dir    string
	values map[string]string // of abbreviated values, such as 5f0c0b6e…
}

// wrapper runs the test as the command, and notes its status: a line's own status is that of one process.
// Console's own port may be another program's here.
const wrapper = `#!/bin/sh
trap : INT
[ "$1" != console ] || { shift; set -- console --addr 127.0.0.1:0 "$@"; }
"$HOLDFAST_TEST_BINARY" "$@"
status=$?
echo "$status holdfast $*" >> "$HOLDFAST_TEST_STATUSES"
exit $status
`

// run runs the lines of a session and returns what they do that the page does not lead one to expect.
func (d *databases) run(t *testing.T, p session) []error {
	t.Helper()
	s := &shell{T: t, url: d.open(t), others: map[string]string{}, dir: t.TempDir(), values: map[string]string{}}
	for name, text := range programs {
		s.write(filepath.Join("work", name), text)
	}
	s.write("bin/holdfast", wrapper)
	for _, needed := range p.setups {
		if needed.given != nil {
			needed.given(s)
		}
	}
	var faults []error
	for i, l := range p.typed {
		if err := s.line(l, p.setups[i].status); err != nil {
			faults = append(faults, fmt.Errorf("%s: %w", l.text, err))
		}
	}
	return faults
}

func (s *shell) write(name, text string) {
	s.Helper()
	file := filepath.Join(s.dir, name)
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		s.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o700); err != nil {
		s.Fatal(err)
	}
}

// line runs a command line.
func (s *shell) line(l typed, status int) error {
	text, err := s.filled(l.text)
	if err != nil {
		return err
	}
	var begun *regexp.Regexp
	for _, c := range long {
		if c.command.MatchString(l.text) {
			begun, status = c.begun, c.status
		}
	}
	out, code, err := s.bash(text, begun)
	if err == nil && code != status {
		err = fmt.Errorf("exit status %d, want %d", code, status)
	}
	if err == nil && l.shows != "" {
		err = s.learn(l.shows, out)
	}
	if err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	return nil
}

// bash runs a line. The statuses of all of its holdfasts must be 0, or the line's.
func (s *shell) bash(text string, begun *regexp.Regexp) (out string, code int, err error) {
	ctx, cancel := context.WithTimeout(s.Context(), dbtest.Hang)
	defer cancel()
	binary, err := os.Executable()
	if err != nil {
		return "", 0, err
	}
	statuses := filepath.Join(s.dir, "statuses")
	cmd := exec.CommandContext(ctx, "bash", "-o", "pipefail", "-c", text)
	cmd.Dir = filepath.Join(s.dir, "work")
	cmd.Env = append(slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "HOLDFAST_") }),
		asCommand+"=1", "HOLDFAST_TEST_BINARY="+binary, "HOLDFAST_TEST_STATUSES="+statuses, dsnVariable+"="+s.url,
		"PATH="+filepath.Join(s.dir, "bin")+":"+os.Getenv("PATH"))
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	end := func(sig syscall.Signal) error { return syscall.Kill(-cmd.Process.Pid, sig) } // of the line
	cmd.Cancel = func() error { return end(syscall.SIGKILL) }
	said := &watched{begun: begun, then: func() { _ = end(syscall.SIGINT) }}
	cmd.Stdout, cmd.Stderr = said, said
	err = cmd.Run()
	if cmd.ProcessState == nil || ctx.Err() != nil {
		return said.String(), 0, errors.Join(err, ctx.Err())
	}
	code = cmd.ProcessState.ExitCode()
	if begun != nil && said.begun != nil {
		return said.String(), code, fmt.Errorf("it ended, status %d, and had not said that it began: %v", code, begun)
	}
	ended, err := os.ReadFile(statuses)
	if errors.Is(err, fs.ErrNotExist) {
		return said.String(), code, errors.New("no holdfast was run to its end")
	}
	for line := range strings.Lines(string(ended)) {
		if !strings.HasPrefix(line, "0 ") && !strings.HasPrefix(line, fmt.Sprint(code)+" ") {
			err = errors.Join(err, errors.New("exit status "+strings.TrimSpace(line)))
		}
	}
	return said.String(), code, errors.Join(err, os.Remove(statuses))
}

// watched is a command's output. It calls then once it matches begun.
type watched struct {
	text  strings.Builder
	begun *regexp.Regexp
	then  func()
}

func (w *watched) Write(b []byte) (int, error) {
	n, err := w.text.Write(b)
	if w.begun != nil && w.begun.MatchString(w.text.String()) {
		w.begun = nil
		w.then()
	}
	return n, err
}

func (w *watched) String() string { return w.text.String() }

var (
	pageURL     = regexp.MustCompile(`['"]?\b(?:postgres|mysql|mariadb|sqlite)://(?:(\w+)[:@])?[^\s'"]*['"]?`)
	abbreviated = regexp.MustCompile(`\b[0-9a-f]{8}…`)
	unfilled    = regexp.MustCompile(`(\s#.*)|\S*…\S*`)
)

// filled puts values in the place of those that a page leaves out.
func (s *shell) filled(line string) (string, error) {
	line = pageURL.ReplaceAllStringFunc(line, func(url string) string {
		if other := s.others[pageURL.FindStringSubmatch(url)[1]]; other != "" {
			return "'" + other + "'"
		}
		return "'" + s.url + "'"
	})
	line = strings.ReplaceAll(line, tokenVariable+"=…", tokenVariable+"=a-token-of-a-console")
	line = abbreviated.ReplaceAllStringFunc(line, func(short string) string {
		return cmp.Or(s.values[short], short)
	})
	for _, m := range unfilled.FindAllStringSubmatch(line, -1) {
		if m[1] == "" {
			return "", fmt.Errorf("%s stands for a value that no earlier line has shown", m[0])
		}
	}
	return line, nil
}

var (
	longHex = regexp.MustCompile(`\b[0-9a-f]{32,64}\b|\b[0-9a-f]{8}…`)
	varying = regexp.MustCompile(`\d{4}-\d\d-\d\dT[\d:.]+Z|\b\d+m?(\.\d+)?m?s\b|\d+`)
)

// learn compares output with what the page shows, and keeps the values that it abbreviates. Numbers, times and hashes
// differ, and so do a table's rows. A line ... stands for more lines.
func (s *shell) learn(shows, out string) error {
	plain := func(line string) string {
		return varying.ReplaceAllString(longHex.ReplaceAllString(strings.TrimSpace(line), "HASH"), "0")
	}
	want, is := strings.Split(strings.TrimSpace(shows), "\n"), strings.Split(strings.TrimSpace(out), "\n")
	for i, line := range want {
		switch {
		case i >= len(is):
			return fmt.Errorf("the page shows more: %s", line)
		case line == "...":
			return nil
		case header.MatchString(line):
			if fields := strings.Fields(line); !slices.Equal(fields, strings.Fields(is[i])) || len(is) == i+1 {
				return fmt.Errorf("the page shows another table: %s", line)
			}
			return nil
		case plain(line) != plain(is[i]):
			return fmt.Errorf("the page shows: %s", line)
		}
		for j, short := range longHex.FindAllString(line, -1) {
			s.values[short] = longHex.FindAllString(is[i], -1)[j]
		}
	}
	if len(is) > len(want) {
		return errors.New("the page shows less")
	}
	return nil
}
