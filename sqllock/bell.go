package sqllock

import (
	"context"
	"encoding/hex"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/internal/core"
)

const (
	// idleBell is how long the connection is kept that nobody needs, and
	// bellTest how long a bell may take to be heard that was rung as a test.
	idleBell = 10 * time.Second
	bellTest = 2 * time.Second
	// silence is how long it is not tried again where the test was not heard,
	// as behind PgBouncer in transaction mode.
	silence = time.Minute
)

// bell wakes other processes when a lock is released, on engines that can: one
// connection a process listens while somebody waits. It is never the only
// signal, so that one which is lost costs a poll's interval and no more.
type bell struct {
	m      *manager
	listen func(ctx context.Context, statement string, ready func(), each func(payload string)) error
	name   string

	hears  atomic.Bool
	rings  *agenda[string]
	mu     sync.Mutex
	needed time.Time     // last
	ended  chan struct{} // of the goroutine that listens, or nil
	never  bool          // the handle cannot
	after  time.Time     // when to try
}

func newBell(m *manager, listen func(ctx context.Context, statement string, ready func(), each func(payload string)) error) *bell {
	b := &bell{m: m, listen: listen, name: "holdfast_" + hex.EncodeToString([]byte(m.store.id))}
	b.never = m.store.dialect.Leases.Listen == ""
	b.rings = newAgenda(m.ctx, 0, b.send)
	return b
}

// heard is whether a bell that rings now will be heard.
func (b *bell) heard() bool { return b.hears.Load() }

// ring tells the others that a lock is free.
func (b *bell) ring(name []byte) {
	b.rings.set(hex.EncodeToString(name), time.Now())
}

func (b *bell) send(ctx context.Context, payloads []string) {
	ctx, cancel := context.WithTimeout(ctx, bellTest)
	defer cancel()
	s := b.m.store
	stmt := s.dialect.Compile("locks.ring", s.dialect.Leases.Ring)
	for _, p := range payloads {
		err := s.onConn(ctx, "", func(q core.Querier) error {
			_, err := stmt.Exec(ctx, q, b.name, p)
			return err
		})
		if err != nil {
			return // they will look
		}
	}
}

// need keeps the connection, or opens it.
func (b *bell) need() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.needed = time.Now()
	if b.never || b.ended != nil || b.needed.Before(b.after) || b.m.ctx.Err() != nil {
		return
	}
	b.ended = make(chan struct{})
	go b.run(b.ended)
}

// wait waits for the goroutine's end; the manager's ctx has ended.
func (b *bell) wait() {
	b.rings.wait()
	b.mu.Lock()
	ended := b.ended
	b.mu.Unlock()
	if ended != nil {
		<-ended
	}
}

// run listens until nobody has needed it for a while. After an error it ends;
// whoever needs it opens another connection.
func (b *bell) run(ended chan struct{}) {
	defer close(ended)
	ctx, cancel := context.WithCancel(b.m.ctx)
	defer cancel()
	var opened atomic.Int64 // when the test was rung
	go b.watch(ctx, cancel, &opened)
	test := newOwner().String()
	err := b.listen(ctx, strings.ReplaceAll(b.m.store.dialect.Leases.Listen, "{bell}", b.m.store.dialect.Ident(b.name)), func() {
		opened.Store(time.Now().UnixNano())
		b.rings.set(test, time.Now())
	}, func(payload string) {
		if payload == test {
			b.hears.Store(true)
			b.m.lookSoon()
		} else if name, err := hex.DecodeString(payload); err == nil {
			b.m.rung(name)
		}
	})
	pause := time.Second
	if !b.hears.Swap(false) && opened.Load() != 0 {
		pause = silence
	}
	b.mu.Lock()
	b.ended = nil
	b.never = b.never || errors.Is(err, core.ErrNoListener)
	b.after = time.Now().Add(pause)
	b.mu.Unlock()
	b.m.lookSoon()
}

// watch ends what nobody needs, and what does not hear its test.
func (b *bell) watch(ctx context.Context, cancel context.CancelFunc, opened *atomic.Int64) {
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		b.mu.Lock()
		idle := time.Since(b.needed) > idleBell
		b.mu.Unlock()
		at := opened.Load()
		if idle || at != 0 && !b.hears.Load() && time.Since(time.Unix(0, at)) > bellTest {
			cancel()
		}
	}
}
