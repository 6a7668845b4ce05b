// Package gomutant writes small faults into Go, each behind a question to package planted, so that one
// build has all the faults of a package and a run chooses one.
//
// A fault turns the outcome of a condition, moves a comparison at its border, drops an operand of a
// sum, a statement or an error that is returned, or takes another constant of the same type.
package gomutant

import (
	"bytes"
	"cmp"
	"context"
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
	"path/filepath"
	"slices"
	"strings"
)

// Mutant is one fault in a function.
type Mutant struct {
	// Function is the file, a space and the function.
	Function string
	// ID names the fault within the function, and does not change when code before it moves.
	ID string
	// What is the kind of the fault and the code that it is in.
	What string
}

const planted = "github.com/holdfast-go/holdfast/internal/test/mutants/planted"

// Plant writes the files of packages with all their faults into a folder, and returns the faults and
// the path of the file that go build's -overlay takes.
func Plant(ctx context.Context, folder string, packages ...string) ([]Mutant, string, error) {
	listed, exports, err := list(ctx, packages)
	if err != nil {
		return nil, "", err
	}
	var all []Mutant
	replace := map[string]string{}
	for _, p := range listed {
		found, files, err := p.plant(exports)
		if err != nil {
			return nil, "", fmt.Errorf("%s: %w", p.ImportPath, err)
		}
		all = append(all, found...)
		for path, text := range files {
			to := filepath.Join(folder, fmt.Sprintf("%d_%s", len(replace), filepath.Base(path)))
			if err := os.WriteFile(to, text, 0o600); err != nil {
				return nil, "", err
			}
			replace[path] = to
		}
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return nil, "", err
	}
	path := filepath.Join(folder, "overlay.json")
	return all, path, os.WriteFile(path, overlay, 0o600)
}

type goPackage struct {
	ImportPath string   `json:"ImportPath"`
	Dir        string   `json:"Dir"`
	Export     string   `json:"Export"`
	GoFiles    []string `json:"GoFiles"`
	DepOnly    bool     `json:"DepOnly"`
	Module     struct {
		Dir string `json:"Dir"`
	} `json:"Module"`
}

// list returns the packages that patterns select, and where the compiled form of each that they import is.
func list(ctx context.Context, patterns []string) ([]goPackage, map[string]string, error) {
	args := append([]string{"list", "-export", "-deps", "-tags", "mutants", "-json=ImportPath,Dir,Export,GoFiles,DepOnly,Module"}, patterns...)
	cmd := exec.CommandContext(ctx, "go", args...) //nolint:gosec // packages that the user names
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, nil, fmt.Errorf("list the packages: %w", err)
	}
	var selected []goPackage
	exports := map[string]string{}
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p goPackage
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return selected, exports, nil
		} else if err != nil {
			return nil, nil, err
		}
		exports[p.ImportPath] = p.Export
		if !p.DepOnly {
			selected = append(selected, p)
		}
	}
}

// plant returns the faults of p, and its files with them.
func (p goPackage) plant(exports map[string]string) ([]Mutant, map[string][]byte, error) {
	fset := token.NewFileSet()
	var files []*ast.File
	var paths []string
	for _, name := range p.GoFiles {
		path := filepath.Join(p.Dir, name)
		f, err := parser.ParseFile(fset, path, nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, nil, err
		}
		files, paths = append(files, f), append(paths, path)
	}
	info := &types.Info{Types: map[ast.Expr]types.TypeAndValue{}, Uses: map[*ast.Ident]types.Object{}, Defs: map[*ast.Ident]types.Object{}}
	conf := types.Config{Importer: importer.ForCompiler(fset, "gc", func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) })}
	checked, err := conf.Check(p.ImportPath, fset, files, info)
	if err != nil {
		return nil, nil, err
	}
	var all []Mutant
	out := map[string][]byte{}
	for i, f := range files {
		text, err := os.ReadFile(paths[i])
		if err != nil {
			return nil, nil, err
		}
		name, err := filepath.Rel(p.Module.Dir, paths[i])
		if err != nil {
			return nil, nil, err
		}
		m := &file{fset: fset, info: info, pkg: checked, name: filepath.ToSlash(name), text: text, seen: map[string]int{}}
		if found, written := m.write(f); len(found) > 0 {
			all = append(all, found...)
			out[paths[i]] = written
		}
	}
	return all, out, nil
}

// file is one file that gets its faults.
type file struct {
	fset  *token.FileSet
	info  *types.Info
	pkg   *types.Package
	name  string
	text  []byte
	edits []edit
	found []Mutant
	seen  map[string]int

	function string // that the walk is in
	results  *types.Tuple
}

// edit puts text in the place of the bytes from at to at+drop. Of two that begin at one place, one that
// closes comes first.
type edit struct {
	at, drop int
	closes   bool
	text     string
	nth      int
}

// write returns the faults of a file, and its text with them.
func (f *file) write(tree *ast.File) ([]Mutant, []byte) {
	for _, d := range tree.Decls {
		if fn, ok := d.(*ast.FuncDecl); ok && fn.Body != nil {
			f.function = fn.Name.Name
			if fn.Recv != nil && len(fn.Recv.List) > 0 {
				f.function = receiver(fn.Recv.List[0].Type) + "." + f.function
			}
			f.results = f.info.Defs[fn.Name].Type().(*types.Signature).Results() //nolint:forcetypeassert // of a function
			ast.Walk(f, fn.Body)
		}
	}
	if len(f.found) == 0 {
		return nil, nil
	}
	// The name of the package ends a line, after which an import may stand.
	f.edit(f.offset(tree.Name.End()), 0, true, "; import planted \""+planted+"\"")
	slices.SortStableFunc(f.edits, func(a, b edit) int {
		switch {
		case a.at != b.at:
			return cmp.Compare(a.at, b.at)
		case a.closes != b.closes:
			if a.closes {
				return -1
			}
			return 1
		case a.closes: // what was opened last is closed first
			return cmp.Compare(b.nth, a.nth)
		}
		return cmp.Compare(a.nth, b.nth)
	})
	var out bytes.Buffer
	from := 0
	for _, e := range f.edits {
		out.Write(f.text[from:e.at])
		out.WriteString(e.text)
		from = e.at + e.drop
	}
	out.Write(f.text[from:])
	return f.found, out.Bytes()
}

func receiver(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return receiver(e.X)
	case *ast.IndexExpr:
		return receiver(e.X)
	case *ast.IndexListExpr:
		return receiver(e.X)
	case *ast.Ident:
		return e.Name
	}
	return ""
}

func (f *file) offset(p token.Pos) int { return f.fset.Position(p).Offset }

func (f *file) of(n ast.Node) string { return string(f.text[f.offset(n.Pos()):f.offset(n.End())]) }

func (f *file) edit(at, drop int, closes bool, text string) {
	f.edits = append(f.edits, edit{at, drop, closes, text, len(f.edits)})
}

// around puts texts before and behind a node.
func (f *file) around(n ast.Node, before, behind string) {
	f.edit(f.offset(n.Pos()), 0, false, before)
	f.edit(f.offset(n.End()), 0, true, behind)
}

// fault notes a fault, and returns its name as Go writes it.
func (f *file) fault(kind string, n ast.Node) string {
	const long = 120
	what := strings.Join(strings.Fields(f.of(n)), " ")
	function := f.name + " " + f.function
	key := kind + function + what
	id := name(kind, what, f.seen[key])
	f.seen[key]++
	if len(what) > long {
		what = what[:long] + "…"
	}
	f.found = append(f.found, Mutant{function, id, kind + ": " + what})
	return fmt.Sprintf("%q", function+" "+id)
}
