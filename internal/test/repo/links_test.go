package repo

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	fence   = regexp.MustCompile("(?ms)^```.*?^```$|`[^`\n]*`") //nolint:gocritic // with (?m) it is the beginning of a line
	mdLink  = regexp.MustCompile(`\]\(([^)\s]+)\)|(?:src|srcset|href)="([^"]+)"`)
	heading = regexp.MustCompile(`(?m)^#{1,6} +(.+)$`)

	fencedBlock = regexp.MustCompile("(?ms)^```.*?^```$") //nolint:gocritic // with (?m) it is the beginning of a line
	noAnchor    = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
)

// TestDocsLinks checks that each relative link of a page leads to a file, and to a heading of it.
func TestDocsLinks(t *testing.T) {
	t.Parallel()
	pages, err := exec.CommandContext(t.Context(), "git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md").Output()
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for page := range strings.Lines(string(pages)) {
		page = strings.TrimSpace(page)
		text, err := os.ReadFile(page)
		if os.IsNotExist(err) {
			continue // removed, but not yet in a commit
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range mdLink.FindAllSubmatch(fence.ReplaceAll(text, nil), -1) {
			link := string(bytes.Join(m[1:], nil))
			if strings.Contains(link, ":") {
				continue
			}
			found++
			path, anchor, _ := strings.Cut(link, "#")
			target := page
			if path != "" {
				target = filepath.Join(filepath.Dir(page), path)
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s: %s leads nowhere", page, link)
			} else if anchor != "" && !anchors(t, target)[anchor] {
				t.Errorf("%s: no heading for %s", page, link)
			}
		}
	}
	if found < 100 {
		t.Errorf("only %d links", found)
	}
}

// anchors returns the anchors that a page's headings get.
func anchors(t *testing.T, page string) map[string]bool {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]bool{}
	for _, m := range heading.FindAllSubmatch(fencedBlock.ReplaceAll(text, nil), -1) {
		all[slug(string(m[1]))] = true
	}
	for _, m := range regexp.MustCompile(`(?:id|name)="([^"]+)"`).FindAllSubmatch(text, -1) {
		all[string(m[1])] = true
	}
	return all
}

// slug returns the anchor that a heading gets.
func slug(words string) string {
	return strings.ReplaceAll(noAnchor.ReplaceAllString(strings.ToLower(strings.TrimSpace(words)), ""), " ", "-")
}
