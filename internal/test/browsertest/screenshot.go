package browsertest

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
)

const (
	height         = 800
	folderVariable = "HOLDFAST_SCREENSHOTS"
)

// TakesScreenshots reports whether pictures are wanted.
func TakesScreenshots() bool { return os.Getenv(folderVariable) != "" }

// Screenshots takes pictures of the whole page, narrow and wide, dark and light, as
// NAME-360-dark.png and so on. It writes them into the folder HOLDFAST_SCREENSHOTS (default: a
// temporary folder). A page that is wider than its window fails the test.
func (b *Browser) Screenshots(name string) {
	b.Helper()
	for _, width := range []int64{360, 1440} {
		for _, scheme := range []string{"light", "dark"} {
			b.prefers(scheme)
			b.Fits(width)
			b.save(fmt.Sprintf("%s-%d-%s.png", name, width, scheme), "html")
		}
	}
}

// Screenshot takes a picture of one element, light, in a window of this width, as NAME.png in the same
// folder.
func (b *Browser) Screenshot(name, selector string, width int64) {
	b.Helper()
	b.resize(width)
	b.prefers("light")
	b.Visible(selector)
	b.save(name+".png", selector)
}

// save takes a picture of an element, also where it is larger than the window.
func (b *Browser) save(name, selector string) {
	b.Helper()
	at := Evaluate[[]float64](b, `(e => {
		const r = e.getBoundingClientRect();
		return [r.x + scrollX, r.y + scrollY, e.scrollWidth, e.scrollHeight];
	})(document.querySelector(`+quote(selector)+`))`)
	var picture struct{ Data []byte }
	b.call("Page.captureScreenshot", map[string]any{
		"captureBeyondViewport": true, "clip": map[string]any{"x": at[0], "y": at[1], "width": at[2], "height": at[3], "scale": 1},
	}, &picture)
	dir := os.Getenv(folderVariable)
	if dir == "" {
		dir = b.TempDir()
	}
	if err := os.MkdirAll(dir, 0o750); err != nil { //nolint:gosec // the user of the tests names it
		b.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, name), picture.Data, 0o600); err != nil { //nolint:gosec // the same
		b.Fatal(err)
	}
	sayDir.Do(func() { b.Log("screenshots are in " + dir) })
}

var sayDir sync.Once

// Fits fails if the page needs horizontal scrolling in a window of this width.
func (b *Browser) Fits(width int64) {
	b.Helper()
	b.resize(width)
	if w := Evaluate[[]int](b, `[document.documentElement.scrollWidth, document.documentElement.clientWidth]`); w[0] > w[1] {
		wide := Evaluate[string](b, `[...document.querySelectorAll("body *")].filter(e => e.getBoundingClientRect().right > innerWidth + 1).map(e => e.tagName + "." + e.className).slice(0, 5).join(", ")`)
		b.Errorf("the page is %d pixels wide in a window of %d: %s", w[0], w[1], wide)
	}
}

// prefers sets prefers-color-scheme and disables animations that would blur a picture.
func (b *Browser) prefers(scheme string) {
	b.Helper()
	b.call("Emulation.setEmulatedMedia", map[string]any{"features": []map[string]string{
		{"name": "prefers-color-scheme", "value": scheme}, {"name": "prefers-reduced-motion", "value": "reduce"},
	}}, nil)
}
