package sqllock

import (
	"context"
	"time"

	"github.com/holdfast-go/holdfast"
)

// forsaken is a term that nobody wants, or an attempt that may yet be granted:
// go-sql-driver's cancelled statements go on at the server, and an answer may be
// lost. It is released in the background, again and again for as long as it
// could last.
type forsaken struct {
	name  string
	owner owner
	until time.Time
	pause time.Duration
	owed  bool // Close waits for it
	claim bool
}

const (
	firstForsaken = 100 * time.Millisecond
	// owedPause is the pause after which Close does not wait for it any more: a
	// statement that was cancelled at the end has been run, or is stuck.
	owedPause = 4 * firstForsaken
)

func (m *manager) forsake(a attempt) {
	m.flights.Add(1)
	m.forsaken.set(forsaken{string(a.name), a.owner, time.Now().Add(a.ttl), firstForsaken, true, a.token != 0}, time.Now())
}

func (m *manager) sweep(ctx context.Context, due []forsaken) {
	for _, f := range m.sweepClaims(ctx, due) {
		c, cancel := context.WithTimeout(ctx, holdfast.CleanupTimeout)
		freed, err := m.store.free(c, freeing{name: []byte(f.name), owner: f.owner})
		cancel()
		if freed.tell {
			m.bell.ring([]byte(f.name))
		}
		m.swept(f, err == nil && freed.was)
	}
}

// swept has what is not done yet done again.
func (m *manager) swept(f forsaken, done bool) {
	at := time.Now().Add(f.pause)
	over := done || at.After(f.until)
	f.pause *= 2
	if f.owed && (over || f.pause >= owedPause) {
		f.owed = false
		m.flights.Add(-1)
	}
	if !over {
		m.forsaken.set(f, at)
	}
}
