package dbtest

import (
	"context"
	"encoding/binary"
	"net"
	"net/url"
	"slices"
	"sync"
	"time"
)

// A new session of PostgreSQL is a new process that reads the catalogs anew, which costs more than
// most tests: the suites of optimistic, register and reaper took 46 s of the server's processor time with new
// sessions, and 25 to 29 with kept ones. So the sessions that pools close are kept, and the next dial gets one of them, for its
// schema. In between, DISCARD ALL resets it, as PgBouncer does in session mode. A session is kept
// only if it is idle: one that a test broke off, or left in a transaction, ends as usual. RESET
// search_path would go back to the schema for which the session was made.
//
// A process makes only a few sessions at once. On a busy machine more of them are slower to make
// than the callers wait, and the server makes a process for those that are given up, too: it then
// makes hardly anything else.

const (
	// keptSessions is the maximum number of sessions that a process keeps idle.
	keptSessions = 40
	// madeAtOnce is how many sessions the process makes at the same time.
	madeAtOnce   = 4
	resetTimeout = 5 * time.Second

	protocol3  = 3 // the major version in a startup message; a request to cancel has another number there
	terminate  = 'X'
	headerSize = 5 // of a message: its type, and its length without the type
)

// sessions holds the idle sessions of this process, the one that was closed last at the end.
var sessions struct {
	mu     sync.Mutex
	idle   []*session
	server map[string]string // by the schemas whose pools share sessions
}

var (
	// making holds a token for each session that is being made.
	making = make(chan struct{}, madeAtOnce)
	// kept tells a dial that waits that a session was kept.
	kept = make(chan struct{}, 1)
)

// session is a connection that has authenticated, and what the server sent after that.
type session struct {
	net.Conn

	schema   string // to which search_path is set
	url      string // without the schema, and without what the server does not see
	greeting []byte
}

// keepSessions says that the pools of this schema share sessions, but not those through a proxy.
func keepSessions(schema, databaseURL string) {
	u, err := url.Parse(databaseURL)
	if err != nil {
		return
	}
	sessions.mu.Lock()
	defer sessions.mu.Unlock()
	if sessions.server == nil {
		sessions.server = map[string]string{}
	}
	sessions.server[schema] = u.Host
}

// forgetSchema is the opposite of keepSessions, before the schema is dropped.
func forgetSchema(schema string) {
	sessions.mu.Lock()
	defer sessions.mu.Unlock()
	delete(sessions.server, schema)
}

// endSessions ends the idle sessions.
func endSessions() {
	sessions.mu.Lock()
	defer sessions.mu.Unlock()
	for _, s := range sessions.idle {
		s.end()
	}
	sessions.idle = nil
}

func (s *session) end() {
	_, _ = s.Write([]byte{terminate, 0, 0, 0, 4})
	_ = s.Close()
}

// ask sends a message to the idle session, and waits until it is idle again.
func (s *session) ask(kind byte, body string) error {
	if err := s.SetDeadline(time.Now().Add(resetTimeout)); err != nil {
		return err
	}
	head := binary.BigEndian.AppendUint32([]byte{kind}, uint32(len(body)+4)) //nolint:gosec // it is short
	if _, err := s.Write(append(head, body...)); err != nil {
		return err
	}
	var answers stream
	for buffer, done := make([]byte, 512), false; !done; {
		n, err := s.Read(buffer)
		if err != nil {
			return err
		}
		answers.read(buffer[:n], func(kind byte, _ []byte) {
			if kind == 'E' {
				err = net.ErrClosed
			}
			done = kind == 'Z'
		})
		if err != nil {
			return err
		}
	}
	return s.SetDeadline(time.Time{})
}

// keptDial returns a dial for the pools of a PostgreSQL database, or nil if its sessions are not
// kept.
func keptDial(databaseURL string) func(ctx context.Context, network, address string) (net.Conn, error) {
	u, err := url.Parse(databaseURL)
	if err != nil {
		return nil
	}
	params := u.Query()
	schema := params.Get("search_path")
	for _, own := range []string{"search_path", "default_query_exec_mode", "pool_max_conns"} {
		params.Del(own)
	}
	u.RawQuery = params.Encode()
	sessions.mu.Lock()
	defer sessions.mu.Unlock()
	if server, kept := sessions.server[schema]; !kept || server != u.Host {
		return nil
	}
	var dialer net.Dialer
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		for {
			s := takeSession(u.String(), schema)
			if s == nil {
				select {
				case <-kept:
					continue
				case making <- struct{}{}:
				case <-ctx.Done():
					return nil, context.Cause(ctx)
				}
				made := sync.OnceFunc(func() { <-making })
				c, err := dialer.DialContext(ctx, network, address)
				if err != nil {
					made()
					return nil, err
				}
				return &keptConn{session: &session{Conn: c, schema: schema, url: u.String()}, made: made, first: make(chan struct{})}, nil
			}
			if s.ask('Q', "SET search_path = "+schema+"\x00") != nil { // a test has ended it
				_ = s.Close()
				continue
			}
			s.schema = schema
			return &keptConn{session: s, kept: true, made: func() {}, first: make(chan struct{}), redial: func() (net.Conn, error) {
				ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), resetTimeout)
				defer cancel()
				return dialer.DialContext(ctx, network, address)
			}}, nil
		}
	}
}

// takeSession prefers a session that knows the schema's tables.
func takeSession(databaseURL, schema string) *session {
	sessions.mu.Lock()
	defer sessions.mu.Unlock()
	found := -1
	for i, s := range slices.Backward(sessions.idle) {
		if s.url == databaseURL && (found < 0 || s.schema == schema) {
			if found = i; s.schema == schema {
				break
			}
		}
	}
	if found < 0 {
		return nil
	}
	s := sessions.idle[found]
	sessions.idle = slices.Delete(sessions.idle, found, found+1)
	return s
}

func keepSession(s *session) {
	sessions.mu.Lock()
	defer sessions.mu.Unlock()
	sessions.idle = append(sessions.idle, s)
	select {
	case kept <- struct{}{}:
	default:
	}
	if len(sessions.idle) > keptSessions {
		sessions.idle[0].end()
		sessions.idle = sessions.idle[1:]
	}
}

// keptConn is a connection to a session as a driver sees it. Reads and writes may come from
// two goroutines.
type keptConn struct {
	redial func() (net.Conn, error)
	made   func() // the session is made, or never will be
	// first is closed by the first write, or by Close. What a read returns depends on that write,
	// and a driver may read before it: pgx does so when a write seems slow.
	first chan struct{}

	mu      sync.Mutex
	session *session
	begun   bool   // the driver has written its first message
	kept    bool   // the session has an earlier driver's greeting
	plain   bool   // what passes is not looked at: encryption, or a request to cancel
	replay  []byte // what a driver reads first on a kept session
	stream  stream
	reading int
	idle    bool // the server waits for a message, outside a transaction
	over    bool // the driver has ended the session
}

// Read implements net.Conn.
func (c *keptConn) Read(p []byte) (int, error) {
	c.mu.Lock()
	c.reading++
	c.mu.Unlock()
	<-c.first
	c.mu.Lock()
	if len(c.replay) > 0 {
		n := copy(p, c.replay)
		c.replay = c.replay[n:]
		c.reading--
		c.mu.Unlock()
		return n, nil
	}
	s := c.session
	c.mu.Unlock()
	n, err := s.Read(p)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reading--
	if !c.plain {
		c.stream.read(p[:n], c.answered)
	}
	return n, err
}

// answered notes a message of the server.
func (c *keptConn) answered(kind byte, body []byte) {
	c.idle = kind == 'Z' && body[0] == 'I'
	const authenticated = 0
	if c.stream.greeted || kind != 'R' && c.stream.greeting == nil || kind == 'R' && binary.BigEndian.Uint32(body) != authenticated {
		return
	}
	head := binary.BigEndian.AppendUint32([]byte{kind}, uint32(len(body)+4)) //nolint:gosec // it came as one
	c.stream.greeting = slices.Concat(c.stream.greeting, head, body)
	if c.idle {
		c.stream.greeted, c.session.greeting = true, c.stream.greeting
		c.made()
	}
}

// Write implements net.Conn.
func (c *keptConn) Write(p []byte) (int, error) {
	c.mu.Lock()
	if !c.begun {
		c.begin()
		switch startup := len(p) > headerSize && binary.BigEndian.Uint16(p[4:]) == protocol3; {
		case startup && c.kept:
			c.replay, c.idle = c.session.greeting, true
			c.mu.Unlock()
			return len(p), nil
		case startup:
		case c.kept: // for another session: this one is a request
			s := c.session
			c.session = &session{Conn: closed{}}
			keepSession(s)
			other, err := c.redial()
			if err != nil {
				c.mu.Unlock()
				return 0, err
			}
			c.session = &session{Conn: other}
			fallthrough
		default:
			c.plain = true
			c.made() // what it is for cannot be seen
		}
	}
	if c.idle && len(p) == headerSize && p[0] == terminate {
		c.over = true
		c.mu.Unlock()
		return len(p), nil
	}
	c.idle = false
	s := c.session
	c.mu.Unlock()
	return s.Write(p)
}

// Close implements net.Conn.
func (c *keptConn) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.made()
	s := c.session
	c.session = &session{Conn: closed{}}
	if !c.begun {
		c.begin()
	}
	if c.over && c.reading == 0 && len(s.greeting) > 0 && len(c.stream.part) == 0 && s.ask('Q', "DISCARD ALL\x00") == nil {
		keepSession(s)
		return nil
	}
	return s.Close()
}

func (c *keptConn) begin() {
	c.begun = true
	close(c.first)
}

func (c *keptConn) own() net.Conn {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.session.Conn
}

// LocalAddr implements net.Conn.
func (c *keptConn) LocalAddr() net.Addr { return c.own().LocalAddr() }

// RemoteAddr implements net.Conn.
func (c *keptConn) RemoteAddr() net.Addr { return c.own().RemoteAddr() }

// SetDeadline implements net.Conn.
func (c *keptConn) SetDeadline(t time.Time) error { return c.own().SetDeadline(t) }

// SetReadDeadline implements net.Conn.
func (c *keptConn) SetReadDeadline(t time.Time) error { return c.own().SetReadDeadline(t) }

// SetWriteDeadline implements net.Conn.
func (c *keptConn) SetWriteDeadline(t time.Time) error { return c.own().SetWriteDeadline(t) }

// stream cuts what a server sends into messages.
type stream struct {
	part     []byte
	greeted  bool
	greeting []byte
}

func (s *stream) read(p []byte, message func(kind byte, body []byte)) {
	s.part = append(s.part, p...)
	for len(s.part) >= headerSize {
		size := 1 + int(binary.BigEndian.Uint32(s.part[1:]))
		if len(s.part) < size {
			return
		}
		message(s.part[0], s.part[headerSize:size])
		s.part = s.part[size:]
	}
}

// closed is a connection that is not this driver's any more.
type closed struct{}

func (closed) LocalAddr() net.Addr              { return &net.TCPAddr{} }
func (closed) RemoteAddr() net.Addr             { return &net.TCPAddr{} }
func (closed) Read([]byte) (int, error)         { return 0, net.ErrClosed }
func (closed) Write([]byte) (int, error)        { return 0, net.ErrClosed }
func (closed) Close() error                     { return net.ErrClosed }
func (closed) SetDeadline(time.Time) error      { return net.ErrClosed }
func (closed) SetReadDeadline(time.Time) error  { return net.ErrClosed }
func (closed) SetWriteDeadline(time.Time) error { return net.ErrClosed }
