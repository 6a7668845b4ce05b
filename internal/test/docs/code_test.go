// Package docs_test checks what the pages show: code, and command lines.
package docs_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
)

const root = "../../.."

// block is a fenced block of a page.
type block struct {
	page string
	line int // of its first line of code
	lang string
	text string
}

// pages returns the READMEs and every page of docs/.
func pages(t *testing.T) []string {
	t.Helper()
	found, err := filepath.Glob(root + "/docs/*/*.md")
	if err != nil || len(found) < 20 {
		t.Fatal(found, err)
	}
	found = append(found, chinese(t)...)
	return append(found, root+"/README.md", root+"/README.zh-CN.md", root+"/CONTRIBUTING.md")
}

var fenced = regexp.MustCompile("(?ms)^( *)```(\\w*)[^\n]*\n(.*?)^ *```$") //nolint:gocritic // with (?m) it is the beginning of a line

func blocks(t *testing.T, page string) []block {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	var all []block
	for _, m := range fenced.FindAllSubmatchIndex(text, -1) {
		code := string(text[m[6]:m[7]])
		if indent := string(text[m[2]:m[3]]); indent != "" {
			code = strings.ReplaceAll("\n"+code, "\n"+indent, "\n")[1:]
		}
		all = append(all, block{page: strings.TrimPrefix(page, root+"/"), line: bytes.Count(text[:m[6]], []byte("\n")) + 1, lang: string(text[m[4]:m[5]]), text: code})
	}
	return all
}

// given are the variables that a page may use without declaring them. A page that means another type
// declares it in a comment before its code: <!-- given: var tx pgx.Tx -->
const given = `
var (
	ctx   context.Context
	pool  *sql.DB
	db    *holdfast.DB[*sql.Tx]
	tx    *sql.Tx
	store *idempotency.Store[*sql.Tx]
	op    idempotency.Op
	locks *sqllock.Locker[*sql.Tx]
	lease *sqllock.Lease
	mux   *http.ServeMux
	w     http.ResponseWriter
	r     *http.Request
)
`

var clause = regexp.MustCompile(`(?m)^package \w+$`)

// TestCode checks every Go block of the pages with Go's type checker. A block with a
// package clause is a complete file, in which nothing may be wrong. The other blocks of a page are taken as
// one function, each in a scope within that of the one before: their names must exist in the packages
// that they name, and calls, fields and types must fit. A fragment may use a variable that it does
// not declare, and declare one that it does not use. An ellipsis, … stands for code left out.
func TestCode(t *testing.T) {
	t.Parallel()
	im := packages(t)
	files, fragments := 0, 0
	for _, page := range pages(t) {
		var parts []block
		for _, b := range blocks(t, page) {
			switch {
			case b.lang != "go":
			case clause.MatchString(b.text):
				files++
				report(t, im.check(b.page, fmt.Sprintf("//line %s:%d\n%s", b.page, b.line, b.text), regexp.MustCompile(`^$`)))
			default:
				fragments++
				parts = append(parts, b)
			}
		}
		if len(parts) > 0 {
			text, err := os.ReadFile(page)
			if err != nil {
				t.Fatal(err)
			}
			report(t, im.check(parts[0].page, join(parts, declared(string(text))), tolerated))
		}
	}
	if fragments < 20 {
		t.Errorf("only %d files and %d fragments", files, fragments)
	}
}

func report(t *testing.T, found []error) {
	t.Helper()
	for _, err := range found {
		t.Error(err)
	}
}

// tolerated are the type checker's complaints about a fragment that are none about the page.
var tolerated = regexp.MustCompile(`^(undefined: [\pL\pN_]+|declared and not used: .*|missing return|.* is not used|.* imported and not used.*|no new variables on left side of :=)$`)

// declared returns what the comments of a page give, and of the general list the rest.
func declared(page string) string {
	own := ""
	for _, m := range regexp.MustCompile(`(?s)<!-- given: (.*?) -->`).FindAllStringSubmatch(page, -1) {
		own += m[1] + "\n"
	}
	var general []string
	for line := range strings.Lines(given) {
		name := strings.Fields(line)
		if len(name) < 2 || !regexp.MustCompile(`\bvar `+regexp.QuoteMeta(name[0])+`\b`).MatchString(own) {
			general = append(general, line)
		}
	}
	return strings.Join(general, "") + own
}

var topLevel = regexp.MustCompile(`(?ms)^(?:func (?:\([^)]*\) )?\w+\(.*?\n}|type \w+ (?:struct|interface) \{.*?\n})$`)

// join makes one file of a page's fragments.
func join(parts []block, vars string) string {
	var declarations, statements strings.Builder
	for _, b := range parts {
		text := ellipsis(b.text)
		for _, at := range topLevel.FindAllStringIndex(text, -1) {
			line := b.line + strings.Count(text[:at[0]], "\n")
			fmt.Fprintf(&declarations, "//line %s:%d\n%s\n", b.page, line, text[at[0]:at[1]])
		}
		rest := topLevel.ReplaceAllStringFunc(text, func(s string) string { return strings.Repeat("\n", strings.Count(s, "\n")) })
		fmt.Fprintf(&statements, "{\n//line %s:%d\n%s\n", b.page, b.line, rest)
	}
	return "package page\n" + vars + declarations.String() + "func _() error {\n" + statements.String() + strings.Repeat("}", len(parts)) + "\n}\n"
}

var commentOrString = regexp.MustCompile("//[^\n]*|\"[^\"\n]*\"|`[^`]*`|,? *…")

// ellipsis removes each … with a comma before it, but for those in comments and strings.
func ellipsis(text string) string {
	return commentOrString.ReplaceAllStringFunc(text, func(s string) string {
		if strings.HasSuffix(s, "…") && strings.Trim(s, ", …") == "" {
			return ""
		}
		return s
	})
}

// imports finds the packages that fragments use, as the compiler left them.
type imports struct {
	mu      sync.Mutex
	fset    *token.FileSet
	paths   map[string]string // by the package's name
	exports map[string]string // files, by path
	dirs    map[string]string // of this repository's packages, by path
	types   types.Importer
}

// newImports lists the packages of this module, of those nested in it, and what they import.
var newImports = sync.OnceValues(func() (*imports, error) {
	im := &imports{fset: token.NewFileSet(), paths: map[string]string{}, exports: map[string]string{}, dirs: map[string]string{}}
	modules, err := modules()
	if err != nil {
		return nil, err
	}
	for _, module := range modules {
		cmd := exec.Command("go", "list", "-export", "-deps", "-json=ImportPath,Name,Export,Dir", "./...")
		cmd.Dir = filepath.Join(root, module)
		out, err := cmd.Output()
		if err != nil {
			return nil, fmt.Errorf("go list in %s: %w", module, err)
		}
		for d := json.NewDecoder(bytes.NewReader(out)); ; {
			var p struct {
				ImportPath, Name, Export, Dir string
			}
			if err := d.Decode(&p); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				return nil, err
			}
			if im.exports[p.ImportPath] == "" {
				im.exports[p.ImportPath] = p.Export
			}
			if strings.HasPrefix(p.ImportPath, "github.com/holdfast-go/") {
				im.dirs[p.ImportPath] = p.Dir
			}
			if p.Name != "main" && !regexp.MustCompile(`(^|/)(internal|vendor|examples)(/|$)`).MatchString(p.ImportPath) {
				im.add(p.Name, p.ImportPath)
			}
		}
	}
	im.types = importer.ForCompiler(im.fset, "gc", func(path string) (io.ReadCloser, error) {
		if im.exports[path] == "" {
			return nil, fmt.Errorf("no package %s in this repository or below what it imports", path)
		}
		return os.Open(im.exports[path])
	})
	return im, nil
})

// modules returns the folders of the modules that a page may show code of.
func modules() ([]string, error) {
	files, err := exec.Command("git", "-C", root, "ls-files", "go.mod", "*/go.mod").Output()
	var all []string
	for file := range strings.Lines(string(files)) {
		dir := path.Dir(strings.TrimSpace(file))
		if dir == "." || dir == "examples/start" || strings.HasPrefix(dir, "holdfast") {
			all = append(all, dir)
		}
	}
	return all, err
}

func packages(t *testing.T) *imports {
	t.Helper()
	im, err := newImports()
	if err != nil {
		t.Fatal(err)
	}
	return im
}

// add prefers this repository's package of a name, then the shortest path, which is mostly the standard library's.
func (im *imports) add(name, path string) {
	rank := func(path string) int {
		if strings.HasPrefix(path, "github.com/holdfast-go/") {
			return 0
		}
		return 1 + len(path) + 100*strings.Count(path, ".")
	}
	if old := im.paths[name]; old == "" || rank(path) < rank(old) {
		im.paths[name] = path
	}
}

// check type-checks a file and returns its errors but those that match tolerated.
func (im *imports) check(page, text string, tolerated *regexp.Regexp) []error {
	im.mu.Lock() // an importer is for one at a time
	defer im.mu.Unlock()
	page = path.Base(page) // lines name their page, relative to it
	file, err := parser.ParseFile(im.fset, page, text, parser.SkipObjectResolution)
	if err != nil {
		return []error{err}
	}
	if len(file.Imports) == 0 {
		head, body, _ := strings.Cut(text, "\n")
		if file, err = parser.ParseFile(im.fset, page, head+im.used(file)+"\n"+body, parser.SkipObjectResolution); err != nil {
			return []error{err}
		}
	}
	var found []error
	conf := types.Config{Importer: im.types, Error: func(err error) {
		var e types.Error
		if !errors.As(err, &e) || !tolerated.MatchString(e.Msg) {
			found = append(found, err)
		}
	}}
	_, _ = conf.Check("page", im.fset, []*ast.File{file}, nil) // Error has each error
	return found
}

// used returns the imports of the packages that a file without imports names.
func (im *imports) used(file *ast.File) string {
	found := map[string]bool{}
	ast.Inspect(file, func(n ast.Node) bool {
		if s, ok := n.(*ast.SelectorExpr); ok {
			if x, ok := s.X.(*ast.Ident); ok && im.paths[x.Name] != "" && s.Sel.IsExported() {
				found[x.Name] = true
			}
		}
		return true
	})
	var b strings.Builder
	for name := range found {
		fmt.Fprintf(&b, "; import %s %q", name, im.paths[name])
	}
	return b.String()
}

// TestCodeFindsFaults plants faults in fragments that are right otherwise.
func TestCodeFindsFaults(t *testing.T) {
	t.Parallel()
	im := packages(t)
	for name, text := range map[string]string{
		"a name that does not exist": "x, err := idempotency.Renew(ctx, db)",
		"a field":                    "x := idempotency.Op{Ownr: \"a\"}",
		"a method":                   "err := store.Erase(ctx)",
		"an argument":                "x, err := idempotency.New(db, ctx)",
		"the results":                "x := idempotency.New(ctx, db)",
		"a variable of an earlier":   "op := 7\nidempotency.KeyOf(op)",
		"the syntax":                 "if err != nil { ... }",
	} {
		if found := im.check(name, join([]block{{page: name, line: 1, text: text}}, given), tolerated); len(found) != 1 {
			t.Errorf("%s: %v in %s", name, found, text)
		}
	}
	right := "s, err := idempotency.New(ctx, db)\nfor range others { … }\nlease, err := locks.Acquire(ctx, \"k\", …)\nreturn err"
	report(t, im.check("right", join([]block{{page: "right", line: 1, text: right}}, given), tolerated))
}
