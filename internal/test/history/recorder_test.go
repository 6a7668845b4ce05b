package history_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/test/history"
)

// A mutexed lock in memory behaves like a lease without a database.
type mutexed struct {
	mu    sync.Mutex
	token int64
	held  bool
}

func (l *mutexed) try() (token int64, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.held {
		return 0, false
	}
	l.token++
	l.held = true
	return l.token, true
}

func (l *mutexed) release(token int64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	ok := l.held && l.token == token
	l.held = l.held && !ok
	return ok
}

// TestStampede lets 64 goroutines record at once.
func TestStampede(t *testing.T) {
	t.Parallel()
	rec := history.New()
	var locks [4]mutexed
	var wg sync.WaitGroup
	for i := range 64 {
		wg.Go(func() {
			c := rec.Client(i)
			for range 100 {
				k := rand.IntN(len(locks))
				op := c.Grant(fmt.Sprint("key ", k))
				token, ok := locks[k].try()
				if !ok {
					op.Held()
					continue
				}
				term := op.Won(token, time.Now().Add(time.Hour))
				ctx, cancel := context.WithCancel(t.Context())
				stop := term.Watch(ctx)
				time.Sleep(time.Duration(rand.IntN(200)) * time.Microsecond)
				end := term.Release()
				cancel()
				if locks[k].release(token) {
					end.OK()
				} else {
					end.Lost()
				}
				stop()
			}
		})
	}
	wg.Wait()
	h := rec.History()
	won := 0
	for _, op := range h {
		if op.Kind == history.KindGrant && op.Outcome == history.OK {
			won++
		}
	}
	if won < 10 {
		t.Errorf("%d grants among %d operations", won, len(h))
	}
	history.Check(t, h)
}

// TestWatchIsNoLaterThanTheContext checks that the recorded end of trust lies after the grant
// and before the end of the context, however late the watcher wakes.
func TestWatchIsNoLaterThanTheContext(t *testing.T) {
	t.Parallel()
	rec := history.New()
	ctx, cancel := context.WithCancel(t.Context())
	term := rec.Client(1).Grant("k").Won(1, time.Time{})
	stop := term.Watch(ctx)
	time.Sleep(5 * time.Millisecond)
	cancel()
	mark := rec.Client(2).Grant("k") // a stamp after the end
	mark.Held()
	stop()
	term.Observe(ctx) // records no second end
	h := rec.History()
	if len(h) != 3 {
		t.Fatalf("recorded %v", h)
	}
	end := h[slices.IndexFunc(h, func(op history.Op) bool { return op.Kind == history.KindEnded })]
	marked := h[slices.IndexFunc(h, func(op history.Op) bool { return op.Outcome == history.Refused })]
	if end.Call < h[0].Return || end.Call > marked.Call || end.Return < end.Call {
		t.Errorf("grant %v, end %v, context ended before %v", h[0], end, marked)
	}
}

func TestStopLeavesALivingTermOpen(t *testing.T) {
	t.Parallel()
	rec := history.New()
	term := rec.Client(1).Grant("k").Won(1, time.Now().Add(time.Hour))
	stop := term.Watch(t.Context())
	stop()
	stop()
	if h := rec.History(); len(h) != 1 {
		t.Errorf("recorded %v", h)
	}
	rec.Client(2).Grant("k").Won(2, time.Time{})
	if got := rulesOf(history.Judge(rec.History())); !slices.Equal(got, []history.Rule{history.Exclusion}) {
		t.Errorf("granted within an hour's trust: %q", got)
	}
	term.Ended()
	if got := rulesOf(history.Judge(rec.History())); !slices.Equal(got, []history.Rule{history.Exclusion}) {
		t.Errorf("trusted after the second grant: %q", got)
	}
}

// TestAllOperations checks that the judge reads each way to record.
func TestAllOperations(t *testing.T) {
	t.Parallel()
	rec := history.New()
	c := rec.Client(1)
	c.Write("register", "a").OK()
	c.Read("register").Got("a")
	c.Swap("register", "a", "b").OK()
	c.Swap("register", "a", "c").Refused()
	c.Write("register", "d").Unknown()
	c.Swap("register", "x", "y").Failed()
	c.Read("register").Got("d")

	c.Grant("lease").Failed()
	term := c.Grant("lease").Won(5, time.Now().Add(time.Millisecond))
	term.Renew().OK(time.Now().Add(time.Hour))
	term.Renew().Lost()
	term.Renew().Failed()
	term.Renew().Unknown()
	term.Commit().OK()
	term.Commit().Failed()
	rec.Client(2).Grant("lease").Held()
	term.Ended()
	rec.Client(2).Grant("lease").Unknown()
	next := rec.Client(3).Grant("lease").Won(7, time.Time{})
	term.Commit().Lost()
	term.Release().Lost()
	next.Release().OK()
	history.Check(t, rec.History())

	term.Release().OK()
	if got := rulesOf(history.Judge(rec.History())); !slices.Equal(got, []history.Rule{history.StaleTerm}) {
		t.Errorf("a stale release: %q", got)
	}
}

func TestTwoOutcomesPanic(t *testing.T) {
	t.Parallel()
	op := history.New().Client(1).Write("k", "v")
	op.OK()
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	op.OK()
}

// TestFilesKeepAll checks files with keys of any bytes, and operations of several processes.
func TestFilesKeepAll(t *testing.T) {
	t.Parallel()
	h := historyOf(granted(1, 0, 10, 1, 100), unknown(3), released(1, 20, 30, 1, history.OK))
	h[0].Key, h[1].Key, h[2].Key = "\xff\x00\"\\\n é", "\xfe\x00\"\\\n é", ""
	path := filepath.Join(t.TempDir(), "h.jsonl")
	merged := history.Merge(h, h)
	if err := merged.WriteFile(path); err != nil {
		t.Fatal(err)
	}
	got, err := history.Read(path)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(got, merged) || got[3].Process != 1 {
		t.Errorf("wrote %v\nread %v", merged, got)
	}
	rec, err := history.Create(path + "2")
	if err != nil {
		t.Fatal(err)
	}
	rec.Client(1).Grant("k").Won(1, time.Time{}).Release().OK()
	rec.Client(2).Grant("k").Unknown()
	if err := rec.Close(); err != nil {
		t.Fatal(err)
	}
	if got, err = history.Read(path + "2"); err != nil || !slices.Equal(got, rec.History()) {
		t.Errorf("recorded %v\nread %v, %v", rec.History(), got, err)
	}
	if _, err := history.Read(path + "x"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
}

// TestTrustIsSeen checks that a context seen alive after another grant is an overlap, whichever
// goroutine saw it.
func TestTrustIsSeen(t *testing.T) {
	t.Parallel()
	for name, look := range map[string]func(context.Context, *history.Term, func()){
		"Observe": func(ctx context.Context, term *history.Term, meanwhile func()) { meanwhile(); term.Observe(ctx) },
		"Watch": func(ctx context.Context, term *history.Term, meanwhile func()) {
			stop := term.Watch(ctx)
			meanwhile()
			stop()
		},
	} {
		rec := history.New()
		ctx, cancel := context.WithCancel(t.Context())
		term := rec.Client(1).Grant("k").Won(1, time.Time{})
		look(ctx, term, func() { rec.Client(2).Grant("k").Won(2, time.Time{}) })
		cancel()
		if term.Observe(ctx) {
			t.Error("a cancelled context lives")
		}
		if got := rulesOf(history.Judge(rec.History())); !slices.Equal(got, []history.Rule{history.Exclusion}) {
			t.Errorf("%s: %q", name, got)
		}
	}
}
