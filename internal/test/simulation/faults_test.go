package simulation

import (
	"context"
	"slices"
	"time"
)

// fault is what becomes of a statement.
type fault int

const (
	answered fault = iota
	lost           // it ran, and its answer was lost
	failed         // it did not run
	later          // it runs when its caller has its error already
	refused        // the database is busy
)

// giveUp ends the context of a call.
func (w *world) giveUp(c *caller) {
	w.note("give up", c.id)
	w.spared = false // a release in one batch with what it leaves may not know its outcome
	c.cancel()
}

// resolve runs a statement, or strikes it.
func (w *world) resolve(s *statement) {
	if ended := context.Cause(s.ctx); ended != nil {
		how := fault(w.rng.IntN(int(refused)))
		w.spared = w.spared && how == answered // its answer is lost
		w.strike(s, ended, how)
		return
	}
	odds := w.odds
	if s.conn.provider {
		odds = 3
	}
	switch {
	case s.ran, w.calm, w.rng.IntN(odds) > 0:
		w.strike(s, nil, answered)
		return
	case w.rng.IntN(4) == 0:
		w.note("run, answer later", s.key())
		w.run(s)
		return
	}
	w.strike(s, errCut, fault(w.rng.IntN(int(refused)+1)))
}

// strike answers a statement: runs it, or loses its answer, or fails it, or lets the server run it later.
func (w *world) strike(s *statement, err error, how fault) {
	if err != nil && how != answered && err == errCut { //nolint:errorlint // it is ours
		w.faults++
	}
	if err == nil || how == answered {
		w.note("answer", s.key())
		if !s.ran {
			w.run(s)
		}
		w.answer(s, nil)
		return
	}
	w.losses++
	switch {
	case how == lost, s.ran:
		w.note("lose the answer", s.key())
		if !s.ran {
			w.run(s)
		}
	case how == failed:
		w.note("fail", s.key())
	case how == later && w.scene.allows(s, later):
		w.note("late", s.key())
		copied := *s
		w.late = append(w.late, &copied)
	case how == refused && w.busy < 3 && w.scene.allows(s, refused):
		w.busy++
		w.note("busy", s.key())
		w.answer(s, errBusy)
		return
	}
	w.scene.struck(s, err)
	w.answer(s, err)
}

// runLate runs a statement whose caller has its error already.
func (w *world) runLate(i int) {
	s := w.late[i]
	w.late = slices.Delete(w.late, i, i+1)
	w.note("run late", s.key())
	w.run(s)
}

// pass lets time pass.
func (w *world) pass() {
	n := 1
	if !w.calm {
		n = []int{1, 1, 1, 1, 1, 2, 5, 6, 15, 16, 20}[w.rng.IntN(11)]
	}
	w.sleep(n)
}

func (w *world) sleep(ticks int) {
	w.note("time", ticks)
	w.gate.see()
	time.Sleep(time.Duration(ticks) * tick)
}

// freeze stops a process for a while: its statements are not answered.
func (w *world) freeze() {
	p := w.rng.IntN(w.processes)
	n := 1 + w.rng.IntN(20)
	w.note("freeze", p, n)
	w.faults++
	w.frozen[p] = time.Now().Add(time.Duration(n) * tick)
}
