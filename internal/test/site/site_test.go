// Package site_test checks the site that make docs builds: make docs-check runs it.
package site_test

import (
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/internal/test/browsertest"
)

const built = "../../../bin/site"

// pages returns the built pages by their path on the site.
func pages(t *testing.T) map[string]string {
	t.Helper()
	if os.Getenv("HOLDFAST_TEST_REQUIRE_SITE") == "" {
		t.Skip("make docs-check builds the site and tests it")
	}
	all := map[string]string{}
	err := filepath.WalkDir(built, func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(file) != ".html" {
			return err
		}
		text, err := os.ReadFile(file)
		name, _ := filepath.Rel(built, file)
		all["/"+filepath.ToSlash(name)] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestEveryPageIsBuilt checks that no page of docs/ is missing on the site.
func TestEveryPageIsBuilt(t *testing.T) {
	t.Parallel()
	all := pages(t)
	want := []string{"/index.html", "/zh/index.html"}
	for _, folder := range []string{"", "/zh"} {
		docs, err := filepath.Glob("../../../docs" + folder + "/*/*.md")
		if err != nil || len(docs) == 0 {
			t.Fatal(docs, err)
		}
		for _, doc := range docs {
			doc = strings.TrimPrefix(filepath.ToSlash(doc), "../../../docs")
			want = append(want, strings.TrimSuffix(doc, ".md")+".html")
		}
	}
	for _, page := range want {
		if all[page] == "" {
			t.Errorf("%s was not built", page)
		}
	}
}

var (
	attribute = regexp.MustCompile(`<(\w+)[^>]*?\s(?:href|src)="([^"]*)"`)
	anchor    = regexp.MustCompile(`\sid="([^"]*)"`)
)

// TestSiteLinks checks that each link within the site leads to a file and an anchor of it.
func TestSiteLinks(t *testing.T) {
	t.Parallel()
	all := pages(t)
	ids := map[string]map[string]bool{}
	for page, text := range all {
		ids[page] = map[string]bool{}
		for _, m := range anchor.FindAllStringSubmatch(text, -1) {
			ids[page][m[1]] = true
		}
	}
	found := 0
	for page, text := range all {
		for _, m := range attribute.FindAllStringSubmatch(text, -1) {
			link, err := url.Parse(strings.ReplaceAll(m[2], "&amp;", "&"))
			if err != nil {
				t.Errorf("%s: %v", page, err)
				continue
			}
			if link.Host != "" || link.Opaque != "" {
				continue
			}
			found++
			if err := leads(all, ids, page, link); err != nil {
				t.Errorf("%s: %s: %v", page, m[2], err)
			}
		}
	}
	if found < 1000 {
		t.Errorf("only %d links", found)
	}
}

func leads(all map[string]string, ids map[string]map[string]bool, page string, link *url.URL) error {
	target := page
	if link.Path != "" {
		target = path.Join(path.Dir(page), link.Path)
		if strings.HasPrefix(link.Path, "/") {
			target = link.Path
		}
		if strings.HasSuffix(link.Path, "/") {
			target = path.Join(target, "index.html")
		}
	}
	if _, err := os.Stat(filepath.Join(built, target)); err != nil {
		return err
	}
	if _, isPage := all[target]; isPage && link.Fragment != "" && !ids[target][link.Fragment] {
		return fmt.Errorf("no heading %q", link.Fragment)
	}
	return nil
}

// TestSiteLoadsNothingFromElsewhere checks that pages and styles load only what the site has.
func TestSiteLoadsNothingFromElsewhere(t *testing.T) {
	t.Parallel()
	for page, text := range pages(t) {
		for _, m := range attribute.FindAllStringSubmatch(text, -1) {
			if m[1] != "a" && strings.Contains(m[2], "//") {
				t.Errorf("%s loads %s", page, m[2])
			}
		}
	}
	styles, err := filepath.Glob(built + "/assets/*.css")
	if err != nil || len(styles) == 0 {
		t.Fatal(styles, err)
	}
	for _, style := range styles {
		text, err := os.ReadFile(style)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`(?:url\(|@import\s*)["']?(?:https?:)?//[^)"']*`).FindAllString(string(text), -1) {
			t.Errorf("%s: %s", style, m)
		}
	}
}

// serve serves the site. A request for what it lacks fails the test.
func serve(t *testing.T) string {
	t.Helper()
	files := http.FileServer(http.Dir(built))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := os.Stat(filepath.Join(built, filepath.FromSlash(path.Clean(r.URL.Path)))); err != nil && r.URL.Path != "/favicon.ico" {
			t.Errorf("%s is missing", r.URL.Path)
		}
		files.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	return server.URL
}

// TestPagesFit looks at every page in a browser, narrow and wide, light and dark. A wide window has room for
// every table; in a narrow one a table that scrolls has a shadow where there is more of it.
func TestPagesFit(t *testing.T) {
	t.Parallel()
	folders := map[string][]string{}
	for page := range pages(t) {
		if page != "/404.html" {
			folders[path.Dir(page)] = append(folders[path.Dir(page)], page)
		}
	}
	site := serve(t)
	for folder, pages := range folders {
		t.Run(strings.ReplaceAll(strings.Trim(folder, "/"), "/", "-"), func(t *testing.T) {
			t.Parallel()
			b := browsertest.Open(t, 360)
			for _, page := range pages {
				fits(b, site, page)
				if t.Failed() {
					t.Fatalf("on %s", page)
				}
			}
		})
	}
}

func fits(b *browsertest.Browser, site, page string) {
	b.Helper()
	b.Go(site+page, ".vp-doc h1")
	b.Fits(1440)
	if wide := browsertest.Evaluate[string](b, `[...document.querySelectorAll(".vp-doc table")].filter(e => e.scrollWidth > e.clientWidth).map(e => e.rows[0].innerText).join("; ")`); wide != "" {
		b.Errorf("tables scroll in a window of 1440 pixels: %s", wide)
	}
	b.Fits(360)
	b.Eventually(`[...document.querySelectorAll(".vp-doc table")].every(e => e.matches(".more-right") === e.scrollWidth > e.clientWidth + 1)`)
	if failed := browsertest.Evaluate[int](b, `[...document.images].filter(i => i.complete && !i.naturalWidth).length`); failed > 0 {
		b.Errorf("%d pictures are not shown", failed)
	}
	b.Eventually(`document.querySelectorAll("pre.diagram").length === 0`)
	if os.Getenv("HOLDFAST_SCREENSHOTS") != "" {
		b.Screenshots(strings.ReplaceAll(strings.Trim(strings.TrimSuffix(page, ".html"), "/"), "/", "-"))
	}
}

// TestSearch finds a page by a word of it, by keyboard, in both languages.
func TestSearch(t *testing.T) {
	t.Parallel()
	pages(t)
	b := browsertest.Open(t, 1440)
	site := serve(t)
	b.Go(site+"/", ".vp-doc h1")
	b.Type("/")
	b.Focused("#localsearch-input")
	b.Type("dead letters")
	b.Eventually(`[...document.querySelectorAll(".VPLocalSearchBox .result")].some(r => r.href.includes("/reference/outbox"))`)
	if os.Getenv("HOLDFAST_SCREENSHOTS") != "" {
		b.Screenshots("search")
	}
	b.Type(browsertest.Enter)
	b.Eventually(`location.pathname !== "/"`)

	for word, page := range map[string]string{
		"\u9000\u6b3e": "/zh/",                      // refund
		"\u5e42\u7b49": "/zh/howto/http-endpoint",   // idempotent
		"\u67e5\u5355": "/zh/howto/call-a-provider", // to ask the provider what became of a payment
		"\u8d44\u635f": "/zh/start/need",            // loss of money
		"\u9009\u4e3b": "/zh/start/choose",          // leader election
	} {
		b.Go(site+"/zh/", ".vp-doc h1")
		b.Click("#local-search button")
		b.Focused("#localsearch-input")
		// No key of a keyboard types a Chinese word.
		browsertest.Evaluate[bool](b, `(i => (i.value = "`+word+`", i.dispatchEvent(new Event("input"))))(document.activeElement)`)
		b.Eventually(`[...document.querySelectorAll(".VPLocalSearchBox .result")].some(r => r.pathname.startsWith("` + page + `"))`)
	}
	if os.Getenv("HOLDFAST_SCREENSHOTS") != "" {
		b.Screenshots("zh-search")
	}
}

// TestSearchIndexOfEachLanguage checks that each page is in the index of its language, and in no other one.
func TestSearchIndexOfEachLanguage(t *testing.T) {
	t.Parallel()
	all := pages(t)
	index := map[string]string{}
	for _, locale := range []string{"root", "zh"} {
		files, err := filepath.Glob(built + "/assets/chunks/@localSearchIndex" + locale + ".*.js")
		if err != nil || len(files) != 1 {
			t.Fatal(locale, files, err)
		}
		text, err := os.ReadFile(files[0])
		if err != nil {
			t.Fatal(err)
		}
		index[locale] = string(text)
	}
	for page := range all {
		if page == "/404.html" {
			continue
		}
		mine, other := "root", "zh"
		if strings.HasPrefix(page, "/zh/") {
			mine, other = other, mine
		}
		entry := `"` + strings.TrimSuffix(page, "index.html")
		if !strings.Contains(index[mine], entry) {
			t.Errorf("%s is not in the index of %s", page, mine)
		}
		if page != "/index.html" && strings.Contains(index[other], entry) {
			t.Errorf("%s is in the index of %s", page, other)
		}
	}
}
