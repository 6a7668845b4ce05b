package reaper

import (
	"context"
	"math"
	"reflect"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/dialect"
)

func TestJump(t *testing.T) {
	t.Parallel()
	start := time.Now()
	at := func(micros int64, requested, replied time.Duration) look {
		return look{micros, start.Add(requested), start.Add(replied)}
	}
	const s = time.Second
	for _, c := range []struct {
		name     string
		from, to look
		want     time.Duration
	}{
		{"together", at(0, 0, 0), at(10_000_000, 10*s, 10*s), 0},
		{"gained", at(0, 0, 0), at(70_000_000, 10*s, 10*s), 60 * s},
		{"lost", at(0, 0, 0), at(-50_000_000, 10*s, 10*s), -60 * s},
		{"stood still", at(5, 0, 0), at(5, 10*s, 10*s), -10 * s},
		{"second reply slow, read early", at(0, 0, 0), at(10_000_000, 10*s, 100*s), 0},
		{"second reply slow, read late", at(0, 0, 0), at(100_000_000, 10*s, 100*s), 0},
		{"first reply slow, read early", at(0, 0, 90*s), at(100_000_000, 100*s, 100*s), 0},
		{"first reply slow, read late", at(90_000_000, 0, 90*s), at(100_000_000, 100*s, 100*s), 0},
		{"more than a slow reply explains", at(0, 0, 0), at(101_000_000, 10*s, 100*s), s},
		{"to the end of time", at(0, 0, 0), at(math.MaxInt64/2, s, s), micros(math.MaxInt64) - s},
	} {
		if got := jump(c.from, c.to); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
	if got := jump(at(math.MaxInt64/2, 0, 0), at(0, s, s)); got > -100*365*24*time.Hour {
		t.Errorf("back from the end of time: %v", got)
	}
}

func TestListLength(t *testing.T) {
	t.Parallel()
	for n, want := range map[int]int{1: 1, 2: 2, 3: 4, 4: 4, 5: 8, 500: 512, maxBatch: 2048} {
		if got := core.PowerOfTwo(n); got != want {
			t.Errorf("%d: %d, want %d", n, got, want)
		}
	}
}

// TestPicked checks the condition for the rows of a batch: sorted, a group for each owner, each list
// padded.
func TestPicked(t *testing.T) {
	t.Parallel()
	s := listStmt{
		dialect: &dialect.Dialect{}, text: "{picked}", group: "owner = {owner} AND name IN ({keys}) AND (name, token) IN ({pairs})",
		second: func(f row) any { return f.token },
	}
	q := &onlyText{}
	found := []row{
		{owner: "b", key: []byte{1}, token: 7}, {owner: "a", key: []byte{3}}, {owner: "a", key: []byte{2}, token: 6}, {owner: "a", key: []byte{2}, token: 5},
	}
	if _, err := s.exec(t.Context(), q, found, "due"); err != nil {
		t.Fatal(err)
	}
	const want = "owner = $2 AND name IN ($3, $5, $7, $9) AND (name, token) IN (($3, $4), ($5, $6), ($7, $8), ($9, $10))" +
		" OR owner = $11 AND name IN ($12) AND (name, token) IN (($12, $13))"
	args := []any{
		"due", "a", []byte{2}, int64(5), []byte{2}, int64(6), []byte{3}, int64(0), []byte{3}, int64(0), "b", []byte{1}, int64(7),
	}
	if q.text != want || !reflect.DeepEqual(q.args, args) {
		t.Errorf("%s\nwith %v", q.text, q.args)
	}
}

// onlyText keeps what it is asked to run.
type onlyText struct {
	core.Querier

	text string
	args []any
}

func (q *onlyText) Exec(_ context.Context, text string, args ...any) (core.Result, error) {
	q.text, q.args = text, args
	return core.Result{}, nil
}
