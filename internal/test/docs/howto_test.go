package docs_test

import (
	"maps"
	"regexp"
	"strings"
	"testing"
)

var (
	goBlock = regexp.MustCompile("(?m)^(<!-- ([^\n]*) -->\n)?```go$")
	runs    = regexp.MustCompile(`^[\w./]+_test\.go#\w+$|^examples/service/\w+/main\.go$|^holdfastvet/testdata/src/\w+/\w+\.go$`)
	theirs  = regexp.MustCompile(`^not run here: \S+`)
)

// notQuoted are the pages whose code no test runs yet. TestCode type-checks it.
var notQuoted = map[string]int{"docs/howto/audit.md": 2, "docs/howto/privileges.md": 2}

// TestHowToRuns checks that the Go code of each how-to page quotes what a test runs, or says why nothing can run it
// here (another product's code). TestDocsQuoteCode keeps page and test the same.
func TestHowToRuns(t *testing.T) {
	t.Parallel()
	quoted, left, loose := 0, 0, map[string]int{}
	for _, page := range prose(t) {
		if !strings.HasPrefix(page, "docs/howto/") {
			continue
		}
		text := read(t, page)
		for _, m := range goBlock.FindAllStringSubmatchIndex(text, -1) {
			switch comment := group(text, m, 2); {
			case runs.MatchString(comment):
				quoted++
			case theirs.MatchString(comment):
				left++
			case loose[page] < notQuoted[page]:
				loose[page]++
			default:
				t.Errorf("%s:%d: nothing runs this code: quote a test of it", page, 1+strings.Count(text[:m[0]], "\n"))
			}
		}
	}
	if !maps.Equal(loose, notQuoted) {
		t.Errorf("notQuoted is not what the pages have: %v", loose)
	}
	if quoted < 6 || left > quoted {
		t.Errorf("%d blocks are quoted, %d are not run", quoted, left)
	}
}

func group(text string, match []int, n int) string {
	if match[2*n] < 0 {
		return ""
	}
	return text[match[2*n]:match[2*n+1]]
}
