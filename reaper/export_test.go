package reaper

import "context"

// SetClock replaces the reading of the database's clock; read is the real one.
func (r *Reaper) SetClock(f func(ctx context.Context, read func(context.Context) (int64, error)) (int64, error)) {
	read := r.clock.read
	r.clock.read = func(ctx context.Context) (int64, error) { return f(ctx, read) }
}

// RoundPosition makes the first of the program's own tables compare expiries with a unit too little, as
// an engine that rounds a parameter down. Each row is then after itself.
func (r *Reaper) RoundPosition() {
	for _, task := range r.tasks {
		if t, own := task.(*table); own {
			rounded := *t.expiry
			rounded.Right = "(" + rounded.Right + " - 1)"
			t.expiry = &rounded
			t.compile(t.found.Index)
			return
		}
	}
}
