package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-go/holdfast"
)

const (
	// progressDelay is how long work may take before progress is shown.
	progressDelay = 500 * time.Millisecond
	progressPause = 200 * time.Millisecond
	// progressWidth is the width of a line that fits every terminal.
	progressWidth = 79
)

// progress is a line on a terminal that shows the state of a long command. A nil progress is
// silent.
type progress struct {
	w     io.Writer
	what  string
	start time.Time
	end   func()
	ended sync.WaitGroup

	mu sync.Mutex
	at string
}

// progress starts a progress line on standard error, if that is a terminal and the output is for a
// person.
func (f *flags) progress(cmd *cobra.Command, what string) *progress {
	if !f.forPeople() || !isTerminal(cmd.ErrOrStderr()) {
		return nil
	}
	ctx, end := context.WithCancel(context.WithoutCancel(cmd.Context()))
	p := &progress{w: cmd.ErrOrStderr(), what: what, start: time.Now(), end: end}
	p.ended.Go(func() { p.run(ctx) })
	return p
}

// sayf shows the current state.
func (p *progress) sayf(format string, args ...any) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.at = ", " + fmt.Sprintf(format, args...)
}

// counting returns an observer that counts statements whose name ends with suffix.
func (p *progress) counting(suffix, unit string) []holdfast.Observer {
	if p == nil {
		return nil
	}
	var n atomic.Int64
	return []holdfast.Observer{func(_ context.Context, s holdfast.Statement) {
		if strings.HasSuffix(s.Name, suffix) {
			p.sayf("%s %d", unit, n.Add(1))
		}
	}}
}

// done removes the line; a second call does nothing.
func (p *progress) done() {
	if p == nil {
		return
	}
	p.end()
	p.ended.Wait()
}

func (p *progress) run(ctx context.Context) {
	next := time.NewTimer(progressDelay)
	defer next.Stop()
	shown := false
	for {
		select {
		case <-ctx.Done():
			if shown {
				fmt.Fprint(p.w, "\r\x1b[K")
			}
			return
		case <-next.C:
		}
		p.mu.Lock()
		line := fmt.Sprintf("%s: %s%s", p.what, time.Since(p.start).Truncate(time.Second), p.at)
		p.mu.Unlock()
		if r := []rune(line); len(r) > progressWidth {
			line = string(r[:progressWidth-1]) + "…"
		}
		fmt.Fprint(p.w, "\r\x1b[K"+line)
		shown = true
		next.Reset(progressPause)
	}
}
