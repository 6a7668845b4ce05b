package simulation

import (
	"context"
	"errors"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/sqllock"
)

// ended checks the result of a call.
func (w *world) ended(c *caller) {
	if c.call == release {
		w.endedRelease(c)
		return
	}
	held := &sqllock.HeldError{}
	switch {
	case c.err == nil && c.lease == nil:
		w.violatef("%s of caller %d: neither a lease nor an error", c.call, c.id)
	case c.err == nil:
		w.granted(c)
	case errors.As(c.err, &held) && c.call == tryAcquire:
		w.note("held", c.id)
	case c.ctx.Err() != nil && errors.Is(c.err, context.Cause(c.ctx)):
		w.note("gave up", c.id)
	case w.spared, errors.Is(c.err, errUnknown):
		w.violatef("%s of caller %d without a fault: %v", c.call, c.id, c.err)
	default:
		w.note("error", c.id)
	}
	c.cancelled()
}

// cancelled frees the context of a call that has no lease.
func (c *caller) cancelled() {
	if c.lease == nil {
		c.cancel()
	}
}

// granted checks a new lease.
func (w *world) granted(c *caller) {
	w.grants++
	token := c.lease.Token()
	w.note("granted", c.id, c.key)
	t := w.store.terms["l"+c.key][token]
	switch {
	case c.lease.Key() != c.key:
		w.violatef("caller %d asked for %s and got %s", c.id, c.key, c.lease.Key())
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
		if o != c && o.busy && !o.finished && o.call == acquire && o.process == c.process && o.key == c.key && o.number < c.number && o.ctx.Err() == nil {
			w.violatef("caller %d got %s before caller %d of the same process, which had asked before", c.id, c.key, o.id)
		}
	}
}

func (w *world) endedRelease(c *caller) {
	token, cause := c.lease.Token(), context.Cause(c.lease.Context())
	t := w.store.terms["l"+c.key][token]
	end := t.end
	w.note("released", c.id)
	switch {
	case c.lease.Context().Err() == nil:
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
	c.lease = nil
}

// overlaps checks that no two callers trust their leases of one key.
func (w *world) overlaps() {
	for i, c := range w.callers {
		if c.lease == nil || c.lease.Context().Err() != nil {
			continue
		}
		for _, o := range w.callers[:i] {
			if o.lease != nil && o.key == c.key && o.lease.Context().Err() == nil {
				w.violatef("callers %d and %d have %s at the same time", o.id, c.id, c.key)
			}
		}
	}
}
