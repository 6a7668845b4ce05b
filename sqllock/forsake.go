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
}

const firstForsaken = 100 * time.Millisecond

func (m *manager) forsake(a attempt) {
	m.forsaken.set(forsaken{string(a.name), a.owner, time.Now().Add(a.ttl), firstForsaken}, time.Now())
}

func (m *manager) sweep(ctx context.Context, due []forsaken) {
	for _, f := range due {
		c, cancel := context.WithTimeout(ctx, holdfast.CleanupTimeout)
		was, tell, err := m.store.free(c, []byte(f.name), f.owner)
		cancel()
		if tell {
			m.bell.ring([]byte(f.name))
		}
		at := time.Now().Add(f.pause)
		if err == nil && was || at.After(f.until) {
			continue
		}
		f.pause *= 2
		m.forsaken.set(f, at)
	}
}
