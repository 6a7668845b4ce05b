package docs_test

import (
	"go/ast"
	"go/parser"
	"go/types"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
)

const module = "github.com/holdfast-go/holdfast"

var (
	exported  = regexp.MustCompile(`\.[A-Z]`)
	plainName = regexp.MustCompile(`^[A-Z]\w*[a-z]\w*$`)
	selector  = regexp.MustCompile(`\b[A-Za-z]\w*(?:\.[A-Z]\w*)+`)
)

// known are the names of this repository.
type known struct {
	im       *imports
	packages map[string][]*types.Package // of this repository and of the standard library, by name
	others   map[string][]*types.Package // that these import
	ours     map[string][]types.Object   // exported objects, fields and methods, by name
	tests    map[string]bool             // with what internal/test exports, and alerts
}

var newNames = sync.OnceValues(func() (*known, error) {
	im, err := newImports()
	if err != nil {
		return nil, err
	}
	all := &known{im: im, packages: map[string][]*types.Package{}, others: map[string][]*types.Package{}, ours: map[string][]types.Object{}}
	if all.tests, err = testNames(); err != nil {
		return nil, err
	}
	for path := range im.exports {
		p, err := im.types.Import(path)
		if err != nil {
			continue // the C library's
		}
		switch first, _, _ := strings.Cut(path, "/"); {
		case strings.HasPrefix(path, module+"/internal/test/"):
			all.others[p.Name()] = append(all.others[p.Name()], p)
			for _, name := range p.Scope().Names() {
				all.tests[name] = true
			}
		case path == module || strings.HasPrefix(path, module+"/"):
			all.add(p)
			fallthrough
		case !strings.Contains(first, "."):
			all.packages[p.Name()] = append(all.packages[p.Name()], p)
		default:
			all.others[p.Name()] = append(all.others[p.Name()], p)
		}
	}
	return all, nil
})

func names(t *testing.T) *known {
	t.Helper()
	all, err := newNames()
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// add adds a package's exported objects, and the fields and methods of its types.
func (k *known) add(p *types.Package) {
	for _, name := range p.Scope().Names() {
		o := p.Scope().Lookup(name)
		if !o.Exported() {
			continue
		}
		k.ours[name] = append(k.ours[name], o)
		named, ok := types.Unalias(o.Type()).(*types.Named)
		if !ok || o.Type() != types.Type(named) && !isTypeName(o) {
			continue
		}
		for m := range named.Methods() {
			k.ours[m.Name()] = append(k.ours[m.Name()], m)
		}
		switch u := named.Underlying().(type) {
		case *types.Struct:
			for f := range u.Fields() {
				k.ours[f.Name()] = append(k.ours[f.Name()], f)
			}
		case *types.Interface:
			for m := range u.Methods() {
				k.ours[m.Name()] = append(k.ours[m.Name()], m)
			}
		}
	}
}

func isTypeName(o types.Object) bool {
	_, ok := o.(*types.TypeName)
	return ok
}

// missing returns the names in a piece of inline code that do not exist.
func (k *known) missing(code string) []string {
	if bare := strings.TrimLeft(code, "*[]"); plainName.MatchString(bare) {
		if k.tests[bare] || k.ours[bare] != nil {
			return nil
		}
		return []string{bare}
	}
	if !exported.MatchString(code) {
		return nil
	}
	expr, err := parser.ParseExpr(ellipsis(strings.TrimPrefix(code, "return ")))
	if err != nil { // words between names
		var lost []string
		for _, name := range selector.FindAllString(code, -1) {
			if name == code { // a keyword is in it
				return []string{code}
			}
			lost = append(lost, k.missing(name)...)
		}
		return lost
	}
	var lost []string
	ast.Inspect(expr, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.SelectorExpr:
			if len(k.resolve(n)) == 0 {
				lost = append(lost, types.ExprString(n))
			}
			_, deeper := n.X.(*ast.CallExpr)
			return deeper
		case *ast.CompositeLit:
			lost = append(lost, k.fields(n)...)
		}
		return true
	})
	return lost
}

// fields returns the keys of a literal that are no fields of its type.
func (k *known) fields(lit *ast.CompositeLit) []string {
	var lost []string
	for _, e := range lit.Elts {
		kv, ok := e.(*ast.KeyValueExpr)
		if !ok {
			continue
		}
		if name, ok := kv.Key.(*ast.Ident); ok && len(k.resolve(&ast.SelectorExpr{X: lit.Type, Sel: name})) == 0 {
			lost = append(lost, types.ExprString(lit.Type)+"{"+name.Name+"}")
		}
	}
	return lost
}

// resolve returns what an expression of names, selectors and calls may mean.
func (k *known) resolve(expr ast.Expr) []types.Object {
	switch e := expr.(type) {
	case *ast.Ident:
		return k.ours[e.Name]
	case *ast.CallExpr:
		return slices.DeleteFunc(slices.Clone(k.resolve(e.Fun)), func(o types.Object) bool {
			return isTypeName(o) && len(e.Args) != 1 // no conversion
		})
	case *ast.StarExpr:
		return k.resolve(e.X)
	case *ast.CompositeLit:
		return k.resolve(e.Type)
	case *ast.SelectorExpr:
		if x, ok := e.X.(*ast.Ident); ok && !x.IsExported() {
			return k.ofVariableOrPackage(x.Name, e.Sel.Name)
		}
		var found []types.Object
		for _, o := range k.resolve(e.X) {
			if m := member(o, e.Sel.Name); m != nil {
				found = append(found, m)
			}
		}
		return found
	}
	return nil
}

// ofVariableOrPackage finds a name in the packages of a name. If there are none, x is a variable of some type of
// ours.
func (k *known) ofVariableOrPackage(x, name string) []types.Object {
	var found []types.Object
	packages := k.packages[x]
	if packages == nil {
		packages = k.others[x]
	}
	for _, p := range packages {
		if o := p.Scope().Lookup(name); o != nil {
			found = append(found, o)
		}
	}
	if found == nil && k.packages[x] == nil {
		return k.ours[name]
	}
	return found
}

// member returns the field or method of an object's type, or of what it returns.
func member(o types.Object, name string) types.Object {
	t := o.Type()
	if f, ok := t.(*types.Signature); ok {
		if f.Results().Len() == 0 {
			return nil
		}
		t = f.Results().At(0).Type()
	}
	found, _, _ := types.LookupFieldOrMethod(t, true, o.Pkg(), name)
	return found
}

// testNames returns the tests, the cases of suites, and the alerts.
func testNames() (map[string]bool, error) {
	tests := map[string]bool{}
	named := regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Benchmark|Example)\w*)\(|"([A-Z][\w/]*)":\s|- alert: (\w+)`)
	err := filepath.WalkDir(root, func(file string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(file, ".go") && !strings.HasSuffix(file, ".yml") || strings.HasSuffix(file, "/docs/prose_test.go") {
			return err
		}
		text, err := os.ReadFile(file)
		for _, m := range named.FindAllStringSubmatch(string(text), -1) {
			tests[m[1]+m[2]+m[3]] = true
		}
		return err
	})
	return tests, err
}
