package simulation

import (
	"fmt"
	"strings"
	"time"
)

// drain ends the faults, and lets all calls end.
func (w *world) drain() {
	w.calm = true
	clear(w.frozen)
	for _, s := range w.late {
		w.note("run late", s.key())
		w.run(s)
	}
	w.late = nil
	for _, c := range w.callers {
		c.left = 0
	}
	for waited, last := time.Duration(0), w.settled; w.violation == ""; {
		w.settle()
		if w.settled > last {
			waited, last = 0, w.settled
		}
		if ready := w.ready(); len(ready) > 0 {
			w.resolve(ready[0])
			continue
		}
		busy := false
		for _, c := range w.callers {
			if !c.busy && c.owes {
				w.start(c)
			}
			busy = busy || c.busy
		}
		switch {
		case !busy && w.scene.more():
		case !busy:
			return
		case waited > w.patience:
			w.violatef("calls wait for %v although nothing can keep them: %s", w.patience, w.waitingCalls())
		}
		w.sleep(1)
		waited += tick
	}
}

func (w *world) waitingCalls() string {
	var list []string
	for _, c := range w.callers {
		if c.busy {
			list = append(list, fmt.Sprintf("%s of caller %d (process %d) on %s", c.call, c.id, c.process, c.key))
		}
	}
	return strings.Join(list, ", ")
}

// rest lets the time pass in which cleanups end, and then half a second in which nothing may happen.
func (w *world) rest() {
	sent := 0
	for n := range 8 {
		if w.violation != "" {
			return
		}
		w.settle()
		for ready := w.ready(); len(ready) > 0; ready = w.ready() {
			w.resolve(ready[0])
			w.settle()
		}
		if n == 6 {
			sent = w.gate.sent
		}
		w.sleep(20)
	}
	if w.gate.sent != sent {
		w.violatef("%d statements in half a second, long after the last call had ended", w.gate.sent-sent)
	}
	w.scene.rested()
}

// end closes everything.
func (w *world) end() {
	w.gate.mu.Lock()
	w.gate.open = true
	for _, s := range w.gate.waiting {
		if !s.ran {
			w.run(s)
		}
		close(s.done)
	}
	w.gate.waiting = nil
	w.gate.mu.Unlock()
	for _, c := range w.callers {
		if c.cancel != nil {
			c.cancel()
		}
	}
	if err := w.scene.close(); err != nil && w.violation == "" {
		w.violatef("close: %v", err)
	}
	for _, c := range w.callers {
		close(c.do)
	}
	time.Sleep(time.Minute) // a call that was under way when a promise was broken ends
}
