package faultproxy

import (
	"bytes"
	"context"
	"encoding/binary"
	"net"
	"sync"
	"sync/atomic"
)

// link is one client and its session at the server.
type link struct {
	p      *Proxy
	client *net.TCPConn
	server net.Conn
	once   sync.Once
	done   chan struct{}

	losing atomic.Pointer[Fault] // loses the next reply
	apart  atomic.Bool           // no data passes between the two any more
	held   atomic.Pointer[Fault] // waits for the answer to the held request
	stmts  prepared
}

func (l *link) run() {
	defer l.p.running.Done()
	// A server penalises clients that connect and send nothing.
	if !l.p.pass(l) {
		return
	}
	server, err := (&net.Dialer{}).DialContext(context.Background(), l.p.network, l.p.aim())
	if err != nil {
		l.close()
		return
	}
	l.p.mu.Lock()
	l.server = server
	l.p.mu.Unlock()
	select {
	case <-l.done: // cut while dialing
		_ = server.Close()
		return
	default:
	}
	l.p.running.Go(l.replies)
	l.requests()
}

// requests forwards the client's requests.
func (l *link) requests() {
	buf := make([]byte, 64<<10)
	for {
		n, err := l.client.Read(buf)
		if !l.p.pass(l) || l.apart.Load() {
			return
		}
		if n > 0 && cancels(buf[:n]) && l.p.holds.Load() {
			l.close()
			return
		}
		if n > 0 {
			f := l.p.take(l.stmts.request(buf[:n]))
			switch {
			case f == nil:
			case f.kind == loseReply:
				l.losing.Store(f)
			default:
				l.keep(f, buf[:n])
				return
			}
			if _, err := l.server.Write(l.p.edited(buf[:n])); err != nil {
				l.close()
				return
			}
		}
		if err != nil {
			l.close()
			return
		}
	}
}

// cancels reports whether a request asks PostgreSQL to cancel what another connection runs: the
// first message of a new connection, with the code 80877102.
func cancels(request []byte) bool {
	return len(request) >= 8 && binary.BigEndian.Uint32(request[4:]) == 80877102
}

// keep applies a fault that does not forward the request.
func (l *link) keep(f *Fault, request []byte) {
	l.apart.Store(true)
	if f.kind == hold {
		f.request, f.link = bytes.Clone(request), l
		l.held.Store(f)
		l.p.holds.Store(true)
	}
	f.strike()
	end(l.client, f.ending)
	if f.kind == loseRequest && f.ending != Silence {
		l.close()
	}
}

// replies forwards the server's answers.
func (l *link) replies() {
	defer func() {
		if f := l.held.Load(); f != nil {
			close(f.answered)
		}
	}()
	buf := make([]byte, 64<<10)
	for {
		n, err := l.server.Read(buf)
		switch {
		case l.held.Load() != nil:
			if err != nil {
				l.close()
				return
			}
			continue // answers without a reader
		case !l.p.pass(l):
			return
		case l.apart.Load():
			if err != nil {
				return // the client does not learn of it
			}
			continue
		}
		if n > 0 {
			l.stmts.reply(buf[:n])
			if f := l.losing.Load(); f != nil {
				l.apart.Store(true)
				f.strike()
				end(l.client, f.ending)
				if f.ending != Silence {
					l.close()
				}
				return
			}
			if _, err := l.client.Write(buf[:n]); err != nil {
				l.close()
				return
			}
		}
		if err != nil {
			l.close()
			return
		}
	}
}

// close ends both sides.
func (l *link) close() {
	l.once.Do(func() {
		l.p.mu.Lock()
		delete(l.p.links, l)
		close(l.done)
		server := l.server
		l.p.mu.Unlock()
		_ = l.client.Close()
		if server != nil {
			_ = server.Close()
		}
	})
}

func end(client *net.TCPConn, how Ending) {
	switch how {
	case Reset:
		_ = client.SetLinger(0)
		_ = client.Close()
	case Close:
		_ = client.Close()
	case Silence:
	}
}
