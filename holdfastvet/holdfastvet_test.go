package holdfastvet_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/tools/go/analysis/analysistest"

	"github.com/holdfast-go/holdfast/holdfastvet"
)

var update = flag.Bool("update", false, "write into docs/howto/vet.md what holdfastvet prints")

func TestAnalyzer(t *testing.T) {
	t.Parallel()
	analysistest.Run(t, analysistest.TestData(), holdfastvet.Analyzer, "refunds", "bankparks", "banktakes", "bankonce", "leases", "helpers", "books", "steps")
}

// unexpected takes the findings for which the file has no comment.
type unexpected struct{}

func (unexpected) Errorf(string, ...any) {}

// TestDocs checks that docs/howto/vet.md, in both languages, shows what holdfastvet prints of the code above it.
func TestDocs(t *testing.T) {
	t.Parallel()
	var lines []string
	for _, result := range analysistest.Run(unexpected{}, analysistest.TestData(), holdfastvet.Analyzer, "shop") {
		if result.Err != nil {
			t.Fatal(result.Err)
		}
		for _, d := range result.Diagnostics {
			at := result.Pass.Fset.Position(d.Pos)
			lines = append(lines, fmt.Sprintf("./%s:%d:%d: %s\n", filepath.Base(at.Filename), at.Line, at.Column, d.Message))
		}
	}
	if slices.Sort(lines); len(lines) != 3 {
		t.Fatal(lines)
	}
	for _, page := range []string{"../docs/howto/vet.md", "../docs/zh/howto/vet.md"} {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		before, rest, there := strings.Cut(string(text), "```text\n./")
		_, after, ended := strings.Cut(rest, "```\n")
		if !there || !ended {
			t.Fatalf("%s has no findings", page)
		}
		want := before + "```text\n" + strings.Join(lines, "") + "```\n" + after
		switch {
		case want == string(text):
		case !*update:
			t.Errorf("%s is not what holdfastvet prints: go test ./holdfastvet -run TestDocs -update", page)
		default:
			if err := os.WriteFile(page, []byte(want), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
}
