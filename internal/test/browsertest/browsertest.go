// Package browsertest runs tests of pages in Chromium or Chrome.
package browsertest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"
	"unicode"

	"github.com/holdfast-go/holdfast/internal/test/dbtest"
)

// timeout bounds all that one browser does. Only one that hangs reaches it.
const timeout = 4 * dbtest.Hang

// Browser is one browser with one page, closed when the test ends.
type Browser struct {
	testing.TB
	page *devtools
}

// Open starts a browser with a page of the given width in pixels. If there is no browser, the
// test is skipped; with HOLDFAST_TEST_REQUIRE_BROWSER set it fails.
func Open(tb testing.TB, width int64) *Browser {
	tb.Helper()
	dbtest.NotUnderRace(tb, "the browser is no Go")
	program := find(tb)
	ctx, stop := context.WithTimeout(context.Background(), timeout)
	tb.Cleanup(stop)
	page, err := launch(ctx, program, tb.TempDir())
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := page.Close(); err != nil {
			tb.Errorf("close the browser: %v", err)
		}
	})
	b := &Browser{tb, page}
	b.resize(width)
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

// call sends a command of the DevTools protocol, which must succeed.
func (b *Browser) call(method string, params map[string]any, result any) {
	b.Helper()
	if err := b.page.call(method, params, result); err != nil {
		b.Fatal(err)
	}
}

func (b *Browser) resize(width int64) {
	b.Helper()
	b.call("Emulation.setDeviceMetricsOverride", map[string]any{"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false}, nil)
}

// TrustAll makes the browser take certificates of test servers.
func (b *Browser) TrustAll() {
	b.Helper()
	b.call("Security.setIgnoreCertificateErrors", map[string]any{"ignore": true}, nil)
}

// Go opens a URL and waits until it is loaded and an element is visible.
func (b *Browser) Go(url, visible string) {
	b.Helper()
	var failed struct{ ErrorText string }
	if b.call("Page.navigate", map[string]any{"url": url}, &failed); failed.ErrorText != "" {
		b.Fatalf("%s: %s", url, failed.ErrorText)
	}
	b.Eventually(`document.readyState === "complete"`)
	b.Visible(visible)
}

// Keys without a character, and their forms in what Type takes.
const (
	Enter     = "\r"
	Tab       = "\t"
	ArrowDown = "\u2193"
)

// Type presses keys one after the other in the focused element.
func (b *Browser) Type(keys string) {
	b.Helper()
	for _, r := range keys {
		key := map[string]any{"key": string(r), "text": string(r), "windowsVirtualKeyCode": unicode.ToUpper(r)}
		switch string(r) {
		case Enter:
			key["key"], key["code"] = "Enter", "Enter"
		case Tab:
			key["key"], key["code"], key["text"] = "Tab", "Tab", ""
		case ArrowDown:
			key["key"], key["code"], key["text"], key["windowsVirtualKeyCode"] = "ArrowDown", "ArrowDown", "", 40
		}
		for _, key["type"] = range []string{"keyDown", "keyUp"} {
			b.call("Input.dispatchKeyEvent", key, nil)
			delete(key, "text")
		}
	}
}

// Click waits until an element is visible and clicks on its middle.
func (b *Browser) Click(selector string) {
	b.Helper()
	b.Visible(selector)
	at := Evaluate[[]float64](b, `(e => {
		e.scrollIntoViewIfNeeded();
		const r = e.getBoundingClientRect();
		return [r.x + r.width / 2, r.y + r.height / 2];
	})(document.querySelector(`+quote(selector)+`))`)
	for _, kind := range []string{"mouseMoved", "mousePressed", "mouseReleased"} {
		b.call("Input.dispatchMouseEvent", map[string]any{"type": kind, "x": at[0], "y": at[1], "button": "left", "clickCount": 1}, nil)
	}
}

// Visible waits until an element is visible.
func (b *Browser) Visible(selector string) {
	b.Helper()
	b.Eventually(`(e => e?.checkVisibility({visibilityProperty: true}) && e.getClientRects().length > 0)(document.querySelector(` + quote(selector) + `))`)
}

// Set gives an input a value, once it is visible.
func (b *Browser) Set(selector, value string) {
	b.Helper()
	b.Visible(selector)
	Evaluate[string](b, `document.querySelector(`+quote(selector)+`).value = `+quote(value))
}

// quote returns the text as a string of JavaScript.
func quote(text string) string {
	quoted, _ := json.Marshal(text) //nolint:errchkjson // a string
	return string(quoted)
}

// Evaluate returns the value of a JavaScript expression.
func Evaluate[T any](b *Browser, expression string) T {
	b.Helper()
	value, err := evaluate[T](b, expression)
	if err != nil {
		b.Fatalf("%s: %v", expression, err)
	}
	return value
}

func evaluate[T any](b *Browser, expression string) (value T, err error) {
	var got struct {
		Result           struct{ Value json.RawMessage }
		ExceptionDetails *struct {
			Text      string
			Exception struct{ Description string }
		}
	}
	if err := b.page.call("Runtime.evaluate", map[string]any{"expression": expression, "returnByValue": true, "awaitPromise": true}, &got); err != nil {
		return value, err
	}
	if e := got.ExceptionDetails; e != nil {
		return value, fmt.Errorf("%s %s", e.Text, e.Exception.Description)
	}
	err = json.Unmarshal(got.Result.Value, &value)
	return value, err
}

// Eventually waits until a JavaScript expression is true. A page that navigates away during the wait
// is no error.
func (b *Browser) Eventually(expression string) {
	b.Helper()
	for deadline := time.Now().Add(dbtest.Hang); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		ok, err := evaluate[bool](b, "!!("+expression+")")
		if err == nil && ok {
			return
		}
		if errors.Is(err, errEnded) {
			b.Fatal(err)
		}
	}
	b.Fatalf("not true: %s; the page reads:\n%s", expression, Evaluate[string](b, `document.body.innerText`))
}

// Focused waits until an element has the keyboard focus.
func (b *Browser) Focused(selector string) {
	b.Helper()
	b.Eventually("document.activeElement.matches(`" + selector + "`)")
}
