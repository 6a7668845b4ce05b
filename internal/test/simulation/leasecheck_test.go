package simulation

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/sqllock"
)

// ended checks the result of a call.
func (w *leases) ended(c *caller) {
	h := w.held[c]
	if c.call == release {
		w.endedRelease(c, h)
		return
	}
	held := &sqllock.HeldError{}
	switch {
	case c.err == nil && h.lease == nil:
		w.violatef("%s of caller %d: neither a lease nor an error", c.call, c.id)
	case c.err == nil:
		w.granted(c, h.lease)
	case errors.As(c.err, &held) && c.call == tryAcquire:
		w.note("held", c.id)
	case c.ctx.Err() != nil && errors.Is(c.err, context.Cause(c.ctx)):
		w.note("gave up", c.id)
	case w.spared, errors.Is(c.err, errUnknown):
		w.violatef("%s of caller %d without a fault: %v", c.call, c.id, c.err)
	default:
		w.note("error", c.id)
	}
	if c.owes = h.lease != nil; !c.owes {
		c.cancel()
	}
}

// granted checks a new lease.
func (w *leases) granted(c *caller, l *lease) {
	w.grants++
	token := l.Token()
	w.note("granted", c.id, c.key)
	t := w.store.terms["l"+c.key][token]
	switch {
	case l.Key() != c.key:
		w.violatef("caller %d asked for %s and got %s", c.id, c.key, l.Key())
	case t == nil:
		w.violatef("caller %d got token %d of %s, which no statement granted", c.id, token, c.key)
	case t.caller != 0:
		w.violatef("callers %d and %d got the same term of %s", t.caller-1, c.id, c.key)
	case token <= w.tokens[c.key]:
		w.violatef("caller %d got token %d of %s after %d", c.id, token, c.key, w.tokens[c.key])
	default:
		t.caller = c.id + 1
	}
	w.tokens[c.key] = max(token, w.tokens[c.key])
	if c.call != acquire {
		return
	}
	for _, o := range w.callers {
		if o != c && o.busy && !o.finished.Load() && o.call == acquire && o.process == c.process && o.key == c.key && o.number < c.number && o.ctx.Err() == nil {
			w.violatef("caller %d got %s before caller %d of the same process, which had asked before", c.id, c.key, o.id)
		}
	}
}

func (w *leases) endedRelease(c *caller, h *holding) {
	token, cause := h.lease.Token(), context.Cause(h.lease.Context())
	t := w.store.terms["l"+c.key][token]
	end := t.end
	w.note("released", c.id)
	switch {
	case h.lease.Context().Err() == nil:
		w.violatef("the context of caller %d goes on after its release", c.id)
	case c.err == nil && end != released && end != handed:
		w.violatef("the release of caller %d says ok, and its term of %s %q", c.id, c.key, end)
	case c.err != nil && w.spared:
		w.violatef("the release of caller %d without a fault: %v", c.id, c.err)
	case errors.Is(c.err, sqllock.ErrLost) && errors.Is(cause, sqllock.ErrReleased) && !t.late && end != taken:
		w.violatef("the release of caller %d says lost, and its term of %s was %s in time", c.id, c.key, end)
	case c.err != nil && !errors.Is(c.err, sqllock.ErrLost) && !errors.Is(c.err, holdfast.ErrUnknown) && w.faults == 0:
		w.violatef("the release of caller %d: %v", c.id, c.err)
	}
	c.cancel()
	c.owes, h.lease = false, nil
}

// check checks that no two callers trust their leases of one key.
func (w *leases) check() {
	for i, c := range w.callers {
		if !w.trusts(c) {
			continue
		}
		for _, o := range w.callers[:i] {
			if o.key == c.key && w.trusts(o) {
				w.violatef("callers %d and %d have %s at the same time", o.id, c.id, c.key)
			}
		}
	}
}

// rested checks that no lock is held.
func (w *leases) rested() {
	for name, r := range w.store.rows {
		if r.left(micros(time.Now())) > 0 {
			w.violatef("%s is held for %d µs, and no caller has it", name, r.left(micros(time.Now())))
		}
	}
}
