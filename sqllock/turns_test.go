package sqllock

import (
	"testing"
	"time"
)

// TestTurns checks when a process frees a lock for others, and when it asks for it again.
func TestTurns(t *testing.T) {
	t.Parallel()
	const least, rest = 20 * time.Millisecond, 30 * time.Millisecond
	start := time.Now()
	at := func(ms int) time.Time { return start.Add(time.Duration(ms) * time.Millisecond) }
	want := func(what string, got, want bool) {
		t.Helper()
		if got != want {
			t.Errorf("%s: got %v", what, got)
		}
	}
	var alone turns
	alone.begin(at(0))
	want("nobody else waits", alone.over(at(3_600_000), least, rest), false)
	want("and it does not rest", alone.resting(at(3_600_000)), false)

	var x turns
	x.begin(at(0))
	x.rivals = true
	want("within its turn", x.over(at(20), least, rest), false)
	want("after its turn", x.over(at(21), least, rest), true)
	want("it rests", x.resting(at(50)), true)
	if next := x.next(at(21)); next != at(23) {
		t.Errorf("it looks again after %v", next.Sub(at(21)))
	}
	want("until the rest is over", x.resting(at(51)), false)
	if next := x.next(at(50)); next != at(51) {
		t.Errorf("it looks again at the end of the rest, not %v before", at(51).Sub(next))
	}

	x.begin(at(3_600_000)) // no call came, and the process was stopped for an hour
	x.rivals = true        // their rows are still there
	want("those who did not come are ignored", x.over(at(3_600_149), least, rest), false)
	want("but not for ever", x.over(at(3_600_150), least, rest), true)

	x.alone()
	want("nobody else waits any more", x.resting(at(3_600_301)), false)
	want("so that its turn goes on", x.over(at(3_700_000), least, rest), false)
	x.taken()
	want("another process has had the lock", x.resting(at(3_700_001)), false)
	x.begin(at(3_700_002))
	want("and is expected to want it again", x.over(at(3_700_030), least, rest), true)
}
