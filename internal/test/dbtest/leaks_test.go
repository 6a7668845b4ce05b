package dbtest

import (
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestRemaining checks that a goroutine that stays is found by the names of its functions, that one is
// ignored by its innermost function only, and that one which ends soon is none.
func TestRemaining(t *testing.T) {
	const here = "github.com/holdfast-go/holdfast/internal/test/dbtest."
	others := []string{"testing.(*T).Run", "os/signal.signal_recv", "database/sql.(*DB).connectionOpener"}
	var wg sync.WaitGroup
	release, soon := make(chan struct{}), make(chan struct{})
	wg.Go(func() { waiting[int](release) })
	go func() { <-soon }()
	wg.Go(func() {
		time.Sleep(10 * time.Millisecond)
		close(soon)
	})
	found := func(ignored ...string) string {
		return strings.Join(remaining(time.Second/2, append(ignored, others...)), "\n\n")
	}
	if got := found(); strings.Count(got, "goroutine ") < 1 || !strings.Contains(got, here+"waiting[...]") || strings.Contains(got, "remaining(") {
		t.Errorf("a goroutine that waits is not found: %s", got)
	}
	if got := found(here + "TestRemaining.func1"); got == "" {
		t.Error("a goroutine is ignored by a function that is not its innermost one")
	}
	if got := found(here + "waiting[...]"); got != "" {
		t.Errorf("it is not ignored: %s", got)
	}
	close(release)
	wg.Wait()
	if got := found(); got != "" {
		t.Errorf("these have ended: %s", got)
	}
}

// TestManyRemain checks that all are found when their stacks fill the first buffer.
func TestManyRemain(t *testing.T) {
	release, n := make(chan struct{}), 2000
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() { waiting[int](release) })
	}
	for runtime.NumGoroutine() < n {
		runtime.Gosched()
	}
	if got := len(goroutines(nil)); got < n {
		t.Errorf("%d are found, want %d", got, n)
	}
	close(release)
	wg.Wait()
}

//go:noinline
func waiting[T any](release <-chan struct{}) { <-release }
