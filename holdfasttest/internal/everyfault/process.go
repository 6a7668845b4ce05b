package everyfault

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/holdfast-go/holdfast"
)

// Process is one of the program. Once killed, nothing of it reaches the database or the outside any more.
type Process struct {
	*plan

	ctx     context.Context //nolint:containedctx // it is the process's life
	cancel  context.CancelCauseFunc
	close   func() // its pool
	running bool   // it has started: from now on its statements are points
	first   bool   // its points are counted
	dead    bool
	blind   bool // the database is not to be reached once
	conns   []Session
	opening int // connections
	calls   int // that run
	closed  bool

	answered chan struct{} // closed when a call has answered
	once     sync.Once
}

// Session is a connection of a process.
type Session interface {
	// Drop does what a server does when it has lost a client. When it returns, what was not committed is
	// rolled back, and nothing is locked any more.
	Drop()
	InTx() bool
	// Busy reports whether a statement runs.
	Busy() bool
}

func newProcess(l *plan) *Process {
	p := &Process{plan: l, answered: make(chan struct{})}
	p.ctx, p.cancel = context.WithCancelCause(context.Background())
	return p
}

// answer says whether the process was killed before it answered.
func (p *Process) answer() (lost bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.once.Do(func() {
		close(p.answered)
		if p.first {
			p.inTime = len(p.points)
		}
	})
	return p.dead
}

// What a program gets. ErrTxLost ends a call at once: a lost connection would be tried again, and by a staged
// operation also with ErrTxLost, but not with ErrInvalid.
var (
	ErrKilled = fmt.Errorf("holdfasttest: the process was killed: %w (%w)", holdfast.ErrTxLost, holdfast.ErrInvalid)
	ErrLook   = fmt.Errorf("holdfasttest: the database was not to be reached to ask what became of a COMMIT: %w", holdfast.ErrTxLost)
	ErrLost   = &net.OpError{Op: "read", Net: "tcp", Err: io.ErrUnexpectedEOF}
	ErrReset  = &net.OpError{Op: "write", Net: "tcp", Err: os.NewSyscallError("write", syscall.ECONNRESET)}
	errSlow   = &net.OpError{Op: "read", Net: "tcp", Err: os.ErrDeadlineExceeded}
)

// over ends the first call: the points of later ones are not counted.
func (p *Process) over() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.first = false
}

// Killed reports whether it was killed.
func (p *Process) Killed() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.dead
}

// busy reports whether it connects, has a transaction or runs a statement.
func (p *Process) busy() bool {
	p.mu.Lock()
	conns, opening := slices.Clone(p.conns), p.opening
	p.mu.Unlock()
	return opening > 0 || slices.ContainsFunc(conns, func(s Session) bool { return s.InTx() || s.Busy() })
}

// kill leaves behind what a killed process does: its transactions are rolled back by the server.
func (p *Process) kill() {
	p.mu.Lock()
	was, conns := p.dead, p.conns
	p.dead = true
	p.mu.Unlock()
	if was {
		return
	}
	p.cancel(ErrKilled)
	for _, s := range conns {
		s.Drop()
	}
	p.called(0)
}

// called counts the calls that run, by 1 and by -1. The pool of a dead process is closed after the last one: until
// then the program gets ErrKilled, and does not try again.
func (p *Process) called(by int) {
	p.mu.Lock()
	p.calls += by
	over := p.dead && p.calls == 0 && !p.closed
	p.closed = p.closed || over
	p.mu.Unlock()
	if over {
		p.close()
	}
}

// Connects returns the error of a new connection, before it is made.
func (p *Process) Connects() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	blind := p.blind
	p.blind = false
	switch {
	case p.dead:
		return ErrKilled
	case blind:
		return ErrLook
	}
	return nil
}

// Opening counts the connections that are made: by 1, and by -1.
func (p *Process) Opening(by int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.opening += by
}

// Connected adds a connection. After an error it must be dropped.
func (p *Process) Connected(s Session) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.dead {
		return ErrKilled
	}
	p.conns = append(p.conns, s)
	return nil
}

// At is a point: it returns the fault that strikes there.
func (p *Process) At(here Point) (Fault, error) {
	here.What = short(here.What)
	here.line, here.aside = caller()
	p.mu.Lock()
	here.inTx = slices.ContainsFunc(p.conns, Session.InTx)
	switch {
	case p.dead:
		p.mu.Unlock()
		return 0, ErrKilled
	case p.blind && !here.Outside:
		p.blind = false
		p.mu.Unlock()
		return 0, ErrLook
	case !p.running:
		p.mu.Unlock()
		return None, nil
	}
	if !p.failed {
		p.last = here
	}
	f := None
	if p.first {
		p.points = append(p.points, here)
		if len(p.points) == p.strike {
			f = p.fault
		}
	}
	p.mu.Unlock()
	if f != None && p.afterAnswer {
		select {
		case <-p.answered:
		case <-time.After(patience):
		}
	}
	switch f {
	case overtaken, overtakenByOtherKey:
		p.overtake(f)
		return None, nil
	case crashBefore:
		p.kill()
		return 0, ErrKilled
	}
	return f, nil
}

// After is called with what came of a point, and returns what the program gets.
func (p *Process) After(f Fault, err error) error {
	if f == CrashAfter {
		p.kill()
		return ErrKilled
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.failed = p.failed || err != nil && p.running
	return err
}

// Lose drops the session of a point whose answer is lost.
func (p *Process) Lose(s Session, f Fault) {
	s.Drop()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.blind = f == Outage
}

// outside is the transport of a process.
type outside struct {
	http.RoundTripper

	p *Process
}

// RoundTrip implements http.RoundTripper.
func (o outside) RoundTrip(r *http.Request) (*http.Response, error) {
	f, err := o.p.At(Point{What: r.Method + " " + r.URL.Path, Outside: true})
	if f == Reset {
		err = ErrReset
	}
	if err != nil {
		if r.Body != nil {
			_ = r.Body.Close()
		}
		return nil, err
	}
	answer, err := o.RoundTripper.RoundTrip(r)
	if f != None && err == nil {
		_, _ = io.Copy(io.Discard, answer.Body) // the other side has done it
		_ = answer.Body.Close()
	}
	switch f {
	case AnswerLost:
		err = ErrLost
	case Timeout:
		err = errSlow
	}
	if err := o.p.After(f, err); err != nil {
		return nil, err
	}
	return answer, nil
}
