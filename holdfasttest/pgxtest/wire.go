package pgxtest

import (
	"encoding/binary"
	"net"
	"sync"
	"sync/atomic"

	"github.com/holdfast-go/holdfast/holdfasttest/internal/everyfault"
)

// wire is a connection of a process to the server, on which faults strike: what the driver sends up to a Sync, or as
// a simple query, is a point if it runs a statement. pgx writes it whole, and reads its answer before it sends
// the next one.
type wire struct {
	net.Conn

	p   *everyfault.Process
	end func(pid uint32) // ends the session, and waits for it

	inTx, busy, started atomic.Bool

	// What is sent; one goroutine writes.
	out   []byte // the beginning of a message
	texts texts

	answers sync.Mutex // held by who reads
	in      answer

	mu      sync.Mutex
	lost    error         // the end of the connection
	swallow chan struct{} // the answer that comes next is not for the driver; closed when it has come
	dropped sync.Once
}

// InTx implements everyfault.Session.
func (w *wire) InTx() bool { return w.inTx.Load() }

// Busy implements everyfault.Session.
func (w *wire) Busy() bool { return w.busy.Load() || !w.started.Load() && w.gone() == nil }

// Drop implements everyfault.Session.
func (w *wire) Drop() {
	w.dropped.Do(func() {
		w.mu.Lock()
		w.lost = everyfault.ErrLost
		w.mu.Unlock()
		_ = w.Conn.Close()
		if pid := w.in.pid.Load(); pid != 0 {
			w.end(pid)
		}
		w.inTx.Store(false)
		w.busy.Store(false)
	})
}

// Close implements net.Conn.
func (w *wire) Close() error {
	w.Drop()
	return nil
}

// gone returns the error of a connection that has ended.
func (w *wire) gone() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.lost != nil && w.p.Killed() {
		return everyfault.ErrKilled
	}
	return w.lost
}

// Write implements net.Conn.
func (w *wire) Write(b []byte) (int, error) {
	if err := w.gone(); err != nil {
		return 0, err
	}
	if !w.started.Load() { // the messages of the start have another form
		return w.Conn.Write(b)
	}
	w.out = append(w.out, b...)
	for {
		round, rest := cut(w.out)
		if round == nil {
			return len(b), nil
		}
		w.out = rest
		if err := w.send(round); err != nil {
			return 0, err
		}
	}
}

// send sends the messages of a round trip.
func (w *wire) send(round []message) error {
	said := w.texts.of(round)
	w.busy.Store(w.busy.Load() || said.answered)
	if !said.point {
		return w.write(round...)
	}
	f, err := w.p.At(everyfault.Point{What: said.what, Commits: said.commits})
	if err != nil {
		return err
	}
	switch f {
	case everyfault.Reset:
		w.Drop()
		return everyfault.ErrReset
	case everyfault.Timeout:
		err = w.refuse(round, said, "55P03", "canceling statement due to lock timeout")
	case everyfault.Deadlock:
		err = w.refuse(round, said, "40P01", "deadlock detected")
	case everyfault.None:
		err = w.write(round...)
	default: // it is done, and no caller gets the answer
		if err := w.ask(round...); err != nil {
			return err
		}
		if f == everyfault.CrashAfter {
			return w.p.After(f, nil)
		}
		w.p.Lose(w, f) // the driver learns it when it reads
	}
	return err
}

func (w *wire) write(round ...message) error {
	var all []byte
	for _, m := range round {
		all = append(all, m...)
	}
	_, err := w.Conn.Write(all)
	return err
}

// ask makes a round trip whose answer is not for the driver. A goroutine of pgx may read already, and goes on
// to wait for what is.
func (w *wire) ask(round ...message) error {
	done, read := make(chan struct{}), make(chan error, 1)
	w.mu.Lock()
	w.swallow = done
	w.mu.Unlock()
	if err := w.write(round...); err != nil {
		return err
	}
	go func() {
		w.answers.Lock()
		defer w.answers.Unlock()
		read <- w.swallowed()
	}()
	select {
	case <-done:
		return nil
	case err := <-read:
		return err
	}
}

// swallows reports whether the answer that comes is not for the driver.
func (w *wire) swallows() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.swallow != nil && w.in.complete {
		close(w.swallow)
		w.swallow, w.in.complete = nil, false
	}
	return w.swallow != nil
}

// swallowed reads up to the end of an answer that is not for the driver, if there is one.
func (w *wire) swallowed() error {
	own := make([]byte, 4096)
	for w.swallows() {
		n, err := w.Conn.Read(own)
		if err != nil {
			return err
		}
		w.see(own[:n])
	}
	return nil
}

// Read implements net.Conn.
func (w *wire) Read(b []byte) (int, error) {
	w.answers.Lock()
	defer w.answers.Unlock()
	for {
		if err := w.gone(); err != nil {
			return 0, err
		}
		n, err := w.Conn.Read(b)
		if err != nil {
			if gone := w.gone(); gone != nil {
				err = gone
			}
			return n, err
		}
		swallow := w.swallows()
		w.see(b[:n])
		if !swallow {
			w.in.complete = false
			return n, nil
		}
		if err := w.swallowed(); err != nil {
			return 0, err
		}
	}
}

// see looks at what the server has sent.
func (w *wire) see(b []byte) {
	for _, m := range w.in.add(b) {
		switch m.kind() {
		case 'E':
			_ = w.p.After(everyfault.None, errRefused)
		case 'K':
			w.in.pid.Store(binary.BigEndian.Uint32(m.body()))
		case 'G', 'W': // it waits for the data of a COPY
			w.in.complete = true
		case 'Z':
			w.in.complete = true
			w.inTx.Store(m.body()[0] != 'I')
			w.busy.Store(false)
			w.started.Store(true)
		}
	}
}

// refuse makes the server refuse the statement of a round trip, with what that does to its transaction.
func (w *wire) refuse(round []message, said said, state, text string) error {
	raise := `DO $$ BEGIN RAISE EXCEPTION 'holdfasttest: ` + text + `' USING ERRCODE = '` + state + `'; END $$`
	if said.commits && said.alone {
		if err := w.ask(query("ROLLBACK")); err != nil { // what a COMMIT does that fails
			return err
		}
	}
	if round[0].kind() == 'Q' {
		return w.write(query(raise))
	}
	// The statement is prepared first: what pgx waits for has no answer to a Parse.
	name := "holdfasttest_" + state
	if err := w.ask(parse(name, raise), syncNow); err != nil {
		return err
	}
	return w.write(append(round[:said.victim:said.victim], run(name)...)...)
}
