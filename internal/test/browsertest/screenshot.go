package browsertest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
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
			b.Do(chromedp.EmulateViewport(width, height), prefers(scheme))
			b.Fits(width)
			picture, err := chromedp.Run(b.ctx, chromedp.FullScreenshot(100))
			if err != nil {
				b.Fatal(err)
			}
			b.save(fmt.Sprintf("%s-%d-%s.png", name, width, scheme), picture)
		}
	}
}

// Screenshot takes a picture of one element, light, in a window of this width, as NAME.png in the same
// folder.
func (b *Browser) Screenshot(name, selector string, width int64) {
	b.Helper()
	b.Do(chromedp.EmulateViewport(width, height), prefers("light"))
	picture, err := chromedp.Run(b.ctx, chromedp.Screenshot(chromedp.CSS(selector)))
	if err != nil {
		b.Fatal(err)
	}
	b.save(name+".png", picture)
}

func (b *Browser) save(name string, picture []byte) {
	b.Helper()
	dir := os.Getenv(folderVariable)
	if dir == "" {
		dir = b.TempDir()
	}
	if err := os.MkdirAll(dir, 0o750); err != nil { //nolint:gosec // whoever runs the tests names it
		b.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, name), picture, 0o600); err != nil { //nolint:gosec // the same
		b.Fatal(err)
	}
	sayDir.Do(func() { b.Log("screenshots are in " + dir) })
}

var sayDir sync.Once

// Fits fails if the page needs horizontal scrolling in a window of this width.
func (b *Browser) Fits(width int64) {
	b.Helper()
	b.Do(chromedp.EmulateViewport(width, height))
	if w := Evaluate[[]int](b, `[document.documentElement.scrollWidth, document.documentElement.clientWidth]`); w[0] > w[1] {
		wide := Evaluate[string](b, `[...document.querySelectorAll("body *")].filter(e => e.getBoundingClientRect().right > innerWidth + 1).map(e => e.tagName + "." + e.className).slice(0, 5).join(", ")`)
		b.Errorf("the page is %d pixels wide in a window of %d: %s", w[0], w[1], wide)
	}
}

// prefers sets prefers-color-scheme and disables animations that would blur a picture.
func prefers(scheme string) chromedp.Action[chromedp.Void] {
	return chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{
			{Name: "prefers-color-scheme", Value: scheme}, {Name: "prefers-reduced-motion", Value: "reduce"},
		}})
		return err
	})
}
