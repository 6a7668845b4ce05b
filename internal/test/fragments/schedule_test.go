package fragments

import (
	"runtime"
	"testing"
)

// process is one process of a schedule. It runs to a mark and stops there until the schedule lets it go on, so that one
// process runs at a time and no clock decides.
type process struct {
	t      *testing.T
	goOn   chan struct{}
	marks  chan string // closed when the process has ended
	killed chan struct{}
}

// begin makes a process that has not begun to run. A process that is left at a mark is killed there: it never goes on.
func begin(t *testing.T, run func(at func(mark string))) *process {
	t.Helper()
	p := &process{t: t, goOn: make(chan struct{}), marks: make(chan string), killed: make(chan struct{})}
	t.Cleanup(func() { close(p.killed) })
	wait := func() {
		select {
		case <-p.goOn:
		case <-p.killed:
			runtime.Goexit()
		}
	}
	go func() {
		defer close(p.marks)
		wait()
		run(func(mark string) {
			select {
			case p.marks <- mark:
			case <-p.killed:
				runtime.Goexit()
			}
			wait()
		})
	}()
	return p
}

// runTo lets the process run to its next mark, which must be the given one.
func (p *process) runTo(mark string) {
	p.t.Helper()
	p.goOn <- struct{}{}
	if at, runs := <-p.marks; !runs || at != mark {
		p.t.Fatalf("the process is at %q (it runs: %v), and should be at %q", at, runs, mark)
	}
}

// finish lets the process run to its end.
func (p *process) finish() {
	p.t.Helper()
	p.goOn <- struct{}{}
	if at, runs := <-p.marks; runs {
		p.t.Fatalf("the process is at %q, and should have ended", at)
	}
}
