package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"sync"
)

// relay receives the signals of holdfast. While a command runs, it gets them; before, they end the
// wait for the lock.
type relay struct {
	signals chan os.Signal
	ended   sync.WaitGroup

	// waiting ends with the first signal that comes while no command runs.
	waiting context.Context
	stop    context.CancelCauseFunc

	mu    sync.Mutex
	to    *child
	first os.Signal // that asks holdfast to end
}

// newRelay receives signals from now on, but for those that were ignored when holdfast began, as
// nohup has it. Its context has the values of ctx and does not end with it.
func newRelay(ctx context.Context) *relay {
	r := &relay{signals: make(chan os.Signal, 16)}
	r.waiting, r.stop = context.WithCancelCause(context.WithoutCancel(ctx))
	for _, sig := range relayed {
		if !signal.Ignored(sig) {
			signal.Notify(r.signals, sig)
		}
	}
	r.ended.Go(func() {
		for sig := range r.signals {
			r.receive(sig)
		}
	})
	return r
}

func (r *relay) close() {
	signal.Stop(r.signals)
	close(r.signals)
	r.ended.Wait()
	r.stop(nil)
}

func (r *relay) receive(sig os.Signal) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.first == nil && endsProgram(sig) {
		r.first = sig
	}
	switch {
	case r.to != nil:
		r.to.relay(sig)
	case endsProgram(sig):
		r.stop(interrupted(sig))
		signal.Stop(r.signals) // the next one ends holdfast at once
	}
}

// interrupted is the end of holdfast by a signal, while no command ran.
func interrupted(sig os.Signal) error {
	return statusError{exitSignal + numberOf(sig), fmt.Errorf("ended by a signal (%v) while no command ran", sig)}
}

// asked returns the error for a signal that asked holdfast to end, nil if there was none.
func (r *relay) asked() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.first == nil {
		return nil
	}
	return interrupted(r.first)
}

// run runs p until it ends, or until lock ends: then it returns the cause, too.
func (r *relay) run(lock context.Context, p program) (c *child, lost, err error) {
	if c, err = r.start(lock, p); err != nil {
		return nil, nil, err
	}
	lost = c.during(lock)
	r.mu.Lock()
	r.to = nil
	r.mu.Unlock()
	return c, lost, nil
}

func (r *relay) start(lock context.Context, p program) (*child, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.first != nil:
		return nil, interrupted(r.first)
	case lock.Err() != nil:
		return nil, statusError{exitNotRun, fmt.Errorf("the lock was lost before the command began: %w", context.Cause(lock))}
	}
	c, err := start(lock, p)
	r.to = c
	return c, err
}
