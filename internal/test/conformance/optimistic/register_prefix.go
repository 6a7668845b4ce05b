package optimistic

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/optimistic/register"
)

// listed returns what List yields, as name=revision:value.
func (e *env[Tx]) listed(r *register.Register[Tx], prefix string, opts ...register.ListOptions) (all []string) {
	e.Helper()
	for entry, err := range r.List(e.Ctx, prefix, opts...) {
		if err != nil {
			e.Fatal(err)
		}
		all = append(all, fmt.Sprintf("%s=%d:%s", entry.Name, entry.Revision, entry.Value))
	}
	return all
}

// registerList checks the order, the pages and the owners of a list, and that it has no deleted
// name.
func registerList[Tx any](e *env[Tx]) {
	e.AnyOwner()
	r := e.register()
	must := func(_ register.Entry, err error) {
		e.Helper()
		e.Check(err)
	}
	for _, name := range []string{"limits/b", "limits/a", "limits", "limits0", "limits/", "Limits/x", "other"} {
		must(r.Create(e.Ctx, name, []byte(name)))
	}
	must(r.Delete(e.Ctx, "limits/b", 1))
	must(r.CompareAndSwap(e.Ctx, "limits/a", 1, nil))
	must(r.For("acme").Create(e.Ctx, "limits/z", []byte("of another owner")))
	for prefix, want := range map[string][]string{
		"limits/": {"limits/=1:limits/", "limits/a=2:"},
		"limits":  {"limits=1:limits", "limits/=1:limits/", "limits/a=2:", "limits0=1:limits0"},
		"L":       {"Limits/x=1:Limits/x"},
		"none":    nil,
		"":        {"Limits/x=1:Limits/x", "limits=1:limits", "limits/=1:limits/", "limits/a=2:", "limits0=1:limits0", "other=1:other"},
	} {
		if got := e.listed(r, prefix); !slices.Equal(got, want) {
			e.Errorf("%q: %q, want %q", prefix, got, want)
		}
	}
	if got := e.listed(r, "limits", register.ListOptions{After: register.Entry{Name: "limits/"}}); !slices.Equal(got, []string{"limits/a=2:", "limits0=1:limits0"}) {
		e.Errorf("after a name: %q", got)
	}
	if got := e.listed(r, "limits", register.ListOptions{After: register.Entry{Name: "aaa"}}); len(got) != 4 {
		e.Errorf("after a name before the prefix: %q", got)
	}
	if got := e.listed(r, "limits", register.ListOptions{After: register.Entry{Name: "z"}}); got != nil {
		e.Errorf("after a name behind the prefix: %q", got)
	}
	if got := e.listed(r.For("acme"), ""); !slices.Equal(got, []string{"limits/z=1:of another owner"}) {
		e.Errorf("another owner: %q", got)
	}

	// More than two pages.
	e.Must(`INSERT INTO holdfast_registers (owner, name, value, revision, changed_at) ` + e.manyNames(250))
	if got := e.listed(r.For("many"), "n"); len(got) != 250 || !slices.IsSorted(got) || len(slices.Compact(got)) != 250 {
		e.Errorf("%d of 250 names", len(got))
	}
	n := 0
	for range r.For("many").List(e.Ctx, "") { // a loop that ends early
		if n++; n == 150 {
			break
		}
	}
	if n != 150 {
		e.Errorf("%d entries", n)
	}
	for what, list := range map[string]func(yield func(register.Entry, error) bool){
		"a long prefix":           r.List(e.Ctx, strings.Repeat("p", register.MaxName+1)),
		"a bad owner":             r.For("\xff").List(e.Ctx, ""),
		"a watch, a long prefix":  r.WatchPrefix(e.Ctx, strings.Repeat("p", register.MaxName+1)),
		"a watch, a bad owner":    r.For("\xff").WatchPrefix(e.Ctx, ""),
		"a watch, a bad interval": r.WatchPrefix(e.Ctx, "", register.WatchPrefixOptions{Interval: time.Millisecond}),
		"a watch, a bad revision": r.WatchPrefix(e.Ctx, "", register.WatchPrefixOptions{Known: map[string]int64{"a": -1}}),
	} {
		n := 0
		for _, err := range list {
			if n++; !errors.Is(err, holdfast.ErrInvalid) {
				e.Errorf("%s: %v", what, err)
			}
		}
		if n != 1 {
			e.Errorf("%s: %d times", what, n)
		}
	}
}

// manyNames returns the rows of n names of the owner "many".
func (e *env[Tx]) manyNames(n int) string {
	rows := make([]string, n)
	for i := range rows {
		rows[i] = fmt.Sprintf("SELECT 'many', n, n, 1, 0 FROM (SELECT %s AS n) v%d", e.literal(fmt.Sprintf("n%04d", i)), i)
	}
	return strings.Join(rows, " UNION ALL ")
}

// literal is a text as bytes.
func (e *env[Tx]) literal(text string) string {
	if e.DB.Engine() == holdfast.PostgreSQL {
		return fmt.Sprintf(`'\x%x'::bytea`, text)
	}
	return fmt.Sprintf("X'%x'", text)
}

// registerPrefixBounds checks the bounds of a prefix on bytes that have no next one. The naive bound
// is the prefix with its last byte increased, or with a byte 0xff behind it.
func registerPrefixBounds[Tx any](e *env[Tx]) {
	r := e.register()
	all := []string{"\x00", "\x00\xff", "a", "a\x00", "a\xfe", "a\xff", "a\xff\x00", "a\xff\xff", "a\xff\xff\xff", "b", "\xfe\xff", "\xff", "\xff\x00", "\xff\xff", "\xff\xffz", strings.Repeat("\xff", register.MaxName)}
	for _, name := range all {
		_, err := r.Create(e.Ctx, name, []byte("x"))
		e.Check(err)
	}
	slices.Sort(all)
	for _, prefix := range append(all, "", "c", "a\xff\xff\xff\xff") {
		var want, listed, watched []string
		for _, name := range all {
			if strings.HasPrefix(name, prefix) {
				want = append(want, name)
			}
		}
		for entry, err := range r.List(e.Ctx, prefix) {
			e.Check(err)
			listed = append(listed, entry.Name)
		}
		ctx, cancel := context.WithCancel(e.Ctx)
		if len(want) == 0 {
			cancel()
		}
		for entry, err := range r.WatchPrefix(ctx, prefix) {
			if err != nil {
				break
			}
			if watched = append(watched, entry.Name); len(watched) == len(want) {
				cancel()
			}
		}
		cancel()
		if !slices.Equal(listed, want) || !slices.Equal(watched, want) {
			e.Errorf("%.20q: %d listed, %d watched, want %d", prefix, len(listed), len(watched), len(want))
		}
	}
}

// registerWatchPrefix checks that each read yields what has changed, deletions included, and
// nothing twice.
func registerWatchPrefix[Tx any](e *env[Tx]) {
	e.AnyOwner()
	r := e.register()
	must := func(_ register.Entry, err error) {
		e.Helper()
		e.Check(err)
	}
	must(r.Create(e.Ctx, "w/a", []byte("1")))
	must(r.Create(e.Ctx, "w/b", []byte("1")))
	must(r.Create(e.Ctx, "w/gone", []byte("1")))
	must(r.Delete(e.Ctx, "w/gone", 1))
	must(r.Create(e.Ctx, "x", []byte("1")))
	var seen []string
	step := 0
	for entry, err := range r.WatchPrefix(e.Ctx, "w/", register.WatchPrefixOptions{Interval: 10 * time.Millisecond}) {
		e.Check(err)
		seen = append(seen, fmt.Sprintf("%s=%d:%s", strings.TrimPrefix(entry.Name, "w/"), entry.Revision, entry.Value))
		if entry.Value == nil {
			seen[len(seen)-1] += "-"
		}
		step++
		switch step {
		case 2: // several changes before the next read
			must(r.CompareAndSwap(e.Ctx, "w/a", 1, []byte("2")))
			must(r.CompareAndSwap(e.Ctx, "w/a", 2, nil))
			must(r.Delete(e.Ctx, "w/b", 1))
			must(r.Create(e.Ctx, "w/brief", []byte("1")))
			must(r.Delete(e.Ctx, "w/brief", 1))
			must(r.CompareAndSwap(e.Ctx, "x", 1, []byte("2")))
			must(r.For("acme").Create(e.Ctx, "w/a", []byte("of another owner")))
		case 4: // after a deletion
			must(r.Create(e.Ctx, "w/b", []byte("3")))
			must(r.Create(e.Ctx, "w/gone", []byte("3")))
		case 6: // deleted and created again is one change
			must(r.Delete(e.Ctx, "w/a", 3))
			must(r.Create(e.Ctx, "w/a", []byte("5")))
		}
		if step == 7 {
			break
		}
	}
	if want := []string{"a=1:1", "b=1:1", "a=3:", "b=2:-", "b=3:3", "gone=3:3", "a=5:5"}; !slices.Equal(seen, want) {
		e.Errorf("saw %q, want %q", seen, want)
	}

	// A known revision is not yielded again; a deletion between two watches is.
	must(r.Delete(e.Ctx, "w/b", 3))
	known := map[string]int64{"w/a": 5, "w/b": 3, "w/gone": 2}
	seen = nil
	for entry, err := range r.WatchPrefix(e.Ctx, "w/", register.WatchPrefixOptions{Known: known, Interval: 10 * time.Millisecond}) {
		e.Check(err)
		if seen = append(seen, fmt.Sprintf("%s=%d:%s", entry.Name, entry.Revision, entry.Value)); len(seen) == 2 {
			break
		}
	}
	if want := []string{"w/b=4:", "w/gone=3:3"}; !slices.Equal(seen, want) || known["w/b"] != 3 {
		e.Errorf("saw %q, want %q; %v", seen, want, known)
	}
	e.Eventually("every connection is back", func() bool { return e.InUse() == 0 })
}

// registerWatchPrefixCosts checks that a watch reads values only if they are new, that it goes on
// after errors, and that no change is lost among many names.
func registerWatchPrefixCosts[Tx any](e *env[Tx]) {
	var values, failed atomic.Int64
	db := e.Handle.Open(e.T, e.DSN, holdfast.Options{Observers: []holdfast.Observer{func(_ context.Context, s holdfast.Statement) {
		if s.Name == "register.some" {
			values.Add(1)
		}
		if s.Err != nil {
			failed.Add(1)
		}
	}}}).DB
	r := e.registerOn(access.WithOwners(db, core.ManyOwners)).For("many")
	e.Must(`INSERT INTO holdfast_registers (owner, name, value, revision, changed_at) ` + e.manyNames(200))
	n := 0
	back := make(chan struct{})
	for entry, err := range r.WatchPrefix(e.Ctx, "n", register.WatchPrefixOptions{Interval: 10 * time.Millisecond}) {
		if err != nil {
			e.Fatal(err)
		}
		if n++; n == 200 {
			e.Must(`ALTER TABLE holdfast_registers RENAME TO away`)
			go func() {
				defer close(back)
				e.Eventually("two reads fail", func() bool { return failed.Load() >= 2 })
				e.Must(`ALTER TABLE away RENAME TO holdfast_registers`)
				_, err := r.CompareAndSwap(e.Ctx, "n0150", 1, []byte("2"))
				e.Check(err)
			}()
		}
		if n == 201 {
			if entry.Name != "n0150" || entry.Revision != 2 || string(entry.Value) != "2" {
				e.Errorf("got %+v", entry)
			}
			break
		}
	}
	<-back
	if values.Load() != 5 { // four batches of 200 names, and one of the last
		e.Errorf("%d statements for values", values.Load())
	}
}
