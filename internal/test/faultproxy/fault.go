package faultproxy

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"slices"
	"strings"
)

// Match selects the request that a fault applies to: the bytes that a client sent in one write.
// The proxy calls it under a lock, so it must not call the proxy.
type Match func(request []byte) bool

// Contains matches text anywhere in a request that runs a statement, ignoring case.
func Contains(text string) Match {
	want := bytes.ToLower([]byte(text))
	return func(request []byte) bool {
		is, _ := command(request)
		return is != comPrepare && bytes.Contains(bytes.ToLower(request), want)
	}
}

// Commit matches a request that runs a COMMIT: as text, as both the PostgreSQL and the MySQL
// protocol send it (not a setting such as autocommit), or after other statements in a PostgreSQL
// pipeline.
func Commit(request []byte) bool {
	rest, found := bytes.CutSuffix(bytes.ToLower(bytes.TrimRight(request, "\x00")), []byte("commit"))
	return found && (len(rest) == 0 || rest[len(rest)-1] < 'a' || rest[len(rest)-1] > 'z') || bindsCommit(request)
}

// bindsCommit looks for a Bind of a prepared COMMIT: one that the same request parsed, or that
// pgx named after its text before.
func bindsCommit(request []byte) bool {
	digest := sha256.Sum256([]byte("commit"))
	names := map[string]bool{"stmtcache_" + hex.EncodeToString(digest[:24]): true}
	for len(request) >= 5 {
		n := int(binary.BigEndian.Uint32(request[1:5])) + 1
		if n < 5 || n > len(request) {
			return false // not of that protocol
		}
		fields := bytes.SplitN(request[5:n], []byte{0}, 3)
		if len(fields) == 3 && request[0] == 'P' {
			names[string(fields[0])] = strings.EqualFold(string(fields[1]), "commit")
		}
		if len(fields) == 3 && request[0] == 'B' && names[string(fields[1])] {
			return true
		}
		request = request[n:]
	}
	return false
}

// Nth matches the n-th request from now on, counted from 1.
func Nth(n int) Match {
	return func([]byte) bool {
		n--
		return n == 0
	}
}

// Ending is the effect of a fault on the client's connection.
type Ending int

// The endings of a connection.
const (
	Close   Ending = iota // it is closed in order
	Reset                 // it is reset
	Silence               // it stays open, and no more data arrives
)

type kind int

const (
	loseRequest kind = iota
	loseReply
	hold
)

// Fault is armed once and strikes once.
type Fault struct {
	proxy  *Proxy
	kind   kind
	match  Match
	ending Ending
	then   []func()

	struck   chan struct{}
	request  []byte // held
	link     *link
	answered chan struct{} // the server has ended the session of the held request
}

// LoseRequest ends the connection instead of forwarding the request. With Silence the server
// keeps its session. It calls then before the client can notice.
func (p *Proxy) LoseRequest(match Match, ending Ending, then ...func()) *Fault {
	return p.arm(loseRequest, match, ending, then)
}

// LoseReply forwards the request and waits for the server's answer, so that the server has
// certainly run it. Then it ends the connection instead of forwarding the answer. It calls then
// before the client can notice.
func (p *Proxy) LoseReply(match Match, ending Ending, then ...func()) *Fault {
	return p.arm(loseReply, match, ending, then)
}

// Hold ends the client's connection, and keeps the request and the server's session until
// Deliver. It calls then before the client can notice. A driver whose connection ends asks
// PostgreSQL to cancel what ran there; the proxy drops such requests from then on, because a late
// one would cancel the request that Deliver sends.
func (p *Proxy) Hold(match Match, ending Ending, then ...func()) *Fault {
	return p.arm(hold, match, ending, then)
}

func (p *Proxy) arm(k kind, match Match, ending Ending, then []func()) *Fault {
	f := &Fault{
		proxy: p, kind: k, match: match, ending: ending, then: then,
		struck: make(chan struct{}), answered: make(chan struct{}),
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.faults = append(p.faults, f)
	return f
}

// Struck returns a channel that is closed when the fault has struck.
func (f *Fault) Struck() <-chan struct{} { return f.struck }

// Fired reports whether the fault has struck.
func (f *Fault) Fired() bool {
	select {
	case <-f.struck:
		return true
	default:
		return false
	}
}

// Disarm removes a fault that has not struck.
func (f *Fault) Disarm() {
	f.proxy.mu.Lock()
	defer f.proxy.mu.Unlock()
	f.proxy.faults = slices.DeleteFunc(f.proxy.faults, func(other *Fault) bool { return other == f })
}

// Deliver sends the request that Hold kept, and no more after it. It waits until the server has run
// the request and has ended the session.
func (f *Fault) Deliver() error {
	if f.kind != hold || !f.Fired() {
		return errors.New("faultproxy: nothing is held")
	}
	if _, err := f.link.server.Write(f.request); err != nil {
		return err
	}
	// An end in order: the server runs all of the request first. To close the socket at the first
	// bytes of the answer could take the rest of the request from it.
	if half, ok := f.link.server.(interface{ CloseWrite() error }); ok {
		if err := half.CloseWrite(); err != nil {
			return err
		}
	}
	<-f.answered
	return nil
}

func (f *Fault) strike() {
	f.proxy.fired.Add(1)
	close(f.struck) // first: then may let the client notice
	for _, then := range f.then {
		then()
	}
}
