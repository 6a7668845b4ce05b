// Package measure runs operations for a period of time and reports their durations. holdfast
// bench and the comparisons in bench/ use it.
package measure

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

// Op is one operation of a client. Clients are numbered from 0.
type Op func(ctx context.Context, client int) error

// Taken is the result of a slice of time.
type Taken struct {
	Took    []time.Duration // sorted
	Elapsed time.Duration   // the length of the slice
}

// Each runs f once for every client, all concurrently, and returns the first error.
func Each(ctx context.Context, clients int, f Op) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var (
		all   sync.WaitGroup
		once  sync.Once
		first error
	)
	for client := range clients {
		all.Go(func() {
			if err := f(ctx, client); err != nil {
				once.Do(func() { first = err })
				cancel()
			}
		})
	}
	all.Wait()
	return first
}

// Slice runs op in all clients for the given length of time, at least once in each client.
func Slice(ctx context.Context, clients int, length time.Duration, op Op) (Taken, error) {
	both, err := Turns(ctx, clients, length, []Op{op})
	return both[0], err
}

// Turns runs the ops in turn in all clients for the given length of time, each op at least
// once in each client. Other load on the machine then affects all ops equally.
func Turns(ctx context.Context, clients int, length time.Duration, ops []Op) ([]Taken, error) {
	taken := make([]Taken, len(ops))
	var mu sync.Mutex
	start := time.Now()
	err := Each(ctx, clients, func(ctx context.Context, client int) error {
		took := make([][]time.Duration, len(ops))
		turn := client // clients begin with different ops
		for n := 0; n < len(ops) || time.Since(start) < length; n++ {
			i := turn % len(ops)
			begin := time.Now()
			if err := ops[i](ctx, client); err != nil {
				return err
			}
			took[i] = append(took[i], time.Since(begin))
			turn++
		}
		mu.Lock()
		defer mu.Unlock()
		for i := range ops {
			taken[i].Took = append(taken[i].Took, took[i]...)
		}
		return nil
	})
	for i := range taken {
		taken[i].Elapsed = time.Since(start)
		slices.Sort(taken[i].Took)
	}
	if err != nil && ctx.Err() != nil {
		err = errors.Join(context.Cause(ctx), err)
	}
	return taken, err
}

// Join adds the result of another slice.
func (t *Taken) Join(other Taken) {
	t.Took = append(t.Took, other.Took...)
	slices.Sort(t.Took)
	t.Elapsed += other.Elapsed
}

// Percentile returns the duration within which percent of the operations ended, or 0 if there
// were none.
func (t *Taken) Percentile(percent int) time.Duration {
	if len(t.Took) == 0 {
		return 0
	}
	return t.Took[min(len(t.Took)-1, len(t.Took)*percent/100)]
}

// Mean returns the arithmetic mean, or 0 if there were no operations.
func (t *Taken) Mean() time.Duration {
	if len(t.Took) == 0 {
		return 0
	}
	var sum time.Duration
	for _, d := range t.Took {
		sum += d
	}
	return sum / time.Duration(len(t.Took))
}

// PerSecond returns the number of operations per second.
func (t *Taken) PerSecond() float64 {
	if t.Elapsed <= 0 {
		return 0
	}
	return float64(len(t.Took)) / t.Elapsed.Seconds()
}
