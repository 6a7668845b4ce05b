package reaper

import (
	"math"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/core"
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
	for n, want := range map[int]int{1: 1, 2: 2, 3: 4, 4: 4, 5: 8, 500: 512, MaxBatch: 2048} {
		if got := core.PowerOfTwo(n); got != want {
			t.Errorf("%d: %d, want %d", n, got, want)
		}
	}
	args := arguments([][]byte{{1}, {2}, {3}}, 7)
	if len(args) != 5 || args[4].([]byte)[0] != 3 {
		t.Errorf("arguments %v", args)
	}
}
