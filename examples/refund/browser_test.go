package main

import (
	"fmt"
	"net/http/httptest"
	"testing"

	"github.com/holdfast-go/holdfast/internal/test/browsertest"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
)

// browse opens the page in a browser, on a service with one order.
func browse(t *testing.T, width int64) (b *browsertest.Browser, s *service) {
	t.Helper()
	b = browsertest.Open(t, width)
	s, pool := openTest(t, dbtest.DSN(t, dbtest.SQLite))
	testOrder(t, pool, "A-1", "100.00")
	server := httptest.NewServer(s.handler())
	t.Cleanup(server.Close)
	b.Go(server.URL, "body.ready .order")
	return b, s
}

func TestPageRefundsOnceWhenPressedTwice(t *testing.T) {
	t.Parallel()
	b, s := browse(t, 1440)
	// Both clicks happen before any answer.
	browsertest.Evaluate[bool](b, `(b => { b.click(); b.click(); return true; })(document.querySelector(".order .refund"))`)
	b.Eventually(`document.querySelectorAll("#events .badge.executed").length === 1`)
	b.Eventually(`document.querySelectorAll("#events .badge.replayed").length === 1`)
	b.Eventually(`document.querySelector("#paid-out").textContent === "12.50 EUR"`)
	b.Eventually(`document.querySelector("#refund-count").textContent === "1"`)
	b.Eventually(`document.querySelectorAll("#ledger tr").length === 2`)
	b.Eventually(`document.querySelector("#outcome").textContent.includes("refund 1")`)
	b.Eventually(`document.querySelector("#banner").hidden`)
	books, err := readBooks(t.Context(), s.pool, "shop")
	if err != nil || len(books.refunds) != 1 {
		t.Errorf("%d refunds in the table, %v", len(books.refunds), err)
	}
}

func TestPageShowsDuplicatesWithoutProtection(t *testing.T) {
	t.Parallel()
	dbtest.OnlyNightly(t, "two clicks have to race")
	b, s := browse(t, 1440)
	b.Click("input[value=none]")
	for number := '1'; number <= '7'; number++ { // some attempts do not produce the race
		browsertest.Evaluate[bool](b, `document.querySelector(".last").hidden = true`)
		b.Set(".refund-no", string(number))
		b.Click(".order .double")
		b.Visible(".order .last")
		books, err := readBooks(t.Context(), s.pool, "shop")
		if err != nil {
			t.Fatal(err)
		}
		if audit(books).duplicates > 0 {
			b.Eventually(`!document.querySelector("#banner").hidden`)
			b.Eventually(`document.querySelector("#banner").textContent.includes("A-1")`)
			b.Eventually(`document.querySelector(".order.wrong .twice").hidden === false`)
			return
		}
	}
	t.Error("no duplicate came back")
}

func TestPageSwitchesBetweenProtections(t *testing.T) {
	t.Parallel()
	b, s := browse(t, 1440)
	refunds := 0
	for i, p := range protections {
		if !p.safe {
			continue
		}
		refunds++
		b.Click("input[value=" + p.name + "]")
		b.Set(".refund-no", fmt.Sprint(i))
		b.Click(".order .double")
		how := `[...document.querySelectorAll("#events li")].filter(e => e.querySelector(".how").textContent.startsWith("` + p.name + ` ·")`
		b.Eventually(how + ` && e.querySelector(".badge.executed")).length === 1`)
		b.Eventually(how + ` && e.querySelector(".badge.replayed")).length === 1`)
	}
	books, err := readBooks(t.Context(), s.pool, "shop")
	if f := audit(books); err != nil || len(f.problems) > 0 || f.refunds != refunds {
		t.Errorf("%d refunds of %d, %q, %v", f.refunds, refunds, f.problems, err)
	}
}

func TestPageFitsANarrowScreen(t *testing.T) {
	t.Parallel()
	b, _ := browse(t, 360)
	b.Click("input[value=none]")
	b.Click(".order .double")
	b.Visible("#events li")
	b.Fits(360)
}

// Reach everything from the top of the page with the keyboard only: skip link, protection,
// amount, number, refund.
func TestPageWithTheKeyboardOnly(t *testing.T) {
	t.Parallel()
	b, _ := browse(t, 1440)
	b.Type(browsertest.Tab)
	b.Focused(".skip")
	b.Type(browsertest.Tab)
	b.Focused("input[name=protect][value=idempotency]")
	b.Type(browsertest.ArrowDown)
	b.Focused("input[name=protect][value=business-row]:checked")
	b.Type(browsertest.Tab)
	b.Focused("#new-order")
	for _, next := range []string{".order .amount", ".order .refund-no", ".order .refund"} {
		b.Type(browsertest.Tab)
		b.Focused(next)
	}
	b.Type(browsertest.Enter + browsertest.Enter)
	b.Eventually(`document.querySelectorAll("#events .badge.executed").length === 1`)
	b.Eventually(`document.querySelectorAll("#events .badge.replayed").length === 1`)
	b.Focused(".order .refund") // the refresh has not moved the focus
	b.Eventually(`document.querySelector("#events .how").textContent.startsWith("business-row")`)
}

// TestPageScreenshots is of the page with refunds and without.
func TestPageScreenshots(t *testing.T) {
	t.Parallel()
	b, _ := browse(t, 1440)
	b.Click(".order .double")
	b.Eventually(`document.querySelectorAll("#events .badge.replayed").length === 1`)
	b.Screenshots("refund")
	b.Screenshot("refund-orders", ".columns", 960)
}

// TestPageScreenshotsTwice is of a double refund.
func TestPageScreenshotsTwice(t *testing.T) {
	t.Parallel()
	if !browsertest.TakesScreenshots() {
		dbtest.OnlyNightly(t, "two clicks have to race")
	}
	b, s := browse(t, 1440)
	b.Click("input[value=none]")
	for number := '2'; number <= '8'; number++ { // some attempts do not produce the race
		browsertest.Evaluate[bool](b, `document.querySelector(".last").hidden = true`)
		b.Set(".refund-no", string(number))
		b.Click(".order .double")
		b.Visible(".order .last")
		books, err := readBooks(t.Context(), s.pool, "shop")
		if err != nil {
			t.Fatal(err)
		}
		if audit(books).duplicates > 0 {
			break
		}
	}
	b.Eventually(`!document.querySelector("#banner").hidden`)
	b.Screenshots("refund-twice")
}
