package simulation

import (
	"context"
	"slices"
	"time"
)

// database is the store of scenes whose statements run in transactions.
type database struct {
	*world

	records *records
	writing *conn         // of the last write
	timeout time.Duration // of a wait for the write lock, where the connection has not been told another
}

// perform runs a statement.
func (w *database) perform(s *statement) (known bool) {
	s.answer, known, s.err = w.records.run(&s.conn.session, s.name, s.text, s.args, micros(time.Now()))
	if s.conn.txn != nil && s.conn.txn == w.records.writer {
		w.writing = s.conn
	}
	return known
}

// rollback ends the transaction of a connection, at the server.
func (w *database) rollback(c *conn) {
	w.perform(&statement{conn: c, name: "rollback", text: "rollback"})
}

// swept ends the transactions of connections that were closed, and checks that none is open in the pool.
func (w *database) swept() {
	closed, leaked := w.gate.released()
	for _, c := range closed {
		if !c.cut && c.txn != nil {
			w.rollback(c)
		}
	}
	for _, c := range leaked {
		if !c.cut && c.txn != nil {
			w.violatef("a connection of process %d is in the pool again, with an open transaction", c.of.id)
		}
	}
}

// waits: SQLite has one writer, and a busy timeout.
func (w *database) waits(s *statement) bool {
	return w.records.busy(&s.conn.session, s.name) && s.ctx.Err() == nil && time.Since(s.sent) < max(s.conn.timeout, w.timeout)
}

// allows: only a COMMIT may arrive when its connection is lost. What else a transaction had on its way is rolled back, and SQLite
// does not run a write whose connection is closed. Only what takes a lock finds the database busy.
func (*database) allows(s *statement, f fault) bool {
	if f == refused {
		return s.name != "rollback" && (writes(s.name) || s.conn.txn == nil) || s.name == "commit"
	}
	return s.conn.txn == nil && !writes(s.name) || s.name == "commit"
}

// struck: a transaction does not go on after an error of the connection. The server ends it now or later. SQLite may roll
// back a transaction whose statement is interrupted.
func (w *database) struck(s *statement, err error) {
	switch {
	case err == errCut && s.name == "commit": //nolint:errorlint // it is ours
		w.gate.doubt(s.ctx)
		s.conn.cut = true
		if s.conn.txn != nil && !w.coming(s) {
			w.abandon(s.conn)
		}
	case s.conn.txn == nil:
		s.conn.cut = w.rng.IntN(2) == 0
	case err == errCut: //nolint:errorlint // it is ours
		s.conn.cut = true
		w.abandon(s.conn)
	case w.rng.IntN(2) == 0:
		w.note("interrupt", s.key())
		w.rollback(s.conn)
	}
}

// coming reports whether a COMMIT runs later.
func (w *database) coming(s *statement) bool {
	return slices.ContainsFunc(w.late, func(l *statement) bool { return l.conn == s.conn })
}

// abandon ends the transaction of a lost connection, now or later.
func (w *database) abandon(c *conn) {
	if w.rng.IntN(2) == 0 {
		w.rollback(c)
		return
	}
	w.late = append(w.late, &statement{conn: c, ctx: context.Background(), name: "rollback", text: "rollback"})
}

// cuts are the connections of open transactions on which nothing is sent.
func (w *database) cuts() (list []*conn) {
	t := w.records.writer
	w.gate.mu.Lock()
	defer w.gate.mu.Unlock()
	if c := w.writing; t != nil && c != nil && c.txn == t && !c.cut && !slices.ContainsFunc(w.gate.waiting, func(s *statement) bool { return s.conn == c }) {
		list = append(list, c)
	}
	return list
}

func (w *database) cut(c *conn) {
	w.note("cut", c.of.id)
	w.faults++
	c.cut = true
	w.abandon(c)
}

// die ends a process: each statement that is its, which has been sent, arrives or not.
func (w *database) die(p int, dead *life, its func(*statement) bool) {
	w.note("kill", p)
	w.faults++
	dead.over.Store(true)
	for _, s := range w.ready() {
		if its(s) {
			w.strike(s, errCut, []fault{lost, failed, later}[w.rng.IntN(3)])
		}
	}
	for _, c := range w.cuts() {
		if c.of.id == p {
			w.cut(c)
		}
	}
	for _, c := range w.callers {
		if c.process == p && c.busy {
			c.cancel()
		}
	}
}
