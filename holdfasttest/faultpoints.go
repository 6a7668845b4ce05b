package holdfasttest

import (
	"context"
	"database/sql"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/holdfast-go/holdfast"
)

// fault is what happens at a point.
type fault int

const (
	noFault fault = iota
	crashBefore
	crashAfter
	answerLost
	outage
	timeout
	deadlock
	reset
	overtaken
	overtakenByOtherKey
)

func (f fault) String() string {
	return [...]string{
		"without a fault, at", "killed before", "killed after", "answer lost of", "answer lost, and nobody to ask about it, of", "timeout of", "deadlock in", "connection reset before",
		"leases ended, and the same request was served, before", "leases ended, and the request of another key was served, before",
	}[f]
}

// point is a place at which a process can be hurt.
type point struct {
	what    string // the statement, commit, or the call outside
	line    string // of the program
	outside bool
	inTx    bool
}

const commit = "COMMIT"

func (p point) String() string { return p.what + " at " + p.line }

// faults lists what can happen at p, to the process alone and by requests of others.
func (p point) faults(otherKey bool) (alone, others []fault) {
	alone = []fault{crashBefore, crashAfter, answerLost, timeout, reset}
	if !p.outside {
		alone = append(alone, deadlock)
	}
	if p.what == commit { // after any other statement it is as if the connection were lost
		alone = append(alone, outage)
	}
	if !p.inTx { // SQLite has one writer
		others = append(others, overtaken)
	}
	if !p.inTx && otherKey {
		others = append(others, overtakenByOtherKey)
	}
	return alone, others
}

// plan is which fault strikes where, and what was seen.
type plan struct {
	mu     sync.Mutex
	strike int // the number of the point; 0 is none
	fault  fault
	// afterAnswer: it is a point of a goroutine, which the fault strikes once the call has answered.
	afterAnswer bool
	overtake    func(f fault)
	points      []point // of the first call
	last        point   // of any call
	failed      bool    // last is one that failed: others do not replace it
}

func (l *plan) reached() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.points)
}

// blame names the point and the line that a failure comes from.
func (l *plan) blame() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.strike > 0 && l.strike <= len(l.points) {
		return fmt.Sprintf("%v %v", l.fault, l.points[l.strike-1])
	}
	return fmt.Sprintf("%v %v", noFault, l.last)
}

// process is one of the program. Once killed, nothing of it reaches the database or the outside any more.
type process struct {
	*plan

	ctx     context.Context //nolint:containedctx // it is the process's life
	cancel  context.CancelCauseFunc
	pool    *sql.DB
	running bool // it has started: from now on its statements are points
	first   bool // its points are counted
	dead    bool
	blind   bool // the database is not to be reached once
	conns   []*faultConn

	answered chan struct{} // closed when a call has answered
	once     sync.Once
}

// answer says whether the process was killed before it answered.
func (p *process) answer() (lost bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.once.Do(func() { close(p.answered) })
	return p.dead
}

var (
	// ErrTxLost ends a call at once. A lost connection would be tried again.
	errKilled = fmt.Errorf("holdfasttest: the process was killed: %w", holdfast.ErrTxLost)
	errLost   = &net.OpError{Op: "read", Net: "tcp", Err: io.ErrUnexpectedEOF}
	errReset  = &net.OpError{Op: "write", Net: "tcp", Err: os.NewSyscallError("write", syscall.ECONNRESET)}
	errSlow   = &net.OpError{Op: "read", Net: "tcp", Err: os.ErrDeadlineExceeded}
)

// refusal is an error of the database: SQLite's code for a lock that was not got, or for a transaction that
// must run again.
type refusal int

const (
	busy     refusal = 5
	snapshot refusal = 517
)

func (r refusal) Code() int { return int(r) }

func (r refusal) Error() string {
	return fmt.Sprintf("holdfasttest: %s (%d)", map[refusal]string{busy: "the database is locked", snapshot: "deadlock: the transaction was rolled back"}[r], int(r))
}

// over ends the first call: the points of later ones are not counted.
func (p *process) over() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.first = false
}

func (p *process) killed() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.dead
}

// kill leaves behind what a killed process does: its transactions are rolled back by the server.
func (p *process) kill() {
	p.mu.Lock()
	was, conns := p.dead, p.conns
	p.dead = true
	p.mu.Unlock()
	if was {
		return
	}
	p.cancel(errKilled)
	for _, c := range conns {
		c.drop()
	}
	_ = p.pool.Close()
}

// at is a point: it returns the fault that strikes there.
func (p *process) at(what string, outside bool) (fault, error) {
	line := caller()
	p.mu.Lock()
	inTx := slices.ContainsFunc(p.conns, func(c *faultConn) bool { return c.inTx })
	switch {
	case p.dead:
		p.mu.Unlock()
		return 0, errKilled
	case p.blind && !outside:
		p.blind = false
		p.mu.Unlock()
		return 0, errLook
	case !p.running:
		p.mu.Unlock()
		return noFault, nil
	}
	here := point{short(what), line, outside, inTx}
	if !p.failed {
		p.last = here
	}
	f := noFault
	if p.first {
		p.points = append(p.points, here)
		if len(p.points) == p.strike {
			f = p.fault
		}
	}
	p.mu.Unlock()
	if f != noFault && p.afterAnswer {
		select {
		case <-p.answered:
		case <-time.After(patience):
		}
	}
	switch f {
	case overtaken, overtakenByOtherKey:
		p.overtake(f)
		return noFault, nil
	case crashBefore:
		p.kill()
		return 0, errKilled
	}
	return f, nil
}

func short(statement string) string {
	const enough = 60
	statement = strings.Join(strings.Fields(statement), " ")
	if len(statement) > enough {
		return statement[:enough] + "…"
	}
	return statement
}

// after is called with what came of a point.
func (p *process) after(f fault, err error) error {
	if f == crashAfter {
		p.kill()
		return errKilled
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.failed = p.failed || err != nil && p.running
	return err
}

// caller returns the line of the program that runs: the first frame outside of Holdfast, database/sql, the
// driver and net/http.
func caller() string {
	pcs := make([]uintptr, 256)
	frames := runtime.CallersFrames(pcs[:runtime.Callers(3, pcs)])
	for {
		f, more := frames.Next()
		if f.File != "" && !below(f) {
			return fmt.Sprintf("%s:%d", f.File, f.Line)
		}
		if !more {
			return "a goroutine that is not the program's"
		}
	}
}

func below(f runtime.Frame) bool {
	for _, library := range []string{"database/sql.", "net/http.", "runtime.", "testing.", "sync.", "context.", "reflect."} {
		if strings.HasPrefix(f.Function, library) {
			return true
		}
	}
	const own = "github.com/holdfast-go/holdfast"
	return strings.Contains(f.File, "@v") || // a module, such as an ORM
		strings.HasPrefix(f.Function, own) && !strings.HasPrefix(f.Function, own+"/examples/") && !strings.HasSuffix(f.File, "_test.go")
}
