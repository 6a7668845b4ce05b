package docs_test

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// chinese returns the pages of docs/zh that translate a page of docs/.
func chinese(t *testing.T) []string {
	t.Helper()
	found, err := filepath.Glob(root + "/docs/zh/*/*.md")
	if err != nil || len(found) < 7 {
		t.Fatal(found, err)
	}
	return found
}

// TestChineseKeepsStep checks that each Chinese page has the code blocks of the English one, as many headings,
// rows and items, the same inline code and the same links, so that a translation that falls behind is found.
func TestChineseKeepsStep(t *testing.T) {
	t.Parallel()
	for _, file := range chinese(t) {
		page := strings.TrimPrefix(file, root+"/")
		original := strings.Replace(page, "docs/zh/", "docs/", 1)
		for _, fault := range behind(page, read(t, page), original, read(t, original)) {
			t.Errorf("%s: %s", page, fault)
		}
	}
}

func read(t *testing.T, page string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, page))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

var (
	quotedBlock = regexp.MustCompile("(?ms)(?:^<!-- [^\n]* -->\n)?^```.*?^```$") //nolint:gocritic // with (?m) it is the beginning of a line
	drawnText   = regexp.MustCompile(`(?m)\[[^\]\n]*\]|\{[^}\n]*\}|-- .*? -->|(: | as ).*$`)
	pageMarks   = regexp.MustCompile("(?m)`[^`\n]+`|\\]\\([^)]+\\)|^#+ |^\\||^(?:-|\\d+\\.) |\\*\\*?\\pL[^*\n]*\\*")
)

// behind says in what a translation differs from its original.
func behind(page, translation, original, text string) []string {
	var faults []string
	mine, theirs := quotedBlock.FindAllString(translation, -1), quotedBlock.FindAllString(text, -1)
	if len(mine) != len(theirs) {
		faults = append(faults, fmt.Sprintf("%d blocks of code, and %d in %s", len(mine), len(theirs), original))
	}
	for i := range min(len(mine), len(theirs)) {
		if drawing(mine[i]) != drawing(theirs[i]) {
			faults = append(faults, fmt.Sprintf("block %d is not that of %s", i+1, original))
		}
	}
	counts := marks(page, translation)
	for mark, n := range marks(original, text) {
		if counts[mark] != n {
			faults = append(faults, fmt.Sprintf("%q is there %d times, and %d times in %s", mark, counts[mark], n, original))
		}
		delete(counts, mark)
	}
	for mark, n := range counts {
		faults = append(faults, fmt.Sprintf("%q is there %d times, and never in %s", mark, n, original))
	}
	return faults
}

// drawing returns a block as it is, and of a diagram all but its words.
func drawing(block string) string {
	if !strings.HasPrefix(block, "```mermaid") {
		return block
	}
	return drawnText.ReplaceAllString(block, "")
}

// marks counts what a page has outside of its blocks. A link to a Chinese page counts as one to the English page.
func marks(page, text string) map[string]int {
	count := map[string]int{}
	for _, m := range pageMarks.FindAllString(quotedBlock.ReplaceAllString(text, ""), -1) {
		switch {
		case strings.HasPrefix(m, "]("):
			count[englishTarget(page, m[2:len(m)-1])]++
		case strings.HasPrefix(m, "**"):
			count["bold"]++
		case strings.HasPrefix(m, "*"):
			count["emphasis"]++
		default:
			count[m]++
		}
	}
	delete(count, strings.Replace(page, "docs/zh/", "docs/", 1)) // the link to the other language
	return count
}

func englishTarget(page, link string) string {
	if strings.Contains(link, "://") {
		return link
	}
	return strings.Replace(path.Join(path.Dir(page), link), "docs/zh/", "docs/", 1)
}

// TestChineseLinksToChinese checks that a Chinese page leads to an English one only where there is no Chinese one,
// and that both forms of a page lead to each other.
func TestChineseLinksToChinese(t *testing.T) {
	t.Parallel()
	translated := map[string]string{}
	for _, file := range chinese(t) {
		page := strings.TrimPrefix(file, root+"/")
		translated[strings.Replace(page, "docs/zh/", "docs/", 1)] = page
	}
	links := regexp.MustCompile(`\]\(([^)#:]+)`)
	for original, page := range translated {
		leads := map[string]bool{}
		for _, m := range links.FindAllStringSubmatch(read(t, page), -1) {
			target := path.Join(path.Dir(page), m[1])
			leads[target] = true
			if form, ok := translated[target]; ok && target != original {
				t.Errorf("%s leads to %s rather than to %s", page, target, form)
			}
		}
		if !leads[original] {
			t.Errorf("%s does not lead to %s", page, original)
		}
		if !strings.Contains(read(t, original), "](../zh/"+strings.TrimPrefix(original, "docs/")+")") {
			t.Errorf("%s does not lead to %s", original, page)
		}
	}
	for _, m := range links.FindAllStringSubmatch(read(t, "README.zh-CN.md"), -1) {
		if form, ok := translated[m[1]]; ok {
			t.Errorf("README.zh-CN.md leads to %s rather than to %s", m[1], form)
		}
	}
}

// TestChineseFindsFaults plants what happens to a translation that is left behind.
func TestChineseFindsFaults(t *testing.T) {
	t.Parallel()
	const (
		page, original = "docs/zh/start/p.md", "docs/start/p.md"
		text           = "# Refund\n\nEnglish · [zh](../zh/start/p.md)\n\n<!-- a.go#f -->\n```go\nf(1) // once\n```\n\n```mermaid\nflowchart TD\n    A[Once] -- yes --> B{Who?}\n    C->>D: POST\n```\n\n| a | `b` |\n|---|---|\n\n- **bold** [c](c.md)\n"
		right          = "# Tuikuan\n\n[English](../../start/p.md) · zh\n\n<!-- a.go#f -->\n```go\nf(1) // once\n```\n\n```mermaid\nflowchart TD\n    A[yici] -- shi --> B{Shei?}\n    C->>D: qingqiu\n```\n\n| jia | `b` |\n|---|---|\n\n- **cuti** [bing](c.md)\n"
	)
	if faults := behind(page, right, original, text); len(faults) > 0 {
		t.Error(faults)
	}
	for fault, change := range map[string][2]string{
		"a block that differs":       {"f(1)", "f(2)"},
		"a comment in a block":       {"// once", "// yici"},
		"another source":             {"a.go#f", "a.go#g"},
		"a block that is missing":    {"<!-- a.go#f -->\n```go\nf(1) // once\n```\n", ""},
		"an arrow of a diagram":      {"C->>D", "D->>C"},
		"a heading":                  {"# Tuikuan\n", "# Tuikuan\n\n## Zai yi ge\n"},
		"a row":                      {"|---|---|\n", "|---|---|\n| ding | wu |\n"},
		"inline code":                {"`b`", "`e`"},
		"a link":                     {"(c.md)", "(d.md)"},
		"another heading of a page":  {"(c.md)", "(c.md#a)"},
		"an item":                    {"- **cuti**", "**cuti**"},
		"emphasis that was left out": {"**cuti**", "cuti"},
	} {
		wrong := strings.Replace(right, change[0], change[1], 1)
		if wrong == right || len(behind(page, wrong, original, text)) == 0 {
			t.Errorf("%s is not found", fault)
		}
	}
}
