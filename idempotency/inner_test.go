package idempotency_test

import (
	"database/sql"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-go/holdfast/internal/test/conformance"
	"github.com/holdfast-go/holdfast/internal/test/conformance/inner"
)

// TestInnerOutcomes runs every call of the public API that runs a user's function, each with every outcome
// that an operation within it may have.
func TestInnerOutcomes(t *testing.T) {
	t.Parallel()
	conformance.InModes(t, conformance.Suite{SQL: inner.Suite[*sql.Tx], Pgx: inner.Suite[pgx.Tx]}, "SQL", "Pgx")
}

// TestInnerOutcomesHasEveryCall finds the functions and methods of the public packages that take a function
// which returns an error.
func TestInnerOutcomesHasEveryCall(t *testing.T) {
	t.Parallel()
	known := append(inner.Names(), "holdfastgrpc.Interceptors.Unary", // its module tests it
		"mysqltest.Main", "pgxtest.Main") // they make tables before any operation
	if len(known) < 10 {
		t.Fatal(known)
	}
	found := 0
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		name := d.Name()
		_, module := os.Stat(filepath.Join(path, "go.mod"))
		switch {
		case err != nil:
			return err
		case d.IsDir() && (name == "internal" || name == "adapters" || name == "cmd" || name == "examples" || name == "testdata" || path != ".." && module == nil):
			return fs.SkipDir
		case d.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go"):
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		for _, decl := range file.Decls {
			f, is := decl.(*ast.FuncDecl)
			if !is || !f.Name.IsExported() || !slices.ContainsFunc(f.Type.Params.List, fails) {
				continue
			}
			call := file.Name.Name + "." + receiver(f) + f.Name.Name
			if found++; ast.IsExported(strings.Split(call, ".")[1]) && !slices.Contains(known, call) {
				t.Errorf("%s: %s has no row in internal/test/conformance/inner", path, call)
			}
		}
		return nil
	})
	if err != nil || found < len(known)/2 {
		t.Error(found, err)
	}
}

// fails reports whether a parameter is a function whose last result is an error.
func fails(p *ast.Field) bool {
	f, is := p.Type.(*ast.FuncType)
	if !is || f.Results == nil {
		return false
	}
	last, is := f.Results.List[len(f.Results.List)-1].Type.(*ast.Ident)
	return is && last.Name == "error"
}

// receiver returns the name of a method's type and a dot.
func receiver(f *ast.FuncDecl) (name string) {
	if f.Recv != nil {
		ast.Inspect(f.Recv.List[0].Type, func(n ast.Node) bool {
			if id, is := n.(*ast.Ident); is && name == "" {
				name = id.Name + "."
			}
			return true
		})
	}
	return name
}
