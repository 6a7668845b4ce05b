package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// tally counts the answers that clients got.
type tally struct {
	perOrder int // expected answers per order

	mu       sync.Mutex
	outcomes map[string]int
	open     map[string]int    // order -> answers still to come
	named    map[string]string // refund id in an answer -> order
	answers  int
	changed  chan struct{}
}

func newTally(perOrder int) *tally {
	return &tally{
		perOrder: perOrder, outcomes: map[string]int{}, open: map[string]int{},
		named: map[string]string{}, changed: make(chan struct{}, 1),
	}
}

func (t *tally) sent(order string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.open[order] = t.perOrder
}

// answer takes a client's line: answer <order> <outcome> <refund id or ->.
func (t *tally) answer(words []string) {
	if len(words) != 4 || words[0] != "answer" {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	order, outcome, id := words[1], words[2], words[3]
	t.answers++
	t.outcomes[outcome]++
	if id != "-" {
		t.named[id] = order
	}
	if t.open[order]--; t.open[order] == 0 {
		delete(t.open, order)
	}
	select {
	case t.changed <- struct{}{}:
	default: // the waiter is already notified
	}
}

// wait returns when at most n orders have outstanding answers.
func (t *tally) wait(ctx context.Context, n int) error {
	for {
		t.mu.Lock()
		done := len(t.open) <= n
		t.mu.Unlock()
		if done {
			return nil
		}
		select {
		case <-t.changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// compare finds answers that name a refund that is not in the tables: a client got a confirmation
// for money that did not move.
func (t *tally) compare(b books) (problems []string) {
	for id, order := range t.named {
		if !slices.ContainsFunc(b.refunds, func(r Refund) bool { return r.ID == id && r.Order == order }) {
			problems = append(problems, fmt.Sprintf("a client was told of refund %s of order %s, which is not in the table", id, order))
		}
	}
	return problems
}

// progress prints a line per second until stop is called, and one at the end.
func (t *tally) progress(w io.Writer, kills *atomic.Int64) (stop func()) {
	began := time.Now()
	line := func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		fmt.Fprintf(w, "%5.1fs  %d answers: %d executed, %d replayed, %d rejected, %d unknown; %d kills\n", time.Since(began).Seconds(),
			t.answers, t.outcomes[executed], t.outcomes[replayed], t.outcomes[rejected], t.outcomes[unknown], kills.Load())
	}
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		ticker := time.NewTicker(time.Second)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
				line()
			case <-end:
				line()
				return
			}
		}
	}()
	return func() { close(end); <-ended }
}
