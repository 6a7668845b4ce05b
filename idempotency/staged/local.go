package staged

import (
	"context"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/idempotency/internal/once"
)

// local is the work of a runner in this process: operations that the process knows to be due, those
// that are in progress here, and those that a call here waits for.
type local struct {
	mu    sync.Mutex
	loops int // completers that run
	queue []once.ID
	here  map[once.ID]time.Time // queued or in progress, since when
	watch map[once.ID]*watched
	wake  chan struct{} // holds a token while the queue has something
}

// watched is an operation that n callers wait for. moved is closed when the operation has moved here.
type watched struct {
	n     int
	moved chan struct{}
}

func newLocal() *local {
	return &local{here: map[once.ID]time.Time{}, watch: map[once.ID]*watched{}, wake: make(chan struct{}, 1)}
}

// nudge queues an operation for this process's completer, if one runs.
func (l *local) nudge(id once.ID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, here := l.here[id]; here || l.loops == 0 {
		return
	}
	l.here[id] = time.Now()
	l.queue = append(l.queue, id)
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// open and close count the completers. The last one leaves the queue to other processes.
func (l *local) open() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.loops++
}

func (l *local) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.loops--; l.loops > 0 {
		return
	}
	for _, id := range l.queue {
		l.end(id)
	}
	l.queue = nil
}

// next takes an operation from the queue.
func (l *local) next() (id once.ID, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.queue) == 0 {
		return id, false
	}
	id = l.queue[0]
	if l.queue = l.queue[1:]; len(l.queue) > 0 {
		select {
		case l.wake <- struct{}{}: // another completer may help
		default:
		}
	}
	return id, true
}

// begin marks an operation that is due as in progress here. It returns false if it was already, unless
// that is longer ago than the lease: then its worker hangs.
func (l *local) begin(id once.ID, lease time.Duration) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if since, here := l.here[id]; here && time.Since(since) < lease {
		return false
	}
	l.here[id] = time.Now()
	return true
}

// over ends what begin, or nudge, has begun.
func (l *local) over(id once.ID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.end(id)
}

func (l *local) end(id once.ID) {
	delete(l.here, id)
	l.tell(id)
}

// moved wakes those who wait for an operation.
func (l *local) moved(id once.ID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tell(id)
}

func (l *local) tell(id once.ID) {
	if w := l.watch[id]; w != nil {
		close(w.moved)
		w.moved = make(chan struct{})
	}
}

// enter begins to wait for an operation; leave ends it.
func (l *local) enter(id once.ID) (leave func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	w := l.watch[id]
	if w == nil {
		w = &watched{moved: make(chan struct{})}
		l.watch[id] = w
	}
	w.n++
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if w.n--; w.n == 0 {
			delete(l.watch, id)
		}
	}
}

// look returns the channel that is closed when the operation moves here, and whether it is here.
func (l *local) look(id once.ID) (moved <-chan struct{}, here bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, here = l.here[id]
	return l.watch[id].moved, here
}

// workers bounds the operations that one completer has in progress.
type workers struct {
	free chan struct{}
	all  sync.WaitGroup

	mu     sync.Mutex
	failed any // the first panic of a worker
}

func newWorkers(n int) *workers { return &workers{free: make(chan struct{}, n)} }

// run runs f on a worker. It waits for a free one, or until ctx ends.
func (w *workers) run(ctx context.Context, f func()) bool {
	select {
	case w.free <- struct{}{}:
	case <-ctx.Done():
		return false
	}
	w.all.Go(func() {
		defer func() { <-w.free }()
		defer w.caught()
		f()
	})
	return true
}

// caught keeps the panic of a goroutine, for check.
func (w *workers) caught() {
	if p := recover(); p != nil {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.failed = p
	}
}

// check panics with the value with which a worker has panicked.
func (w *workers) check() {
	w.mu.Lock()
	p := w.failed
	w.mu.Unlock()
	if p != nil {
		panic(p)
	}
}

// wait waits for all workers.
func (w *workers) wait() {
	w.all.Wait()
	w.check()
}
