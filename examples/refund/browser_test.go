package main

import (
	"context"
	"fmt"
	"net/http/httptest"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/holdfast-go/holdfast/internal/dbtest"
)

// browse opens the page, on a service with one order, in a browser.
func browse(t *testing.T, width int64) (ctx context.Context, s *service) {
	t.Helper()
	path := findBrowser(t)
	s, pool := openTest(t, dbtest.DSN(t, dbtest.SQLite))
	testOrder(t, pool, "A-1", "100.00")
	server := httptest.NewServer(s.handler())
	t.Cleanup(server.Close)

	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(path), chromedp.NoSandbox, chromedp.DisableGPU, chromedp.UserDataDir(t.TempDir()))
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(stop)
	ctx, stop = chromedp.NewExecAllocator(ctx, options...)
	t.Cleanup(stop)
	ctx, _ = chromedp.NewContext(ctx)
	t.Cleanup(func() {
		if err := chromedp.Cancel(ctx); err != nil { // waits for the browser's end
			t.Errorf("close the browser: %v", err)
		}
	})
	do(ctx, t, chromedp.EmulateViewport(width, 800), chromedp.Navigate(server.URL), visible("body.ready .order"))
	return ctx, s
}

func findBrowser(t *testing.T) string {
	t.Helper()
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "headless-shell"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	if os.Getenv("HOLDFAST_TEST_REQUIRE_BROWSER") != "" {
		t.Fatal("HOLDFAST_TEST_REQUIRE_BROWSER is set and no Chromium or Chrome was found")
	}
	t.Skip("no Chromium or Chrome was found: the page was not tested in a browser")
	return ""
}

func do(ctx context.Context, t *testing.T, steps ...chromedp.Action[chromedp.Void]) {
	t.Helper()
	if err := chromedp.Do(ctx, steps...); err != nil {
		t.Fatal(err)
	}
}

func click(selector string) chromedp.Action[chromedp.Void] {
	return chromedp.Click(chromedp.CSS(selector))
}

func visible(selector string) chromedp.Action[chromedp.Void] {
	return chromedp.WaitVisible(chromedp.CSS(selector))
}

func evaluate[T any](ctx context.Context, t *testing.T, expression string) T {
	t.Helper()
	value, err := chromedp.Run(ctx, chromedp.Evaluate[T](expression))
	if err != nil {
		t.Fatalf("%s: %v", expression, err)
	}
	return value
}

// eventually waits until a JavaScript expression is true. (chromedp.Poll puts
// a script into the page, which the page's policy forbids.)
func eventually(ctx context.Context, t *testing.T, expression string) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if evaluate[bool](ctx, t, expression) {
			return
		}
	}
	t.Fatalf("not true: %s; the page reads:\n%s", expression, evaluate[string](ctx, t, `document.body.innerText`))
}

func TestPageRefundsOnceWhenPressedTwice(t *testing.T) {
	t.Parallel()
	ctx, s := browse(t, 1440)
	// Both presses before any answer.
	evaluate[bool](ctx, t, `(b => { b.click(); b.click(); return true; })(document.querySelector(".order .refund"))`)
	eventually(ctx, t, `document.querySelectorAll("#events .badge.executed").length === 1`)
	eventually(ctx, t, `document.querySelectorAll("#events .badge.replayed").length === 1`)
	eventually(ctx, t, `document.querySelector("#paid-out").textContent === "12.50 EUR"`)
	eventually(ctx, t, `document.querySelector("#refund-count").textContent === "1"`)
	eventually(ctx, t, `document.querySelectorAll("#ledger tr").length === 2`)
	eventually(ctx, t, `document.querySelector("#outcome").textContent.includes("refund 1")`)
	eventually(ctx, t, `document.querySelector("#banner").hidden`)
	books, err := readBooks(t.Context(), s.pool, "shop")
	if err != nil || len(books.refunds) != 1 {
		t.Errorf("%d refunds in the table, %v", len(books.refunds), err)
	}
}

func TestPageShowsDuplicatesWithoutProtection(t *testing.T) {
	t.Parallel()
	ctx, s := browse(t, 1440)
	do(ctx, t, click("input[value=none]"))
	for number := '1'; number <= '7'; number++ { // the race is not lost every time
		evaluate[bool](ctx, t, `document.querySelector(".last").hidden = true`)
		do(ctx, t, chromedp.SetValue(chromedp.CSS(".refund-no"), string(number)), click(".order .double"), visible(".order .last"))
		books, err := readBooks(t.Context(), s.pool, "shop")
		if err != nil {
			t.Fatal(err)
		}
		if audit(books).duplicates > 0 {
			eventually(ctx, t, `!document.querySelector("#banner").hidden`)
			eventually(ctx, t, `document.querySelector("#banner").textContent.includes("A-1")`)
			eventually(ctx, t, `document.querySelector(".order.wrong .twice").hidden === false`)
			return
		}
	}
	t.Error("no duplicate came back")
}

func TestPageSwitchesBetweenProtections(t *testing.T) {
	t.Parallel()
	ctx, s := browse(t, 1440)
	refunds := 0
	for i, p := range protections {
		if !p.safe {
			continue
		}
		refunds++
		do(ctx, t, click("input[value="+p.name+"]"), chromedp.SetValue(chromedp.CSS(".refund-no"), fmt.Sprint(i)), click(".order .double"))
		how := `[...document.querySelectorAll("#events li")].filter(e => e.querySelector(".how").textContent.startsWith("` + p.name + ` ·")`
		eventually(ctx, t, how+` && e.querySelector(".badge.executed")).length === 1`)
		eventually(ctx, t, how+` && e.querySelector(".badge.replayed")).length === 1`)
	}
	books, err := readBooks(t.Context(), s.pool, "shop")
	if f := audit(books); err != nil || len(f.problems) > 0 || f.refunds != refunds {
		t.Errorf("%d refunds of %d, %q, %v", f.refunds, refunds, f.problems, err)
	}
}

func TestPageFitsANarrowScreen(t *testing.T) {
	t.Parallel()
	ctx, _ := browse(t, 360)
	do(ctx, t, click("input[value=none]"), click(".order .double"), visible("#events li"))
	if width := evaluate[int](ctx, t, `document.documentElement.scrollWidth`); width > 360 {
		t.Errorf("the page is %d pixels wide", width)
	}
}

// From the top of the page with the keyboard only: skip link, protection,
// amount, number, refund.
func TestPageWithTheKeyboardOnly(t *testing.T) {
	t.Parallel()
	ctx, _ := browse(t, 1440)
	focused := func(selector string) {
		t.Helper()
		eventually(ctx, t, `document.activeElement.matches('`+selector+`')`)
	}
	do(ctx, t, chromedp.KeyEvent(kb.Tab))
	focused(".skip")
	do(ctx, t, chromedp.KeyEvent(kb.Tab))
	focused("input[name=protect][value=idempotency]")
	do(ctx, t, chromedp.KeyEvent(kb.ArrowDown))
	focused("input[name=protect][value=business-row]:checked")
	do(ctx, t, chromedp.KeyEvent(kb.Tab))
	focused("#new-order")
	for _, next := range []string{".order .amount", ".order .refund-no", ".order .refund"} {
		do(ctx, t, chromedp.KeyEvent(kb.Tab))
		focused(next)
	}
	do(ctx, t, chromedp.KeyEvent(kb.Enter+kb.Enter))
	eventually(ctx, t, `document.querySelectorAll("#events .badge.executed").length === 1`)
	eventually(ctx, t, `document.querySelectorAll("#events .badge.replayed").length === 1`)
	focused(".order .refund") // the refresh has not taken the focus away
	eventually(ctx, t, `document.querySelector("#events .how").textContent.startsWith("business-row")`)
}
