package console_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"html"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/console"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/idempotency/staged"
	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/test/conformance"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
	"github.com/holdfast-go/holdfast/reaper"
	"github.com/holdfast-go/holdfast/sqllock"
	"github.com/holdfast-go/holdfast/sqllock/fairlock"
)

func TestLocks(t *testing.T) {
	onEveryEngine(t, func(e *conformance.Env[*sql.Tx]) {
		s := signedIn(e, console.Options{Write: true})
		l := s.locker("worker-3")
		lease, err := l.Acquire(s.Ctx, "order/42")
		if err != nil {
			s.Fatal(err)
		}
		if err := lease.SetValue(s.Ctx, []byte("not to be shown")); err != nil {
			s.Fatal(err)
		}
		if _, err := l.Acquire(s.Ctx, "\xff\x00"); err != nil {
			s.Fatal(err)
		}
		place, err := fairlock.New(l).Acquire(s.Ctx, "a line")
		if err != nil {
			s.Fatal(err)
		}
		sem, err := fairlock.New(l).Semaphore("permits", 3)
		if err != nil {
			s.Fatal(err)
		}
		permits, err := sem.Acquire(s.Ctx, 2)
		if err != nil {
			s.Fatal(err)
		}
		_, page := s.get("locks")
		s.want(page, "order/42", html.EscapeString(`"\xff\x00"`), "worker-3", fmt.Sprint(lease.Token()), "has alone", "has 2 of 3", "semaphore, 3 permits")
		const shared = "Several kinds of lock use this key"
		if strings.Contains(page, shared) {
			s.Error("each key has one kind of lock")
		}
		both, err := fairlock.New(l).Acquire(s.Ctx, "order/42")
		if err != nil {
			s.Fatal(err)
		}
		_, two := s.get("locks")
		s.want(two, shared+" and do not exclude each other: lease, fair lock.")
		if n := strings.Count(two, shared); n != 2 { // one at the lease and one at the fair lock
			s.Errorf("%d notes", n)
		}
		if err := both.Release(s.Ctx); err != nil {
			s.Fatal(err)
		}
		if strings.Contains(page, "not to be shown") {
			s.Error("a lease's value is shown")
		}
		if _, page := s.get("locks?begin=order"); strings.Contains(page, "xff") || !strings.Contains(page, "order/42") {
			s.Error(page)
		}
		if _, page := s.get("locks?begin=" + url.QueryEscape(`"\xff"`)); !strings.Contains(page, "xff") || strings.Contains(page, "order/42") {
			s.Error(page)
		}

		// Each kind is released with an actor and a reason.
		forms := s.forms(page, "confirm-release")
		if len(forms) != 4 {
			s.Fatalf("%d forms in\n%s", len(forms), page)
		}
		for _, form := range forms {
			status, confirm := s.post("confirm-release", form)
			if status != http.StatusOK {
				s.Fatal(status, confirm)
			}
			s.want(confirm, "What this does to the holder", "worker-3", "guarded transactions")
			form = s.forms(confirm, "release")[0]
			if status, page := s.post("release", form); status != http.StatusBadRequest || !strings.Contains(page, "Say who you are") {
				s.Error(status, page)
			}
			form.Set("by", "ada")
			if status, page := s.post("release", form); status != http.StatusBadRequest || !strings.Contains(page, "Say why") || !strings.Contains(page, `value="ada"`) {
				s.Error(status, page)
			}
			form.Set("reason", "ticket 7")
			if status, page := s.post("release", form); status != http.StatusOK || !strings.Contains(page, "Released.") {
				s.Error(status, page)
			}
			if status, page := s.post("release", form); status != http.StatusConflict || !strings.Contains(page, "Nothing was changed") {
				s.Error("twice:", status, page)
			}
		}
		for _, held := range []*sqllock.Lease{lease, place, permits} {
			if err := held.Release(s.Ctx); !errors.Is(err, sqllock.ErrLost) {
				s.Errorf("its holder is told %v", err)
			}
		}
		_, page = s.get("locks?all=1")
		s.want(page, "taken away by ada", "ticket 7", "free; last worker-3")
		if _, page := s.get("locks"); strings.Contains(page, "order/42") {
			s.Error("it is still held")
		}
	})
}

// A release does not take the lock from a holder that got it after the page was shown.
// TestBlockedSessions checks that the page shows which session waits for which.
func TestBlockedSessions(t *testing.T) {
	onEveryEngine(t, func(e *conformance.Env[*sql.Tx]) {
		s := signedIn(e, console.Options{})
		_, page := s.get("locks")
		if e.Engine == dbtest.SQLite { // it does not tell
			if strings.Contains(page, "blocked-title") {
				s.Error(page)
			}
			return
		}
		s.want(page, "blocked-title") // tests beside this one may wait for each other
		rows := e.RowLocker()
		lock := func(tx *sql.Tx) error { return rows.LockTx(e.Ctx, tx, "order/42", dbtest.Hang) }
		holder := e.BeginTx(sql.LevelDefault)
		e.Check(lock(holder))
		blocker := `data-label="Blocked by">` + e.SessionOf(holder) + "<"
		waits := make(chan error, 1)
		go func() {
			waits <- e.DB.InTx(e.Ctx, func(_ context.Context, tx *sql.Tx) error { return lock(tx) })
		}()
		e.Eventually("the page shows it", func() bool {
			_, page = s.get("locks")
			return strings.Contains(page, blocker)
		})
		e.EndTx(holder, true)
		e.Check(<-waits)
	})
}

func TestReleaseOfAnother(t *testing.T) {
	s := signedIn(onSQLite(t), console.Options{Write: true})
	l := s.locker("first")
	lease, err := l.Acquire(s.Ctx, "k")
	if err != nil {
		t.Fatal(err)
	}
	_, page := s.get("locks")
	form := s.forms(page, "confirm-release")[0]
	form.Set("by", "ada")
	form.Set("reason", "why")
	if err := lease.Release(s.Ctx); err != nil {
		t.Fatal(err)
	}
	second, err := l.Acquire(s.Ctx, "k")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"confirm-release", "release"} {
		if status, page := s.post(path, form); status != http.StatusConflict {
			t.Error(path, status, page)
		}
	}
	if err := second.Release(s.Ctx); err != nil {
		t.Error(err)
	}
	for _, bad := range []url.Values{{}, {"kind": {"lease"}, "key": {"zz"}, "token": {"1"}}, {"kind": {"row"}, "key": {"00"}, "token": {"1"}}} {
		if status, _ := s.post("release", bad); status != http.StatusBadRequest {
			t.Errorf("%v: %d", bad, status)
		}
	}
}

func TestOperations(t *testing.T) {
	onEveryEngine(t, func(e *conformance.Env[*sql.Tx]) {
		s := signedIn(e, console.Options{Write: true})
		runner := s.park(refund("order-41"), "no answer")
		s.park(refund("order-42"), "no answer")
		s.park(idempotency.Op{Name: "payout", Key: "p-1"}, "no answer") // from a program without owners
		store, err := idempotency.New(s.Ctx, access.WithOwners(s.DB, core.AnyOwner))
		if err != nil {
			s.Fatal(err)
		}
		if _, err := idempotency.Do(s.Ctx, store, idempotency.Op{Owner: "shop-7", Name: "refund", Key: "record-1", Request: "secret request"},
			func(context.Context, *sql.Tx) (string, error) { return "secret result", nil }); err != nil {
			s.Fatal(err)
		}
		if _, err := staged.HandleEvent(s.Ctx, store, staged.ProviderEvent{ID: "news-1", Ref: staged.Ref{Owner: "shop-7", Name: "refund", Key: "order-41"}, Body: []byte("secret body")}, nil); err != nil {
			s.Fatal(err)
		}
		found := func(query string, want ...string) {
			s.Helper()
			status, page := s.get("operations?" + query)
			for _, key := range []string{"order-41", "order-42", "p-1", "record-1"} {
				if listed := strings.Contains(page, ">"+key+"<"); listed != strings.Contains(strings.Join(want, " "), key) || status != http.StatusOK {
					s.Errorf("%s: %d, %s is listed: %v", query, status, key, listed)
				}
			}
		}
		found("", "order-41", "order-42", "p-1")
		found("key=-42", "order-42")
		found("key="+url.QueryEscape(`"order\x2d42"`), "order-42")
		found("owner=shop-7", "order-41", "order-42")
		found("name=payout", "p-1")
		found("state=succeeded")
		found("state=stuck")
		found("state=succeeded&kind=records", "record-1")
		found("state=unknown&kind=records")
		for _, bad := range []string{"state=lost", "after=x"} {
			if status, _ := s.get("operations?" + bad); status != http.StatusBadRequest {
				s.Errorf("%s: %d", bad, status)
			}
		}

		_, list := s.get("operations")
		link := s.linkTo(list, "order-41")
		_, page := s.get(link)
		s.want(page, "unknown", "no answer", "pay", "shop-7", "news-1", "Provider key")
		_, records := s.get("operations?state=succeeded&kind=records")
		_, record := s.get(s.linkTo(records, "record-1"))
		if strings.Contains(page+record, "secret") || !strings.Contains(record, "record of Do") {
			s.Error("what was asked, answered or told is shown")
		}

		// The form is submitted from two tabs.
		form := url.Values{"id": {strings.TrimPrefix(link, "operation?id=")}, "as": {"step-done"}, "result": {"12"}}
		tab := func() url.Values {
			status, confirm := s.post("confirm-resolve", form)
			if status != http.StatusOK {
				s.Fatal(status, confirm)
			}
			s.want(confirm, "What this does", "is an old one", "are recorded")
			f := s.forms(confirm, "resolve")[0]
			f.Set("by", "ada")
			f.Set("reason", "asked the provider, ticket 7")
			return f
		}
		first, second := tab(), tab()
		if status, page := s.post("resolve", first); status != http.StatusOK || !strings.Contains(page, "Resolved: it is waiting now.") || !strings.Contains(page, "ticket 7") {
			s.Error(status, page)
		}
		second.Set("by", "bob")
		status, page := s.post("resolve", second)
		if status != http.StatusConflict {
			s.Error(status, page)
		}
		s.want(page, "Nothing was changed", "waiting by now", "The last to intervene was ada")
		if r, err := runner.Do(s.Ctx, refund("order-41"), 1250); err != nil || r.Value != 12 {
			s.Errorf("it goes on with %v, %v", r, err)
		}
		if n := s.Int(`SELECT COUNT(*) FROM holdfast_interventions`); n != 1 {
			s.Errorf("%d interventions", n)
		}

		// An operation that was resolved is unknown again when the second tab comes: its call is another one.
		s.park(refund("order-43"), "no answer")
		_, page = s.get("operation?id=" + s.id("order-43"))
		form = s.forms(page, "confirm-resolve")[0]
		form.Set("as", "step-not-done")
		stale, fresh := tab(), tab()
		if status, page := s.post("resolve", fresh); status != http.StatusOK {
			s.Error(status, page)
		}
		parkAs[int](s, refund("order-43"), "no answer")
		for path, form := range map[string]url.Values{"resolve": stale, "confirm-resolve": form} {
			status, page := s.post(path, form)
			if status != http.StatusConflict {
				s.Error(path, status, page)
			}
			s.want(page, "Nothing was changed", "unknown once more", "The last to intervene was ada")
		}

		// A form with missing or wrong fields changes nothing.
		id := s.id("p-1")
		for said, form := range map[string]url.Values{
			"Choose what became of it.": {"id": {id}}, "The result is not JSON": {"id": {id}, "as": {"step-done"}, "result": {"{"}},
			"Say why it was rejected": {"id": {id}, "as": {"rejected"}}, "There is no such operation.": {"id": {strings.Repeat("0", 64)}},
		} {
			for _, path := range []string{"confirm-resolve", "resolve"} {
				form.Set("by", "ada")
				form.Set("reason", "why")
				if status, page := s.post(path, form); status < 400 || !strings.Contains(page, said) {
					s.Errorf("%s: %d %s", said, status, page)
				}
			}
		}
		// A result of another type changes nothing either. Once the program cannot read the stored
		// type, another type is accepted.
		wrong := url.Values{"id": {id}, "as": {"step-done"}, "result": {`"12"`}, "by": {"ada"}, "reason": {"why"}}
		if status, page := s.post("resolve", wrong); status != http.StatusBadRequest || !strings.Contains(page, "is not what the function returns: give int") {
			s.Error(status, page)
		}
		corrected := url.Values{"id": {s.id("order-42")}, "as": {"step-done"}, "result": {"12"}, "by": {"ada"}, "reason": {"why"}}
		s.post("resolve", corrected)
		later := parkAs[string](s, refund("order-42"), "no answer")
		_, page = s.get("operation?id=" + corrected.Get("id"))
		s.want(page, "cannot be read", "Go on with it", "<code>string</code>")
		if strings.Contains(page, "call was not made") {
			s.Error("a call that was made is offered as not made")
		}
		corrected.Set("result", `"12"`)
		if status, page := s.post("resolve", corrected); status != http.StatusOK || !strings.Contains(page, "Resolved: it is waiting now.") {
			s.Error(status, page)
		}
		if r, err := later.Do(s.Ctx, refund("order-42"), 1250); err != nil || r.Value != "12" {
			s.Errorf("corrected, it goes on with %v, %v", r, err)
		}
		// It also works without owners.
		if status, page := s.post("resolve", url.Values{"id": {id}, "as": {"rejected"}, "code": {"fraud"}, "by": {"ada"}, "reason": {"why"}}); status != http.StatusOK || !strings.Contains(page, "it is rejected now") {
			s.Error(status, page)
		}
	})
}

func TestReaper(t *testing.T) {
	onEveryEngine(t, func(e *conformance.Env[*sql.Tx]) {
		s := signedIn(e, console.Options{})
		_, page := s.get("reaper")
		s.want(page, "No pass is recorded yet")
		store := s.Store(idempotency.Options{ResultTTL: 50 * time.Millisecond, KeyTTL: 50 * time.Millisecond})
		if _, err := s.Do(store, conformance.Op("1")); err != nil {
			s.Fatal(err)
		}
		time.Sleep(100 * time.Millisecond) // twice their life
		r, err := reaper.New(s.Ctx, s.DB, reaper.Options{Holder: "cron-7"})
		if err != nil {
			s.Fatal(err)
		}
		if _, err := r.Sweep(s.Ctx); err != nil {
			s.Fatal(err)
		}
		_, page = s.get("reaper")
		s.want(page, "cron-7", "keys 1")
	})
}

// Bytes from the rows appear as text in the page, never as markup.
func TestScriptsAreText(t *testing.T) {
	onEveryEngine(t, func(e *conformance.Env[*sql.Tx]) {
		s := signedIn(e, console.Options{Write: true})
		attack := func(where string) string {
			return `<script>alert('` + where + `')</script>"'><img src=x onerror=alert(1)>`
		}
		l := s.locker(attack("holder"))
		if _, err := l.Acquire(s.Ctx, attack("key")); err != nil {
			s.Fatal(err)
		}
		if _, err := l.ForceRelease(s.Ctx, attack("key"), 0, holdfast.Actor{By: "test", Reason: attack("reason")}); err != nil {
			s.Fatal(err)
		}
		if _, err := s.locker(attack("holder")).Acquire(s.Ctx, attack("key")); err != nil {
			s.Fatal(err)
		}
		if _, err := fairlock.New(l).Acquire(s.Ctx, attack("line")); err != nil {
			s.Fatal(err)
		}
		s.park(idempotency.Op{Owner: attack("owner"), Name: attack("name")[:60], Key: attack("op")}, attack("error"))
		var all []string
		add := func(status int, page string) string {
			s.Helper()
			if status >= http.StatusInternalServerError {
				s.Error(status, page)
			}
			all = append(all, page)
			return page
		}
		locks := add(s.get("locks?begin=" + url.QueryEscape("<")))
		s.want(locks, "alert(&#39;key&#39;)", "alert(&#39;holder&#39;)", "alert(&#39;reason&#39;)")
		for _, form := range s.forms(locks, "confirm-release") {
			form.Set("reason", attack("typed"))
			form.Set("by", attack("by"))
			add(s.post("confirm-release", form))
		}
		list := add(s.get("operations?key=%3Cscript&owner=&name="))
		id := regexp.MustCompile(`operation\?id=([0-9a-f]{64,})`).FindStringSubmatch(list)
		if id == nil {
			s.Fatal(list)
		}
		s.want(add(s.get("operation?id="+id[1])), "alert(&#39;owner&#39;)", "alert(&#39;op&#39;)", "alert(&#39;error&#39;)")
		form := url.Values{"id": {id[1]}, "as": {"rejected"}, "code": {attack("code")}, "message": {attack("message")}, "by": {attack("by")}, "reason": {attack("why")}}
		add(s.post("confirm-resolve", form))
		form.Set("reason", "")
		add(s.post("resolve", form))
		form.Set("reason", attack("why"))
		s.want(add(s.post("resolve", form)), "alert(&#39;why&#39;)", "alert(&#39;by&#39;)")
		add(s.get("operations?state=" + url.QueryEscape(attack("state"))))
		add(s.get("operations?state=rejected&key=" + url.QueryEscape(attack("search"))))
		for _, page := range all {
			if strings.Contains(page, "<script>") || strings.Contains(page, "<img") || strings.Contains(page, `"'>`) {
				s.Errorf("it is not text in\n%s", page)
			}
		}
	})
}

// Long lists are paged.
func TestLongLists(t *testing.T) {
	onEveryEngine(t, func(e *conformance.Env[*sql.Tx]) {
		s := signedIn(e, console.Options{})
		const many = 60
		l := s.locker("w")
		for n := range many {
			if _, err := l.Acquire(s.Ctx, fmt.Sprintf("key %03d & more", n)); err != nil {
				s.Fatal(err)
			}
			if n < 25 {
				if _, err := fairlock.New(l).AcquireShared(s.Ctx, "one line"); err != nil {
					s.Fatal(err)
				}
			}
		}
		store, err := idempotency.New(s.Ctx, s.DB)
		if err != nil {
			s.Fatal(err)
		}
		for n := range many {
			if _, err := s.Do(store, conformance.Op(fmt.Sprintf("op %03d", n))); err != nil {
				s.Fatal(err)
			}
		}
		next := regexp.MustCompile(`href="([^"]*after=[^"]*)"`)
		for path, row := range map[string]string{"locks?begin=key": `key \d\d\d &amp; more&#34;`, "operations?state=succeeded&kind=records&key=op": `op \d\d\d&#34;</a>`} {
			seen := map[string]bool{}
			for pages := 1; ; pages++ {
				status, page := s.get(path)
				rows := regexp.MustCompile(row).FindAllString(page, -1)
				inPage := map[string]bool{}
				for _, r := range rows {
					seen[r], inPage[r] = true, true
				}
				if status != http.StatusOK || len(inPage) > 50 || pages > 2 {
					s.Fatalf("%s: %d, page %d has %d rows", path, status, pages, len(inPage))
				}
				m := next.FindStringSubmatch(page)
				if m == nil {
					break
				}
				path = strings.TrimPrefix(html.UnescapeString(m[1]), "./")
			}
			if len(seen) != many {
				s.Errorf("%s: %d rows of %d", path, len(seen), many)
			}
		}
		_, page := s.get("locks")
		s.want(page, "and 5 more behind them")
	})
}

// The first page answers the five questions, from the tables.
func TestOverview(t *testing.T) {
	onEveryEngine(t, func(e *conformance.Env[*sql.Tx]) {
		s := signedIn(e, console.Options{})
		var page string
		e.Eventually("no session waits", func() bool { // those of tests beside this one, too
			_, page = s.get("")
			return strings.Contains(page, "Nobody")
		})
		s.want(page, "Nothing: every operation has an outcome", "Nothing has waited for a worker", "nothing is due")
		for i := range 7 {
			s.park(refund("order-4"+strconv.Itoa(i)+"/1"), "the provider does not answer")
		}
		keys := func(path string) string {
			_, page := s.get(path)
			list := regexp.MustCompile(`>&#34;?order-4(\d)/1|>order-4(\d)/1`).FindAllStringSubmatch(page, -1)
			order := ""
			for _, m := range list {
				order += m[1] + m[2]
			}
			return order
		}
		_, page = s.get("")
		s.want(page, "<b>7</b>", "those that have waited longest", "moved ")
		if got := keys(""); got != "01234" {
			s.Errorf("the overview lists %s", got)
		}
		if got := keys("operations"); got != "0123456" {
			s.Errorf("the page lists %s", got)
		}
		_, page = s.get("operations")
		s.want(page, "7 in all, the longest ago first")
		l := fairlock.New(s.locker("worker-1"))
		held, err := l.Acquire(s.Ctx, "line")
		s.Check(err)
		ctx, cancel := context.WithCancel(s.Ctx)
		waits := make(chan error, 1)
		go func() {
			_, err := fairlock.New(s.locker("worker-2")).Acquire(ctx, "line")
			waits <- err
		}()
		s.Eventually("the line is shown", func() bool {
			_, page = s.get("")
			return strings.Contains(page, "1 wait in line")
		})
		cancel()
		<-waits
		s.MustRelease(held)
		if n := strings.Count(page, "order-4"); n != 5 {
			s.Errorf("%d operations are shown, want 5", n)
		}
		s.want(page, `<a href="operations?state=unknown">More</a>`, `<a href="locks?begin=line">`)
		if e.Engine == dbtest.SQLite {
			s.want(page, "does not tell the sizes")
		} else {
			s.want(page, "Rows, about", " KiB")
		}
	})
}
