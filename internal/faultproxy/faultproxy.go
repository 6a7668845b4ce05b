// Package faultproxy is a TCP proxy that loses what a test tells it to lose:
// the request, or the reply after the server surely did the work. What it does
// follows from the bytes that pass, never from a clock.
package faultproxy

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// Proxy stands between clients and one server.
type Proxy struct {
	target   string
	listener net.Listener
	running  sync.WaitGroup

	accepted atomic.Int64
	fired    atomic.Int64

	mu     sync.Mutex
	closed bool
	refuse bool
	slow   time.Duration
	open   chan struct{} // closed while bytes may pass
	faults []*Fault      // armed, in the order in which they are asked
	links  map[*link]struct{}
}

// New listens on a free port of 127.0.0.1 and connects each client to target,
// which is host:port.
func New(target string) (*Proxy, error) {
	listener, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &Proxy{target: target, listener: listener, open: make(chan struct{}), links: map[*link]struct{}{}}
	close(p.open)
	p.running.Add(1)
	go p.accept()
	return p, nil
}

// Addr is what clients connect to.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Accepted counts the clients that were let in.
func (p *Proxy) Accepted() int { return int(p.accepted.Load()) }

// Fired counts the faults that struck.
func (p *Proxy) Fired() int { return int(p.fired.Load()) }

// Close ends every connection and waits until nothing of the proxy runs.
func (p *Proxy) Close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	_ = p.listener.Close() // closing it again is no fault
	p.CutAll()
	p.running.Wait()
}

// CutAll ends every connection, on both sides.
func (p *Proxy) CutAll() {
	p.mu.Lock()
	links := make([]*link, 0, len(p.links))
	for l := range p.links {
		links = append(links, l)
	}
	p.mu.Unlock()
	for _, l := range links {
		l.close()
	}
}

// Refuse resets new connections while it is on.
func (p *Proxy) Refuse(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refuse = on
}

// Down refuses new connections and cuts the others: no server any more.
func (p *Proxy) Down() {
	p.Refuse(true)
	p.CutAll()
}

// BlackHole keeps every byte, and every end of a connection, back while it is
// on. Like a network that heals, it then delivers what it kept.
func (p *Proxy) BlackHole(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.open:
		if on {
			p.open = make(chan struct{})
		}
	default:
		if !on {
			close(p.open)
		}
	}
}

// Slow keeps what passes back for so long, in each direction: a connection's
// first request, each later one and each answer. 0 ends it.
func (p *Proxy) Slow(by time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.slow = by
}

func (p *Proxy) accept() {
	defer p.running.Done()
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		l := &link{p: p, client: client.(*net.TCPConn), done: make(chan struct{})} //nolint:forcetypeassert // of a TCP listener
		p.mu.Lock()
		letIn := !p.closed && !p.refuse
		if letIn {
			p.links[l] = struct{}{}
			p.running.Add(1)
		}
		p.mu.Unlock()
		if !letIn {
			end(l.client, Reset)
			continue
		}
		p.accepted.Add(1)
		go l.run()
	}
}

// pass waits while a black hole is on, and for as long as a slow network takes;
// false when the connection ended.
func (p *Proxy) pass(l *link) bool {
	p.mu.Lock()
	open, slow := p.open, p.slow
	p.mu.Unlock()
	if slow > 0 {
		late := time.NewTimer(slow)
		defer late.Stop()
		select {
		case <-l.done:
			return false
		case <-late.C:
		}
	}
	select {
	case <-l.done:
		return false
	case <-open:
		return true
	}
}

// take disarms and returns the first fault that is meant for request.
func (p *Proxy) take(request []byte) *Fault {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, f := range p.faults {
		if f.match(request) {
			p.faults = append(p.faults[:i:i], p.faults[i+1:]...)
			return f
		}
	}
	return nil
}
