package reaper

import "context"

// SetClock replaces the reading of the database's clock; read is the real one.
func (r *Reaper) SetClock(f func(ctx context.Context, read func(context.Context) (int64, error)) (int64, error)) {
	read := r.clock.read
	r.clock.read = func(ctx context.Context) (int64, error) { return f(ctx, read) }
}
