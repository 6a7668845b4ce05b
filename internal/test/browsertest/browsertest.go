// Package browsertest runs tests of pages in Chromium or Chrome.
package browsertest

import (
	"context"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/security"
	"github.com/chromedp/chromedp"

	"github.com/holdfast-go/holdfast/internal/test/dbtest"
)

// timeout bounds the run time of a test's browser. A test that reaches it fails.
// timeout bounds all that one browser does. Only one that hangs reaches it.
const timeout = 4 * dbtest.Hang

// Browser is one browser with one page, closed when the test ends.
type Browser struct {
	testing.TB
	ctx context.Context
}

// Open starts a browser with a page of the given width in pixels. If there is no browser, the
// test is skipped; with HOLDFAST_TEST_REQUIRE_BROWSER set it fails.
func Open(tb testing.TB, width int64) *Browser {
	tb.Helper()
	dbtest.NotUnderRace(tb, "the browser is no Go")
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(find(tb)), chromedp.NoSandbox, chromedp.DisableGPU, chromedp.UserDataDir(tb.TempDir()))
	ctx, stop := context.WithTimeout(context.Background(), timeout)
	tb.Cleanup(stop)
	ctx, stop = chromedp.NewExecAllocator(ctx, options...)
	tb.Cleanup(stop)
	ctx, _ = chromedp.NewContext(ctx)
	tb.Cleanup(func() {
		if err := chromedp.Cancel(ctx); err != nil { // waits until the browser has ended
			tb.Errorf("close the browser: %v", err)
		}
	})
	b := &Browser{tb, ctx}
	b.Do(chromedp.EmulateViewport(width, height))
	return b
}

func find(tb testing.TB) string {
	tb.Helper()
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "headless-shell"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	if os.Getenv("HOLDFAST_TEST_REQUIRE_BROWSER") != "" {
		tb.Fatal("HOLDFAST_TEST_REQUIRE_BROWSER is set and no Chromium or Chrome was found")
	}
	tb.Skip("no Chromium or Chrome was found: the page was not tested in a browser")
	return ""
}

// Do runs steps, each of which must succeed.
func (b *Browser) Do(steps ...chromedp.Action[chromedp.Void]) {
	b.Helper()
	if err := chromedp.Do(b.ctx, steps...); err != nil {
		b.Fatal(err)
	}
}

// TrustAll makes the browser take certificates of test servers.
func (b *Browser) TrustAll() {
	b.Helper()
	b.Do(chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, security.SetIgnoreCertificateErrors, security.SetIgnoreCertificateErrorsParams{Ignore: true})
		return err
	}))
}

// Go opens a URL and waits until an element is visible.
func (b *Browser) Go(url, visible string) {
	b.Helper()
	b.Do(chromedp.Navigate(url), Visible(visible))
}

// Type presses keys one after the other in the focused element.
func (b *Browser) Type(keys string) {
	b.Helper()
	b.Do(chromedp.KeyEvent(keys))
}

// Click clicks on the element.
func Click(selector string) chromedp.Action[chromedp.Void] {
	return chromedp.Click(chromedp.CSS(selector))
}

// Visible waits until the element is visible.
func Visible(selector string) chromedp.Action[chromedp.Void] {
	return chromedp.WaitVisible(chromedp.CSS(selector))
}

// Set gives an input a value.
func Set(selector, value string) chromedp.Action[chromedp.Void] {
	return chromedp.SetValue(chromedp.CSS(selector), value)
}

// Evaluate returns the value of a JavaScript expression.
func Evaluate[T any](b *Browser, expression string) T {
	b.Helper()
	value, err := chromedp.Run(b.ctx, chromedp.Evaluate[T](expression))
	if err != nil {
		b.Fatalf("%s: %v", expression, err)
	}
	return value
}

// Eventually waits until a JavaScript expression is true. (chromedp.Poll injects a script into
// the page, which the page's policy may forbid.) A page that navigates away during the wait is
// no error.
func (b *Browser) Eventually(expression string) {
	b.Helper()
	for deadline := time.Now().Add(dbtest.Hang); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if ok, err := chromedp.Run(b.ctx, chromedp.Evaluate[bool]("!!("+expression+")")); err == nil && ok {
			return
		}
	}
	b.Fatalf("not true: %s; the page reads:\n%s", expression, Evaluate[string](b, `document.body.innerText`))
}

// Focused waits until an element has the keyboard focus.
func (b *Browser) Focused(selector string) {
	b.Helper()
	b.Eventually("document.activeElement.matches(`" + selector + "`)")
}
