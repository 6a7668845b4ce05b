package prove

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/internal/test/faultproxy"
)

// lateBy bounds how long a held COMMIT is delayed before it reaches the server. If the key is
// claimed again, COMMIT is delivered at once, because then no claim waits for the undecided
// transaction.
const lateBy = time.Second

// line is the network between a pool of one connection and the server. The traffic may be
// encrypted, so line finds COMMIT by its position: it is the driver's first write after the
// statement that stores the result.
type line struct {
	mu      sync.Mutex
	proxies map[string]*faultproxy.Proxy // nil after close
	written int64                        // bytes that the driver wrote on the present connection
	passed  int64                        // bytes of those that passed the proxy
	stored  bool                         // the next write is COMMIT
	commit  int64                        // the offset of COMMIT; -1 before it is written

	once  sync.Once
	again chan struct{} // closed when a key is claimed after COMMIT was written
}

func newLine() *line {
	return &line{proxies: map[string]*faultproxy.Proxy{}, commit: -1, again: make(chan struct{})}
}

func (l *line) dial(ctx context.Context, network, address string) (net.Conn, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.proxies == nil {
		return nil, net.ErrClosed // a pool may still dial after its Close
	}
	p := l.proxies[address]
	if p == nil {
		var err error
		if p, err = faultproxy.NewOn(network, address); err != nil { //nolint:contextcheck // it lives longer than one connection
			return nil, err
		}
		l.proxies[address] = p
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", p.Addr())
	if err != nil {
		return nil, err
	}
	l.written, l.passed, l.stored = 0, 0, false
	return tap{conn, l}, nil
}

// tap is the driver's end of the line.
type tap struct {
	net.Conn

	l *line
}

func (t tap) Write(b []byte) (int, error) {
	t.l.mu.Lock()
	if t.l.stored {
		t.l.stored, t.l.commit = false, t.l.written
	}
	t.l.written += int64(len(b))
	t.l.mu.Unlock()
	return t.Conn.Write(b)
}

// match reports whether a request contains COMMIT. The proxy calls it for each request.
func (l *line) match(request []byte) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.passed += int64(len(request))
	return l.commit >= 0 && l.passed > l.commit
}

// observe runs after each statement.
func (l *line) observe(_ context.Context, s holdfast.Statement) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case s.Err != nil:
	case s.Name == "records.finish":
		l.stored = true
	case s.Name == "records.claim" && l.commit >= 0:
		l.once.Do(func() { close(l.again) })
	}
}

func (l *line) close() {
	l.mu.Lock()
	proxies := l.proxies
	l.proxies = nil
	l.mu.Unlock() // a proxy that closes waits for match
	for _, p := range proxies {
		p.Close()
	}
}

// proxy returns the only proxy, or an error if several addresses were dialed.
func (l *line) proxy() (*faultproxy.Proxy, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, p := range l.proxies {
		if len(l.proxies) == 1 {
			return p, nil
		}
	}
	return nil, fmt.Errorf("the pool dialed %d addresses through Options.Pool's dial, and COMMIT is cut off at one", len(l.proxies))
}

// lostCommit cuts the connection during COMMIT.
func lostCommit(ctx context.Context, t *trial) error {
	clients, err := t.racing(ctx)
	if err != nil {
		return err
	}
	for range 2 {
		for where, cut := range map[string]cut{
			"before the server got it": func(p *faultproxy.Proxy, l *line) *faultproxy.Fault {
				return p.LoseRequest(l.match, faultproxy.Reset)
			},
			"after the server ran it": func(p *faultproxy.Proxy, l *line) *faultproxy.Fault {
				return p.LoseReply(l.match, faultproxy.Reset)
			},
			"and reached the server late": func(p *faultproxy.Proxy, l *line) *faultproxy.Fault {
				return late(ctx, p.Hold(l.match, faultproxy.Reset), l.again)
			},
		} {
			err := errEarly
			for n := 0; errors.Is(err, errEarly) && n < 5; n++ {
				err = t.cutCommit(ctx, clients[0], where, cut)
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// errEarly: the connection was cut before COMMIT was written, which shows nothing. Bytes of a connection before it may
// pass late, and are counted as if they were its own.
var errEarly = errors.New("the connection was cut before COMMIT was written")

// cut prepares the fault that cuts COMMIT off.
type cut func(*faultproxy.Proxy, *line) *faultproxy.Fault

// late delivers the held request some time after the fault has struck.
func late(ctx context.Context, f *faultproxy.Fault, again <-chan struct{}) *faultproxy.Fault {
	go func() {
		select {
		case <-f.Struck():
		case <-ctx.Done():
			return
		}
		select {
		case <-again:
		case <-time.After(lateBy):
		}
		_ = f.Deliver() // fails if the connection has ended
	}()
	return f
}

func (t *trial) cutCommit(ctx context.Context, other *client, where string, arm cut) error {
	t.attempts.Add(1)
	l := newLine()
	defer l.close()
	c, err := t.newClient(ctx, l.dial, idempotency.Options{}, l.observe)
	if err != nil {
		return err
	}
	defer c.close(ctx)
	proxy, err := l.proxy()
	if err != nil {
		return err
	}
	// Closing a prepared statement has no answer on MySQL, so its bytes may still be on their way. They
	// have passed when the next request is answered.
	if err := c.pool.PingContext(ctx); err != nil {
		return err
	}
	l.mu.Lock()
	l.passed = l.written
	l.mu.Unlock()
	fault := arm(proxy, l)
	k := t.ids.Add(1)
	_, err = t.do(ctx, c, op(k), k)
	switch n, e := t.effects(ctx, k); {
	case !fault.Fired():
		return errors.Join(fmt.Errorf("COMMIT was not cut off %s", where), err)
	case e != nil:
		return e
	case n > 1:
		return brokenf("COMMIT was cut off %s, and the key that was claimed again has %d effects", where, n)
	case err == nil && n != 1:
		return brokenf("COMMIT was cut off %s, the key was answered as done, and it has %d effects", where, n)
	case n == 0 && errors.Is(err, driver.ErrBadConn) && !errors.Is(err, holdfast.ErrUnknown):
		return fmt.Errorf("%w: %w", errEarly, err)
	case err != nil && !errors.Is(err, holdfast.ErrUnknown):
		return err
	}
	return t.executedOnce(ctx, other, k)
}
