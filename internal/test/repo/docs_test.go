package repo

import (
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestDocsNameTests checks that each test named in a table of the docs exists.
func TestDocsNameTests(t *testing.T) {
	t.Parallel()
	tests := testNames(t)
	docs, err := filepath.Glob("docs/*/*.md")
	if err != nil || len(docs) == 0 {
		t.Fatal(docs, err)
	}
	header := regexp.MustCompile(`(?i)^\| .*\b(shown by|tests?) \|$`)
	found := 0
	for _, doc := range docs {
		text, err := os.ReadFile(doc)
		if err != nil {
			t.Fatal(err)
		}
		for _, table := range tables(string(text)) {
			if !header.MatchString(table.header) {
				continue
			}
			for _, row := range table.rows {
				for _, m := range namedTest.FindAllStringSubmatch(row[len(row)-1], -1) {
					found++
					if !tests[m[1]] {
						t.Errorf("%s names %s, which is no test", doc, m[1])
					}
				}
			}
		}
	}
	if found < 500 {
		t.Errorf("only %d tests are named", found)
	}
}

// namedTest is a test, or an entry of a suite, named in a table.
var namedTest = regexp.MustCompile("`([A-Z][\\w/]*)`")

// testNames returns every test function, and every entry of a suite in a map of tests.
func testNames(t *testing.T) map[string]bool {
	t.Helper()
	tests := map[string]bool{}
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
	return tests
}

// table is a table of a page, and the anchor of the heading that it stands under.
type table struct {
	anchor, header string
	rows           [][]string
}

func tables(page string) (all []table) {
	anchor, in := "", false
	for line := range strings.Lines(fencedBlock.ReplaceAllString(page, "")) {
		line = strings.TrimSpace(line)
		if m := heading.FindStringSubmatch(line); m != nil {
			anchor = slug(m[1])
		}
		switch {
		case !strings.HasPrefix(line, "|"):
			in = false
		case !in:
			in = true
			all = append(all, table{anchor: anchor, header: line})
		case !strings.HasPrefix(line, "|---"):
			cells := strings.Split(strings.Trim(line, "|"), "|")
			for i := range cells {
				cells[i] = strings.TrimSpace(cells[i])
			}
			last := &all[len(all)-1]
			last.rows = append(last.rows, cells)
		}
	}
	return all
}

const shownBy = "docs/reference/shown-by.md"

var (
	// unshown are the promises that no test shows.
	unshown = map[string]bool{"`LockTx`, rows, `Hold`": true} // on a MySQL group

	ofSection  = regexp.MustCompile(`^\| \[[^\]]*\]\(([^)#]+)#([^)]+)\) \| shown by \|$`)
	linkTarget = regexp.MustCompile(`\]\([^)]*\)`)
	evidence   = regexp.MustCompile("`[A-Z][\\w/]*`|\\.pml\\)")
)

// TestShownBy checks the page that says which test shows which promise of the reference.
func TestShownBy(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("docs/reference/*.md")
	if err != nil {
		t.Fatal(err)
	}
	pages := map[string]string{}
	for _, file := range append(files, "docs/howto/clusters.md", "docs/howto/after-restore.md") {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		pages[file] = string(text)
	}
	proven, faults := unproven(pages)
	for _, fault := range faults {
		t.Error(fault)
	}
	if proven < 200 {
		t.Errorf("only %d rows of the pages have tests", proven)
	}
}

// unproven returns how many rows of the pages have tests, and what is wrong. A table of which one row is on the page
// of tests, by its first cell, must be there whole.
func unproven(pages map[string]string) (proven int, faults []string) {
	shown, none := map[string]map[string]bool{}, map[string]bool{}
	for _, of := range tables(pages[shownBy]) {
		rows := map[string]bool{}
		for _, row := range of.rows {
			rows[linkTarget.ReplaceAllString(row[0], "]")] = true
			switch {
			case row[1] == "none":
				none[row[0]] = true
			case !evidence.MatchString(row[1]):
				faults = append(faults, row[0]+": no test shows it")
			}
		}
		if m := ofSection.FindStringSubmatch(of.header); m != nil {
			section := filepath.Join(filepath.Dir(shownBy), m[1]) + "#" + m[2]
			if shown[section] != nil {
				faults = append(faults, section+": there are two tables of its tests")
			}
			shown[section] = rows
		}
	}
	if !maps.Equal(none, unshown) {
		faults = append(faults, fmt.Sprintf("unshown is not what the page says: %v", none))
	}
	for page, text := range pages {
		if page == shownBy {
			continue
		}
		for _, of := range tables(text) {
			section := page + "#" + of.anchor
			rows, there := shown[section]
			switch {
			case strings.HasSuffix(strings.ToLower(of.header), " shown by |"):
				faults = append(faults, section+": tests are named in "+shownBy)
			case there && !strings.Contains(text, "shown-by.md#"):
				faults = append(faults, page+" does not lead to "+shownBy)
			case rows["each row"]:
				proven += len(of.rows)
			default:
				var missing []string
				for _, row := range of.rows {
					if !rows[linkTarget.ReplaceAllString(row[0], "]")] {
						missing = append(missing, section+": no test for "+row[0])
					}
				}
				if len(missing) < len(of.rows) {
					proven += len(of.rows)
					faults = append(faults, missing...)
				}
			}
		}
	}
	return proven, faults
}

// TestShownByFindsFaults plants a promise without a test, in each place.
func TestShownByFindsFaults(t *testing.T) {
	t.Parallel()
	const page = "docs/reference/p.md"
	const list = "# Shown by\n\n| [A](p.md#a) | shown by |\n|---|---|\n| once | `TestOnce` |\n| `LockTx`, rows, `Hold` | none |\n"
	const text = "# P\n\n[tests](shown-by.md#p)\n\n## A\n\n| what | how |\n|---|---|\n| once | a key |\n"
	if proven, faults := unproven(map[string]string{page: text, shownBy: list}); len(faults) > 0 || proven != 1 {
		t.Error(proven, faults)
	}
	for fault, change := range map[string][2]string{
		"a promise that is not on the list": {"| once | a key |\n", "| once | a key |\n| twice | no |\n"},
		"a page that does not lead there":   {"(shown-by.md#p)", "(p.md)"},
		"a column of its own":               {"| what | how |", "| what | shown by |"},
		"a row without a test":              {"`TestOnce`", "it is"},
		"a row that says none":              {"`TestOnce`", "none"},
	} {
		wrong := map[string]string{page: strings.Replace(text, change[0], change[1], 1), shownBy: strings.Replace(list, change[0], change[1], 1)}
		if _, faults := unproven(wrong); len(faults) == 0 {
			t.Errorf("%s is not found", fault)
		}
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
