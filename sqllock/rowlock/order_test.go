package rowlock

import (
	"database/sql"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/holdfast-go/holdfast/internal/rowmap"
)

// TestRowOrder checks that keys of one type have one order, and that it is the engines' order
// where the engines agree.
func TestRowOrder(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 21, 7, 0, 0, 0, time.UTC)
	for _, want := range [][]any{
		{int64(math.MinInt64), int64(-1), int64(2), int64(10)},
		{int16(-3), int16(9), int16(10)},
		{uint64(2), uint64(10), uint64(math.MaxUint64)},
		{"", "1", "10", "2", "A", "a", "ab"},
		{[]byte{}, []byte{0}, []byte{0, 1}, []byte{0xff}},
		{[4]byte{0, 0, 0, 1}, [4]byte{0, 0, 0, 2}, [4]byte{1}},
		{uuid.UUID{15: 1}, uuid.UUID{0: 1}},
		{false, true},
		{-1.5, 0.0, 2.0},
		{at.Add(-time.Nanosecond), at.In(time.FixedZone("", 3600)), at.Add(1)},
		{sql.NullInt64{Int64: 9, Valid: true}, sql.NullInt64{Int64: 10, Valid: true}},
	} {
		got := slices.Clone(want)
		for range 20 {
			rand.Shuffle(len(got), func(i, j int) { got[i], got[j] = got[j], got[i] })
			slices.SortFunc(got, func(a, b any) int { return compare(rowmap.Plain(a), rowmap.Plain(b)) })
			for i := range got {
				if compare(rowmap.Plain(got[i]), rowmap.Plain(want[i])) != 0 {
					t.Fatalf("got %v, want %v", got, want)
				}
				if i > 0 && compare(rowmap.Plain(got[i-1]), rowmap.Plain(got[i])) == 0 {
					t.Errorf("%v and %v are one key", got[i-1], got[i])
				}
			}
		}
	}
	one := 1
	if compare(rowmap.Plain(&one), rowmap.Plain(int64(1))) != 0 || compare(rowmap.Plain((*int)(nil)), rowmap.Plain(nil)) != 0 {
		t.Error("a pointer is not what it points to")
	}
}
