package sqllock

import (
	"context"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/lockname"
)

const (
	// firstLook and lastLook are the first and the longest pause between looks for processes that
	// wait for a lock while no call of this process does. A process that waits longer polls.
	firstLook, lastLook = 50 * time.Millisecond, 800 * time.Millisecond
	// rivalsEvery is how often a process that hands a lock over among its own calls reads whether
	// other processes wait for it.
	// The first time it reads sooner: processes that wait have announced it by then.
	rivalsEvery, rivalsFirst = 100 * time.Millisecond, 20 * time.Millisecond
	// restNotified is how long a process leaves a lock to others whom the release notifies, and
	// restPolled to those who poll: their goroutine may not run for some intervals. The rest ends
	// when one of them has taken the lock.
	restNotified, restPolled = 20 * time.Millisecond, 50 * time.Millisecond
	// ignored is for how many rests a process ignores others who did not take the lock.
	ignored = 5
)

// turns shares one lock between processes. While no other process waits for it, a process hands it over
// among its own calls. Otherwise it frees the lock after its turn, and does not ask for it until
// another process has had it, or until the rest is over. A turn is one lease where a release
// notifies the others, and longer where they poll.
type turns struct {
	since  time.Time     // when the turn, or the rest after it, began
	token  int64         // of the last lease of this process
	rivals bool          // other processes waited at the last look
	looks  bool          // a look is scheduled
	looked bool          // and there was one before
	look   time.Duration // the pause before the last look
	until  time.Time     // the end of the rest; zero if there is none
	ignore time.Time     // rivals are ignored until then
}

// begin begins a turn.
func (t *turns) begin(now time.Time) {
	if !t.until.IsZero() { // no other process came
		t.rivals, t.ignore = false, now.Add(ignored*t.until.Sub(t.since))
	}
	t.since, t.until = now, time.Time{}
}

// taken ends the rest: another process has the lock, or has had it, and is likely to want it again.
func (t *turns) taken() { t.rivals, t.until = true, time.Time{} }

// saw records the token of the lock.
func (t *turns) saw(token int64) {
	if token > t.token {
		t.taken()
	}
}

// alone ends the rest: no other process waits.
func (t *turns) alone() { t.rivals, t.until = false, time.Time{} }

func (t *turns) resting(now time.Time) bool { return now.Before(t.until) }

// next returns when a resting process reads the lock again.
func (t *turns) next(now time.Time) time.Time {
	if next := now.Add(minPoll); next.Before(t.until) {
		return next
	}
	return t.until
}

// over ends the turn if others wait and it has lasted longer than least. The rest begins then.
func (t *turns) over(now time.Time, least, rest time.Duration) bool {
	if !t.rivals || now.Sub(t.since) <= least || now.Before(t.ignore) {
		return false
	}
	t.since, t.until = now, now.Add(rest)
	return true
}

// yields reports whether the process's turn is over. The keeper's Mu is held.
func (m *leases) yields(q *queue, now time.Time) bool {
	t := &q.turns
	turn, rest := 2*min(m.most, hotPoll), restPolled // others find the lock free with their next poll
	if !m.k.Notifier.Mute() || m.k.Waker.Works() {
		turn, rest = 0, restNotified
	}
	if t.over(now, max(turn, m.k.Turn), rest) {
		return true
	}
	if t.looked {
		m.lookIn(q, rivalsEvery)
	} else {
		m.lookIn(q, rivalsFirst)
	}
	return false
}

// lookIn schedules a look for rivals. The keeper's Mu is held.
func (m *leases) lookIn(q *queue, pause time.Duration) {
	if !q.turns.looks {
		q.turns.looks = true
		m.rivals.Set(q, time.Now().Add(max(pause, m.least)))
	}
}

// findRivals reads for which locks other processes wait.
func (m *leases) findRivals(ctx context.Context, due []*queue) {
	ctx, cancel := context.WithTimeout(ctx, core.CleanupBound())
	defer cancel()
	for _, part := range lockname.ByOwner(m.contended(due), func(q *queue) lockname.Name { return q.name }) {
		for some := range slices.Chunk(part, pollBatch) {
			m.findRivalsFor(ctx, some)
		}
	}
}

// findRivalsFor is findRivals for locks of one owner.
func (m *leases) findRivalsFor(ctx context.Context, part []*queue) {
	names := make([]lockname.Name, len(part))
	for i, q := range part {
		names[i] = q.name
	}
	var waited map[lockname.Name]bool
	err := m.statements.OnConn(ctx, func(q core.Querier) (err error) {
		waited, err = m.statements.sql.Rivals.Run(ctx, q, names, m.statements.Self)
		return err
	})
	m.k.Mu.Lock()
	for _, q := range part {
		q.turns.looks, q.turns.looked = false, true
		if q.turns.rivals = err == nil && waited[q.name]; q.turns.rivals {
			m.k.Waker.Want(q.name)
		}
		if q.local != nil && len(q.waiters) == 0 && q.turns.look > 0 && q.turns.look < lastLook {
			q.turns.look *= 2
			m.lookIn(q, q.turns.look)
		}
	}
	m.k.Mu.Unlock()
}

// contended returns the queues of locks that other processes may wait for: calls of this process
// wait, too, or it has the lock.
func (m *leases) contended(due []*queue) []*queue {
	m.k.Mu.Lock()
	defer m.k.Mu.Unlock()
	return slices.DeleteFunc(due, func(q *queue) bool {
		if len(q.waiters) > 0 || q.local != nil {
			return false
		}
		q.turns.looks = false
		return true
	})
}
