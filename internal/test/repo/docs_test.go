package repo

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestDocsNameTests checks that each test named in a table of the docs exists.
func TestDocsNameTests(t *testing.T) {
	t.Parallel()
	tests := map[string]bool{}
	// A test function, or an entry of a suite in a map of tests.
	named := regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(|"([A-Z][\w/]*)":\s`)
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") {
			return err
		}
		text, err := os.ReadFile(path)
		for _, m := range named.FindAllStringSubmatch(string(text), -1) {
			tests[m[1]+m[2]] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	docs, err := filepath.Glob("docs/*/*.md")
	if err != nil || len(docs) == 0 {
		t.Fatal(docs, err)
	}
	header := regexp.MustCompile(`(?i)^\| .*\b(shown by|tests?) \|$`)
	name := regexp.MustCompile("`([A-Z][\\w/]*)`")
	found := 0
	for _, doc := range docs {
		text, err := os.ReadFile(doc)
		if err != nil {
			t.Fatal(err)
		}
		in := false
		for line := range strings.Lines(string(text)) {
			line = strings.TrimSpace(line)
			if !strings.HasPrefix(line, "|") {
				in = false
				continue
			}
			if header.MatchString(line) {
				in = true
				continue
			}
			cells := strings.Split(strings.Trim(line, "|"), "|")
			if !in {
				continue
			}
			for _, m := range name.FindAllStringSubmatch(cells[len(cells)-1], -1) {
				found++
				if !tests[m[1]] {
					t.Errorf("%s names %s, which is no test", doc, m[1])
				}
			}
		}
	}
	if found < 30 {
		t.Errorf("only %d tests are named", found)
	}
}

// TestReadmesKeepStep checks that both READMEs have the same code, names and links.
func TestReadmesKeepStep(t *testing.T) {
	t.Parallel()
	// Inline code, links, and the starts of table rows and headings.
	marks := regexp.MustCompile("`[^`\n]+`|\\]\\([^)]+\\)|(?m)^(?:\\||#+)")
	read := func(name string) map[string]int {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		count := map[string]int{}
		for _, m := range marks.FindAllString(string(text), -1) {
			count[strings.Replace(m, "](docs/zh/", "](docs/", 1)]++ // internal/test/docs says where it has to be the Chinese page
		}
		delete(count, "](README.md)")
		delete(count, "](README.zh-CN.md)")
		return count
	}
	english, chinese := read("README.md"), read("README.zh-CN.md")
	for m, n := range english {
		if chinese[m] != n {
			t.Errorf("%s is %d times in README.md and %d times in README.zh-CN.md", m, n, chinese[m])
		}
	}
	for m, n := range chinese {
		if english[m] == 0 {
			t.Errorf("%s is not in README.md, and %d times in README.zh-CN.md", m, n)
		}
	}
}
