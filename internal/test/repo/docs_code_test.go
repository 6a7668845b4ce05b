package repo

import (
	"bytes"
	"flag"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"
)

var updateDocs = flag.Bool("update-docs", false, "copy the quoted code into the pages")

// quoted is a block of code that quotes a file, or a function of it with its comment:
// a comment <!-- path --> or <!-- path#function --> before the block.
var quoted = regexp.MustCompile("(?ms)^<!-- ([\\w./-]+\\.go)(?:#(\\w+))? -->\n```go\n(.*?)^```$") //nolint:gocritic // with (?m) it is the beginning of a line

// TestDocsQuoteCode checks that quoted code is that of its source, which other tests compile and run.
func TestDocsQuoteCode(t *testing.T) {
	t.Parallel()
	pages, err := filepath.Glob("docs/*/*.md")
	if err != nil {
		t.Fatal(err)
	}
	chinese, err := filepath.Glob("docs/zh/*/*.md")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, page := range append(append(pages, chinese...), "README.md", "README.zh-CN.md") {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		fresh := quoted.ReplaceAllFunc(text, func(block []byte) []byte {
			found++
			m := quoted.FindSubmatch(block)
			return bytes.Replace(block, append([]byte("```go\n"), m[3]...), append([]byte("```go\n"), source(t, string(m[1]), string(m[2]))...), 1)
		})
		switch {
		case bytes.Equal(fresh, text):
		case !*updateDocs:
			t.Errorf("%s quotes code as it was: go test . -run TestDocsQuoteCode -update-docs", page)
		default:
			if err := os.WriteFile(page, fresh, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	if found < 12 {
		t.Errorf("only %d blocks quote code", found)
	}
}

// source returns a file, or the body of an example, or another function whole.
func source(t *testing.T, path, function string) []byte {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if function == "" {
		return text
	}
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, path, text, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range file.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok || f.Name.Name != function {
			continue
		}
		return append(text[files.Position(f.Pos()).Offset:files.Position(f.End()).Offset:len(text)], '\n')
	}
	t.Fatalf("%s has no function %s", path, function)
	return nil
}

// TestReadmesAreShort checks that no cell of a table of the READMEs is a paragraph.
func TestReadmesAreShort(t *testing.T) {
	t.Parallel()
	const most = 120 // characters that are seen
	target := regexp.MustCompile(`\]\([^)]+\)`)
	for _, page := range []string{"README.md", "README.zh-CN.md"} {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			if !strings.HasPrefix(line, "|") {
				continue
			}
			for cell := range strings.SplitSeq(target.ReplaceAllString(line, "]"), "|") {
				if n := utf8.RuneCountInString(cell); n > most {
					t.Errorf("%s: a cell of %d characters: %s", page, n, cell)
				}
			}
		}
	}
}
