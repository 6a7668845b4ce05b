package repo

import (
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// TestNestedModulesUseTheAPI checks that a program can take a newer Holdfast beside an older nested module: such a
// module imports nothing of the parent's internal packages, but in its tests. The benchmark and the examples are no
// libraries.
func TestNestedModulesUseTheAPI(t *testing.T) {
	modules, err := filepath.Glob("holdfast*/go.mod")
	if err != nil || len(modules) < 4 {
		t.Fatalf("%q, %v", modules, err)
	}
	for _, mod := range modules {
		dir := filepath.Dir(mod)
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
				return err
			}
			f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
			if err != nil {
				return err
			}
			for _, i := range f.Imports {
				if name, _ := strconv.Unquote(i.Path.Value); strings.HasPrefix(name, self+"/") && strings.Contains(name, "/internal/") && !strings.HasPrefix(name, self+"/"+filepath.Base(dir)+"/") {
					t.Errorf("%s imports %s", path, name)
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}
