// Package faultproxy is a TCP proxy that loses what a test selects: a request, or the reply
// after the server has certainly done the work. Its behaviour depends on the bytes that pass,
// never on a clock.
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
	network  string
	listener net.Listener
	running  sync.WaitGroup

	accepted atomic.Int64
	refused  atomic.Int64
	fired    atomic.Int64
	holds    atomic.Bool // a request was held

	mu     sync.Mutex
	target string
	closed bool
	refuse bool
	slow   time.Duration
	open   chan struct{} // closed while bytes may pass
	faults []*Fault      // armed faults, in the order in which they are checked
	edit   func(request []byte)
	links  map[*link]struct{}
}

// New listens on a free port of 127.0.0.1 and connects each client to target, which is
// host:port.
func New(target string) (*Proxy, error) { return NewOn("tcp", target) }

// NewOn is New for a target of any network that net.Dial supports, such as "unix".
func NewOn(network, target string) (*Proxy, error) {
	listener, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &Proxy{network: network, target: target, listener: listener, open: make(chan struct{}), links: map[*link]struct{}{}}
	close(p.open)
	p.running.Add(1)
	go p.accept()
	return p, nil
}

// Addr returns the address for clients.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Aim sends the clients that connect from now on to another target. It leaves the others where they are.
func (p *Proxy) Aim(target string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.target = target
}

func (p *Proxy) aim() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.target
}

// Accepted counts the accepted clients.
func (p *Proxy) Accepted() int { return int(p.accepted.Load()) }

// Refused counts the clients that were not let in.
func (p *Proxy) Refused() int { return int(p.refused.Load()) }

// Fired counts the faults that struck.
func (p *Proxy) Fired() int { return int(p.fired.Load()) }

// Close ends every connection and waits until the proxy's goroutines have ended.
func (p *Proxy) Close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	_ = p.listener.Close() // closing it again is no error
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

// Refuse resets new connections while on is true.
func (p *Proxy) Refuse(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refuse = on
}

// Down refuses new connections and cuts the others, as if the server were gone.
func (p *Proxy) Down() {
	p.Refuse(true)
	p.CutAll()
}

// BlackHole holds back every byte, and every end of a connection, while on is true. Afterwards
// it delivers what it held back, as a network does that recovers.
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

// Slow delays data by this duration in each direction: a connection's first request, each later
// one and each answer. 0 ends the delay.
func (p *Proxy) Slow(by time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.slow = by
}

// Edit calls f with each request before it forwards the request; f may change bytes in place. It
// cannot add or remove bytes, because the protocols count them.
func (p *Proxy) Edit(f func(request []byte)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.edit = f
}

func (p *Proxy) edited(request []byte) []byte {
	p.mu.Lock()
	f := p.edit
	p.mu.Unlock()
	if f != nil {
		f(request)
	}
	return request
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
			p.refused.Add(1)
			end(l.client, Reset)
			continue
		}
		p.accepted.Add(1)
		go l.run()
	}
}

// pass waits during a black hole, and for the delay of a slow network. It returns false when the
// connection has ended.
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

// take disarms and returns the first fault that matches request.
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
