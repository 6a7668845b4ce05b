package everyfault

import (
	"fmt"
	"slices"
	"strings"
	"sync"
)

// Fault is what happens at a point.
type Fault int

// The faults that strike where a point is. Process.At serves the others.
const (
	None Fault = iota
	crashBefore
	CrashAfter
	AnswerLost
	Outage // likewise, and the database is not to be reached to ask about it
	Timeout
	Deadlock
	Reset
	overtaken
	overtakenByOtherKey
)

func (f Fault) String() string {
	return [...]string{
		"without a fault, at", "killed before", "killed after", "answer lost of", "answer lost, and nobody to ask about it, of", "timeout of", "deadlock in", "connection reset before",
		"leases ended, and the same request was served, before", "leases ended, and the request of another key was served, before",
	}[f]
}

// Point is a place at which a process can be hurt.
type Point struct {
	What    string // the statements, or the call outside
	Outside bool
	Commits bool // a COMMIT is the last of them, or the only one

	line  string // of the program
	aside bool   // it is a goroutine of the program's, which may come to it before the answer or after it
	inTx  bool
}

func (p Point) String() string { return p.What + " at " + p.line }

// faults lists what can happen at p, to the process alone and by requests of others.
func (p Point) faults(otherKey bool) (alone, others []Fault) {
	alone = []Fault{crashBefore, CrashAfter, AnswerLost, Timeout, Reset}
	if !p.Outside {
		alone = append(alone, Deadlock)
	}
	if p.Commits { // after any other statement it is as if the connection were lost
		alone = append(alone, Outage)
	}
	if !p.inTx { // others would wait for the locks of the transaction, which does not go on until they have ended
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
	fault  Fault
	// afterAnswer: it is a point of a goroutine, which the fault strikes once the call has answered.
	afterAnswer bool
	overtake    func(f Fault)
	points      []Point // of the first call
	inTime      int     // that many of them came before its answer
	last        Point   // of any call
	failed      bool    // last is one that failed: others do not replace it
}

func (l *plan) reached() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.points)
}

// goesOn reports whether a point came, or may come, after the answer.
func (l *plan) goesOn() bool {
	return l.inTime < len(l.points) || slices.ContainsFunc(l.points, func(p Point) bool { return p.aside })
}

// blame names the point and the line that a failure comes from.
func (l *plan) blame() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.strike > 0 && l.strike <= len(l.points) {
		return fmt.Sprintf("%v %v", l.fault, l.points[l.strike-1])
	}
	return fmt.Sprintf("%v %v", None, l.last)
}

func short(statement string) string {
	const enough = 60
	statement = strings.Join(strings.Fields(statement), " ")
	if len(statement) > enough {
		return statement[:enough] + "…"
	}
	return statement
}
