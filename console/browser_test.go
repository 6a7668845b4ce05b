package console_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/console"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/idempotency/operators"
	"github.com/holdfast-go/holdfast/idempotency/staged"
	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/test/browsertest"
	"github.com/holdfast-go/holdfast/internal/test/conformance"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
	"github.com/holdfast-go/holdfast/reaper"
	"github.com/holdfast-go/holdfast/sqllock/fairlock"
)

func browse(t *testing.T, width int64) (*browsertest.Browser, *site) {
	t.Helper()
	b := browsertest.Open(t, width)
	return b, serve(conformance.New(t, conformance.SQL(), dbtest.SQLite), console.Options{Write: true})
}

// The script runs after the page is there: it shows this button once it listens to keys.
const scripted = `document.querySelector("#pause:not([hidden])")`

// A lease appears and disappears while the page is open, and typed text stays.
func TestBrowserLiveLeases(t *testing.T) {
	t.Parallel()
	b, s := browse(t, 1440)
	b.Go(s.URL, "#token")
	b.Focused("#token")
	b.Type(token + browsertest.Enter)
	b.Eventually(`document.querySelector("#alive")`)
	b.Eventually(scripted)
	b.Type("2") // the second page
	b.Eventually(`document.querySelector("#leases .empty")`)
	b.Eventually(scripted)
	b.Type("/")
	b.Focused("#begin")

	browsertest.Evaluate[bool](b, `window.stayed = true`)
	b.Click("#begin")
	b.Type("ord")
	lease, err := s.locker("worker-3").Acquire(s.Ctx, "order/42")
	if err != nil {
		t.Fatal(err)
	}
	b.Eventually(`document.querySelector("#leases tbody .key")?.innerText === "order/42"`)
	b.Eventually(`document.querySelector("#leases tbody").innerText.includes("worker-3")`)
	b.Focused("#begin")
	if typed := browsertest.Evaluate[string](b, `document.querySelector("#begin").value`); typed != "ord" {
		t.Errorf("typed was %q", typed)
	}
	// The focus stays in a row that is rendered again.
	browsertest.Evaluate[bool](b, `(document.querySelector("#leases .act button").focus(), true)`)
	before := browsertest.Evaluate[string](b, `document.querySelector("#fresh").innerText`)
	b.Eventually(`document.querySelector("#fresh").innerText !== "` + before + `"`)
	b.Focused("#leases .act button")

	if err := lease.Release(s.Ctx); err != nil {
		t.Fatal(err)
	}
	b.Eventually(`document.querySelector("#leases .empty")`)
	b.Eventually(`window.stayed === true`)                                                             // the page was never reloaded
	b.Eventually(`performance.getEntriesByType("resource").every((r) => r.initiatorType !== "fetch")`) // it never had to ask

	b.Click("#pause")
	b.Eventually(`document.querySelector("#pause").getAttribute("aria-pressed") === "true"`)
}

// A link printed by the command signs in and does not leave the token in the URL.
func TestBrowserLinkWithToken(t *testing.T) {
	t.Parallel()
	b, s := browse(t, 1440)
	b.Go(s.URL+"#token="+strings.ReplaceAll(token, " ", "%20"), "#alive")
	b.Eventually(`!location.href.includes("token")`)
}

// A browser keeps the cookies with prefixes, and sends them: it refuses one whose prefix it does not deserve.
// The page of sessions ends the other browser.
func TestBrowserSessions(t *testing.T) {
	t.Parallel()
	b := browsertest.Open(t, 1440)
	b.TrustAll()
	e := conformance.New(t, conformance.SQL(), dbtest.SQLite)
	for _, at := range []string{"/", "/ops/console/"} {
		s := serveAt(e, at, true, console.Options{})
		b.Go(s.URL, "#token")
		b.Type(token + browsertest.Enter)
		b.Eventually(`document.querySelector("#alive")`)
		other := s.another("")
		b.Click("a[href=sessions]")
		b.Visible("#sessions tbody tr + tr")
		b.Screenshots("console-sessions")
		b.Click("#sessions form[action=end-session] button")
		b.Visible(".said.good")
		b.Eventually(`document.querySelectorAll("#sessions tbody tr").length === 1`)
		if other.signedInStill() {
			t.Error("the other has not ended")
		}
	}
}

// Search, open, resolve and release, using only the keyboard.
func TestBrowserResolveByKeyboard(t *testing.T) {
	t.Parallel()
	b, s := browse(t, 1440)
	s.park(refund("order-41/1"), "the provider does not answer")
	runner := s.park(refund("order-42/1"), "the provider does not answer")
	b.Go(s.URL+"operations", "#token")
	b.Type(token + browsertest.Enter)
	b.Eventually(`document.querySelector("#alive")`)

	b.Type(browsertest.Tab)
	b.Focused(".skip")
	b.Type(browsertest.Tab + browsertest.Tab + browsertest.Tab)
	b.Focused("nav a[href=operations]")
	b.Type(browsertest.Enter)
	b.Eventually(`document.querySelectorAll("#operations tbody tr").length === 2`)
	for range 20 {
		if browsertest.Evaluate[bool](b, `document.activeElement.id === "key"`) {
			break
		}
		b.Type(browsertest.Tab)
	}
	b.Focused("#key")
	b.Type("42" + browsertest.Enter)
	b.Eventually(`location.search.includes("key=42") && document.querySelectorAll("#operations tbody tr").length === 1`)
	for range 20 {
		if browsertest.Evaluate[bool](b, `document.activeElement.matches("#operations .key a")`) {
			break
		}
		b.Type(browsertest.Tab)
	}
	b.Type(browsertest.Enter)
	b.Eventually(`document.querySelector("#steps")?.innerText.includes("pay")`)
	for range 20 {
		if browsertest.Evaluate[bool](b, `document.activeElement.matches("input[name=as]")`) {
			break
		}
		b.Type(browsertest.Tab)
	}
	b.Type(" ") // the call was made
	b.Eventually(`document.querySelector("input[name=as]:checked").value === "step-done" && document.querySelector("#code").checkVisibility() === false`)
	b.Type(browsertest.Tab)
	b.Focused("#result")
	b.Type("1250" + browsertest.Tab)
	b.Type(browsertest.Enter)
	b.Eventually(`document.querySelector(".does")?.innerText.includes("counts as done")`)
	for range 20 {
		if browsertest.Evaluate[bool](b, `document.activeElement.id === "by"`) {
			break
		}
		b.Type(browsertest.Tab)
	}
	b.Type("ada" + browsertest.Tab + "asked the provider, ticket 7" + browsertest.Tab + browsertest.Enter)
	b.Eventually(`document.querySelector(".said.good")?.innerText.includes("waiting")`)
	b.Eventually(`document.querySelector("#interventions").innerText.includes("ticket 7")`)
	if r, err := runner.Do(s.Ctx, refund("order-42/1"), 1250); err != nil || r.Value != 1250 {
		t.Errorf("it goes on with %v, %v", r, err)
	}
}

// Screenshots of every page.
func TestBrowserScreenshots(t *testing.T) {
	t.Parallel()
	b, s := browse(t, 1440)
	b.Go(s.URL, "#token")
	b.Screenshots("console-login")
	b.Type(token + browsertest.Enter)
	b.Eventually(`document.querySelector("#alive")`)
	b.Screenshots("console-overview-empty")
	fill(s)
	b.Go(s.URL, "#unknown .brief")
	b.Screenshots("console-overview")
	b.Go(s.URL+"locks", "#leases tbody tr")
	b.Screenshots("console-locks")
	b.Click("#leases .act button")
	b.Visible(".does")
	b.Screenshots("console-release")
	b.Go(s.URL+"operations", "#operations tbody tr")
	b.Screenshots("console-operations")
	b.Click("#operations .key a")
	b.Visible(".ways")
	b.Click("input[value=step-rejected]")
	b.Screenshots("console-operation")
	b.Click("input[value=step-done]")
	b.Set("#result", `{"transfer": "tr_81"}`)
	b.Click(".fields button")
	b.Visible(".does")
	b.Screenshots("console-resolve")
	b.Set("#by", "ada")
	b.Set("#reason", "the provider has it under this key, ticket 81")
	b.Click(".danger")
	b.Visible(".said.good")
	b.Screenshots("console-resolved")
	b.Go(s.URL+"operations?key=10043", "#operations tbody tr")
	b.Click("#operations .key a")
	b.Visible("#interventions table")
	b.Screenshots("console-story")
	b.Go(s.URL+"proposals", "tbody tr")
	b.Screenshots("console-proposals")
	b.Click(".key a")
	b.Visible(".danger")
	b.Screenshots("console-proposal")
	b.Go(s.URL+"reaper", "tbody tr")
	b.Screenshots("console-reaper")
	b.Go(s.URL+"operation?id=00", ".said.bad")
	b.Screenshots("console-error")
}

// fill creates the rows of a busy console.
func fill(s *site) {
	s.Helper()
	must := func(err error) {
		s.Helper()
		if err != nil {
			s.Fatal(err)
		}
	}
	one, two := s.locker("payments-7f9c4:1"), s.locker("settlement worker, rack 12")
	for _, key := range []string{"order/10041", "order/10042", "settlement/2026-11-21", "caf\u00e9 \xff\x00", "archive/" + strings.Repeat("long-", 180)} {
		_, err := one.Acquire(s.Ctx, key)
		must(err)
	}
	_, err := two.ForceRelease(s.Ctx, "order/10042", 0, holdfast.Actor{By: "test", Reason: "the worker hangs, ticket 12"})
	must(err)
	_, err = two.Acquire(s.Ctx, "order/10042")
	must(err)
	_, err = fairlock.New(one).AcquireShared(s.Ctx, "report/daily")
	must(err)
	sem, err := fairlock.New(one).Semaphore("provider calls", 3)
	must(err)
	_, err = sem.Acquire(s.Ctx, 2)
	must(err)
	go func() { _, _ = fairlock.New(two).Acquire(s.Ctx, "report/daily") }() // waits until the locker is closed
	s.Eventually("somebody waits", func() bool {
		line, err := fairlock.New(one).Queue(s.Ctx, "report/daily")
		return err == nil && len(line.Tickets) == 2
	})
	for _, key := range []string{"order-10041/1", "order-10042/1", "order-10043/2"} {
		parkAs[transfer](s, refund(key), "POST /transfers: no answer within 30 s")
	}
	_, err = operators.New(s.Store(idempotency.Options{})).ProposeRelease(s.Ctx,
		operators.Lock{Kind: "lease", Key: "settlement/2026-11-21", Token: 1}, holdfast.Actor{By: "olga", Reason: "its machine is gone, ticket 14"})
	must(err)
	ops, err := idempotency.New(s.Ctx, access.WithOwners(s.DB, core.AnyOwner))
	must(err)
	op := refund("order-10043/2")
	_, err = operators.New(ops).Propose(s.Ctx, staged.Ref{Owner: op.Owner, Name: op.Name, Key: op.Key},
		operators.Resolution{Step: staged.StepNotDone}, holdfast.Actor{By: "olga", Reason: "the provider does not know the key, ticket 82"})
	must(err)
	store := s.Store(idempotency.Options{ResultTTL: 50 * time.Millisecond, KeyTTL: 50 * time.Millisecond})
	for _, key := range []string{"1", "2", "3"} {
		_, err := s.Do(store, conformance.Op(key))
		must(err)
	}
	time.Sleep(100 * time.Millisecond) // twice their life
	r, err := reaper.New(s.Ctx, s.DB)
	must(err)
	_, err = r.Sweep(s.Ctx)
	must(err)
}

// transfer is the result of the step in the operations of the screenshots.
type transfer struct {
	ID string `json:"transfer"`
}

// TestBrowserLabels checks on a narrow screen that no label of a cell runs over its value.
func TestBrowserLabels(t *testing.T) {
	t.Parallel()
	templates, err := filepath.Glob("templates/*.html")
	if err != nil {
		t.Fatal(err)
	}
	b, s := browse(t, 360)
	b.Go(s.URL, "#token")
	b.Type(token + browsertest.Enter)
	b.Eventually(`document.querySelector("#alive")`)
	fill(s)
	b.Go(s.URL+"locks", "#leases tbody tr")
	seen := 0
	for _, file := range templates {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`data-label="([^"]+)"(?: class="([^"]+)")?`).FindAllStringSubmatch(string(text), -1) {
			seen++
			if over := browsertest.Evaluate[int](b, fmt.Sprintf(`(() => {
				const cell = document.querySelector("#leases td[data-label]"), label = document.createElement("div");
				cell.dataset.label = %q; cell.className = %q;
				const style = getComputedStyle(cell, "::before");
				label.textContent = cell.dataset.label;
				Object.assign(label.style, {font: style.font, whiteSpace: style.whiteSpace, width: getComputedStyle(cell).gridTemplateColumns.split(" ")[0]});
				document.body.append(label);
				const over = label.scrollWidth - label.clientWidth;
				label.remove();
				return over;
			})()`, m[1], m[2])); over > 0 {
				t.Errorf("%s: the label %q runs %d pixels over its value", file, m[1], over)
			}
		}
	}
	if seen < 20 {
		t.Errorf("only %d labels", seen)
	}
}
