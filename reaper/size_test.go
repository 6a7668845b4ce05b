package reaper

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/core"
)

// costly is a task whose rows take time on a fake clock.
type costly struct {
	task
	now   time.Time
	left  int
	cost  func(cleared int) time.Duration
	done  int
	sizes []int
}

func (c *costly) name() string               { return "costly" }
func (c *costly) prepare(*pass, []row) error { return nil }

func (c *costly) find(_ context.Context, _ core.Querier, _ int64, _ *row, limit int) ([]row, *row, error) {
	found := make([]row, min(limit, c.left))
	for i := range found {
		found[i].token = int64(c.done + i + 1) // no row comes twice
	}
	return found, following(found, limit), nil
}

func (c *costly) clear(_ context.Context, _ core.Querier, _ int64, found []row) (int64, error) {
	c.sizes = append(c.sizes, len(found))
	c.now = c.now.Add(time.Duration(len(found)) * c.cost(c.done))
	c.left -= len(found)
	c.done += len(found)
	return int64(len(found)), nil
}

// TestBatchesFollowTheirCost checks that a batch that takes too long halves the next one, that
// cheap batches grow within the bounds, and that the next pass starts with the last size.
func TestBatchesFollowTheirCost(t *testing.T) {
	t.Parallel()
	c := &costly{now: time.Now()}
	r := fake()
	r.options = Options{Batch: 400, BatchTime: 50 * time.Millisecond, Pace: 0}
	r.stopwatch = func() time.Time { return c.now }
	r.clock = clock{limit: time.Hour, read: func(context.Context) (int64, error) { return time.Now().UnixMicro(), nil }}
	if err := r.clock.accept(t.Context()); err != nil {
		t.Fatal(err)
	}
	var s size
	sweep := func(rows int, cost func(done int) time.Duration, want ...int) {
		t.Helper()
		c.left, c.done, c.sizes, c.cost = rows, 0, nil, cost
		p := &pass{Reaper: r, ctx: t.Context(), left: int64(rows)}
		if err := p.task(c, &s); err != nil || !slices.Equal(c.sizes, want) {
			t.Errorf("batches of %v, %v, want %v", c.sizes, err, want)
		}
	}
	each := func(d time.Duration) func(int) time.Duration { return func(int) time.Duration { return d } }
	sweep(1000, each(100*time.Microsecond), 400, 400, 200) // 40 ms each
	sweep(1000, each(time.Millisecond), 400, 200, 100, 80, 80, 80, 60)
	sweep(200, each(5*time.Millisecond), 80, 80, 40)
	sweep(300, each(10*time.Microsecond), 80, 120, 100)
	sweep(1200, func(done int) time.Duration { // one slow batch
		if done == 180 {
			return time.Second
		}
		return 10 * time.Microsecond
	}, 180, 270, 135, 203, 305, 107)
}
