package optimistic

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/optimistic/register"
)

// registerWatch checks that each poll returns the newest value or its deletion, and that a watch
// does not read a known value again.
func registerWatch[Tx any](e *env[Tx]) {
	r := e.register()
	must := func(_ register.Entry, err error) {
		e.Helper()
		if err != nil {
			e.Fatal(err)
		}
	}
	must(r.Create(e.Ctx, "a", []byte("1")))
	var seen strings.Builder
	for entry, err := range r.Watch(e.Ctx, "a", register.WatchOptions{Interval: 10 * time.Millisecond}) {
		if err != nil {
			e.Fatal(err)
		}
		fmt.Fprintf(&seen, "%d=%s ", entry.Revision, entry.Value)
		switch entry.Revision {
		case 1: // two changes before the next poll become one
			must(r.CompareAndSwap(e.Ctx, "a", 1, []byte("2")))
			must(r.CompareAndSwap(e.Ctx, "a", 2, nil))
		case 3:
			if entry.Value == nil {
				e.Error("an empty value was taken for a deletion")
			}
			must(r.Delete(e.Ctx, "a", 3))
		case 4:
			if entry.Value != nil {
				e.Errorf("deleted, and %q", entry.Value)
			}
			must(r.Create(e.Ctx, "a", []byte("5")))
		}
		if entry.Revision == 5 {
			break
		}
	}
	if seen.String() != "1=1 3= 4= 5=5 " {
		e.Errorf("saw %s", seen.String())
	}

	// A watch does not report a known value again, and may start before its name exists.
	ctx, cancel := context.WithCancel(e.Ctx)
	defer cancel()
	told := make(chan register.Entry, 10)
	ended := make(chan error, 1)
	watch := r.Watch(ctx, "later", register.WatchOptions{Interval: 10 * time.Millisecond, After: 1})
	go func() {
		var last error
		for entry, err := range watch {
			if last = err; err == nil {
				told <- entry
			}
		}
		ended <- last
	}()
	must(r.Create(e.Ctx, "later", []byte("1")))
	must(r.CompareAndSwap(e.Ctx, "later", 1, []byte("2")))
	if entry := <-told; entry.Revision != 2 {
		e.Errorf("got %+v", entry)
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		e.Errorf("the watch ended with %v", err)
	}
	e.Eventually("every connection is back", func() bool { return e.InUse() == 0 })
}

// registerWatchErrors checks that a watch survives read errors, reads no more often than its
// interval allows, and refuses invalid arguments.
func registerWatchErrors[Tx any](e *env[Tx]) {
	var reads atomic.Int64
	db := e.Handle.Open(e.T, e.DSN, holdfast.Options{Observers: []holdfast.Observer{func(_ context.Context, s holdfast.Statement) {
		if s.Name == "register.newer" {
			reads.Add(1)
		}
	}}}).DB
	r := e.registerOn(db)
	if _, err := r.Create(e.Ctx, "a", []byte("1")); err != nil {
		e.Fatal(err)
	}
	// With an interval of an hour there is one read, while the name changes.
	ctx, cancel := context.WithCancel(e.Ctx)
	defer cancel()
	n := 0
	for entry, err := range r.Watch(ctx, "a", register.WatchOptions{Interval: time.Hour}) {
		if err != nil {
			if !errors.Is(err, context.Canceled) {
				e.Error(err)
			}
			continue
		}
		if n++; n == 1 {
			later := time.AfterFunc(200*time.Millisecond, cancel)
			e.Cleanup(func() { later.Stop() })
		}
		if _, err := r.CompareAndSwap(e.Ctx, "a", entry.Revision, []byte("2")); err != nil {
			e.Error(err)
		}
	}
	if n != 1 || reads.Load() != 1 {
		e.Errorf("%d entries of %d reads, want one of one", n, reads.Load())
	}

	e.Must(`ALTER TABLE holdfast_registers RENAME TO away`)
	before := reads.Load()
	back := make(chan struct{})
	go func() {
		defer close(back)
		e.Eventually("two reads fail", func() bool { return reads.Load() >= before+2 })
		e.Must(`ALTER TABLE away RENAME TO holdfast_registers`)
	}()
	for entry, err := range r.Watch(e.Ctx, "a", register.WatchOptions{Interval: 10 * time.Millisecond}) {
		if err != nil || entry.Revision != 2 {
			e.Errorf("%+v, %v", entry, err)
		}
		break
	}
	<-back
	e.Must(`ALTER TABLE holdfast_registers RENAME TO away`)
	for entry, err := range r.Watch(e.Ctx, "a", register.WatchOptions{Interval: time.Second}) {
		if err == nil || errors.Is(err, context.Canceled) {
			e.Errorf("the table is gone: %+v, %v", entry, err)
		}
	}
	e.Must(`ALTER TABLE away RENAME TO holdfast_registers`)
	for what, c := range map[string]struct {
		name string
		opts register.WatchOptions
	}{
		"no name":               {"", register.WatchOptions{}},
		"a negative revision":   {"a", register.WatchOptions{After: -1}},
		"a negative interval":   {"a", register.WatchOptions{Interval: -1}},
		"too short an interval": {"a", register.WatchOptions{Interval: time.Millisecond}},
		"too long an interval":  {"a", register.WatchOptions{Interval: 2 * time.Hour}},
	} {
		n := 0
		for _, err := range r.Watch(e.Ctx, c.name, c.opts) {
			if n++; !errors.Is(err, holdfast.ErrInvalid) {
				e.Errorf("%s: %v", what, err)
			}
		}
		if n != 1 {
			e.Errorf("%s: %d times", what, n)
		}
	}
}
