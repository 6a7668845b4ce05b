package repo

import (
	"encoding/json"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// TestMainModuleRequires checks that the go.mod that each program of a user has in its graph requires what the library
// and its tests need, and nothing of the command's.
func TestMainModuleRequires(t *testing.T) {
	t.Parallel()
	want := []string{
		"github.com/anishathalye/porcupine", // tests: whether an order explains a history; it requires nothing
		"github.com/cenkalti/backoff/v5",
		"github.com/dunglas/httpsfv",
		"github.com/go-sql-driver/mysql",
		"github.com/golang-migrate/migrate/v4",
		"github.com/google/uuid",
		"github.com/jackc/pgx/v5",
		"github.com/jmoiron/sqlx",
		"golang.org/x/sync", // tests; pgx requires it too
		"golang.org/x/sys",  // tests; SQLite requires it too
		"modernc.org/sqlite",
		"pgregory.net/rapid", // tests: properties; it requires nothing
	}
	out, err := exec.CommandContext(t.Context(), "go", "mod", "edit", "-json").Output()
	if err != nil {
		t.Fatal(err)
	}
	var mod struct {
		Require []struct {
			Path     string
			Indirect bool
		}
	}
	if err := json.Unmarshal(out, &mod); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, r := range mod.Require {
		if !r.Indirect {
			got = append(got, r.Path)
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("go.mod requires %q, want %q", got, want)
	}
}

// TestNestedModulesUseTheAPI checks that a program can take a newer Holdfast beside an older nested module: such a
// module imports nothing of the parent's internal packages, but in its tests. The benchmark and the examples are no
// libraries. The command is none either: it requires exactly the release that it belongs to, so it may use what it
// shares with packages that users import. The list keeps that short.
func TestNestedModulesUseTheAPI(t *testing.T) {
	t.Parallel()
	modules, err := filepath.Glob("holdfast*/go.mod")
	if err != nil || len(modules) < 4 {
		t.Fatalf("%q, %v", modules, err)
	}
	for _, mod := range modules {
		if used := internals(t, filepath.Dir(mod)); len(used) > 0 {
			t.Errorf("%s imports %q", filepath.Dir(mod), used)
		}
	}
	command := []string{
		"access", "core", "dialect", // bench and the check of grants run SQL of their own through a handle's dialect
		"display",         // text in the form that the console has
		"dsn",             // one spelling of addresses for the command, the tests and the examples
		"errcode",         // the errors of arguments
		"errcode/catalog", // the page of errors is made of it too
		"measure",         // the repository's benchmark measures with it too
		"options",         // bounds of numbers
		"refund",          // the refund that it measures, likewise
		"rowmap",          // ops similar reads tables of the user
		"stdhandle",       // prove runs the dialect's SQL on its own connections
		"test/faultproxy", // prove cuts connections
		"token",           // what the console asks of its token
	}
	if used := internals(t, "cmd/holdfast"); !slices.Equal(used, command) {
		t.Errorf("cmd/holdfast imports %q, and may %q", used, command)
	}
}

// internals returns the internal packages of the main module that a nested one imports outside of tests, sorted.
func internals(t *testing.T, module string) (used []string) {
	t.Helper()
	err := filepath.WalkDir(module, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
			return err
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		for _, i := range f.Imports {
			name, _ := strconv.Unquote(i.Path.Value)
			if within, ours := strings.CutPrefix(name, self+"/"); ours && strings.Contains("/"+within, "/internal/") && !strings.HasPrefix(within, filepath.ToSlash(module)+"/") {
				used = append(used, strings.TrimPrefix(within, "internal/"))
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(used)
	return slices.Compact(used)
}

// TestEachModuleIsInAWorkspace checks that go works in each module's folder, with no variable set: go.work at the root
// has those that are built with the main module, and each other has its own. None of them replaces what a user
// of go install would get, and what go.work replaces is the release that the command requires.
func TestEachModuleIsInAWorkspace(t *testing.T) {
	t.Parallel()
	files, err := exec.CommandContext(t.Context(), "git", "ls-files", "*/go.mod").Output()
	if err != nil {
		t.Fatal(err)
	}
	work := read(t, "go.work")
	for file := range strings.Lines(string(files)) {
		dir := filepath.Dir(strings.TrimSpace(file))
		_, err := os.Stat(filepath.Join(dir, "go.work"))
		if in := strings.Contains(work, "\t./"+dir+"\n"); in == (err == nil) {
			t.Errorf("%s: it is in go.work: %v; its own one: %v", dir, in, err)
		}
	}
	command := read(t, "cmd/holdfast/go.mod")
	if strings.Contains(command, "replace") {
		t.Error("cmd/holdfast/go.mod has a replace, which go install refuses")
	}
	release := regexp.MustCompile(regexp.QuoteMeta(self) + ` (v\S+)`)
	if required, replaced := release.FindStringSubmatch(command), release.FindStringSubmatch(work); required == nil || replaced == nil || required[1] != replaced[1] {
		t.Errorf("cmd/holdfast requires %q, go.work replaces %q", required, replaced)
	}
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
