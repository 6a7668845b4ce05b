package limits

import (
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/options"
)

const (
	// MaxKey is the maximum length of the key of a limit in bytes.
	MaxKey     = 512
	maxID      = 512
	maxTimeout = 10 * 366 * 24 * time.Hour
)

// Request names an amount of a limit.
type Request struct {
	// Key is the key of the limit, such as the number of the order: its exact bytes. Required.
	Key string
	// ID names this amount among all of the owner's under this name, those of other limits included:
	// its exact bytes. Derive it from the business, such as the order and the number of the refund: an id that is
	// generated for each call protects from nothing. Required.
	ID string
	// Amount is above 0. For Capture, 0 means all that is reserved. Void does not read it.
	Amount int64
	// Timeout is the time after which a reservation expires unless it was captured, by the database's
	// clock: 50 ms to ten years of 366 days. It is rounded down to microseconds. 0 means never: a reservation that is
	// neither captured nor voided then counts for ever. Not around a call to a provider: it would free an amount that
	// may be paid. Only Reserve reads it, and the same call again
	// does not change it.
	Timeout time.Duration
}

func (r Request) checkID() error {
	if r.ID == "" || len(r.ID) > maxID {
		return invalid("Request.ID", fmt.Sprintf("has %d bytes: use 1 to %d", len(r.ID), maxID))
	}
	return nil
}

func (r Request) checkAmount(least int64) error {
	if r.Amount < least {
		return invalid("Request.Amount", fmt.Sprintf("%d is below %d: amounts are in the smallest unit, and above 0", r.Amount, least))
	}
	return nil
}

func (r Request) checkTimeout() error {
	return options.Life.Or("never").UpTo(maxTimeout).Check("Request.Timeout", r.Timeout)
}

// State is what became of an entry.
type State int

// The states. Only Reserved changes.
const (
	// Reserved: the amount counts, unless its time has passed.
	Reserved State = iota + 1
	// Captured: what was captured counts for good.
	Captured
	// Voided and Expired: nothing counts.
	Voided
	Expired
)

func (s State) String() string {
	switch s {
	case Reserved:
		return "reserved"
	case Captured:
		return "captured"
	case Voided:
		return "voided"
	case Expired:
		return "expired"
	default:
		return fmt.Sprintf("State(%d)", int(s))
	}
}

// Entry is an amount of a limit: a reservation and what became of it, or what was taken at once.
type Entry struct {
	// Key and ID are those of the Request.
	Key, ID string
	// Amount is what was reserved or taken. Captured is what was captured of it.
	Amount, Captured int64
	State            State
	// Replayed: an earlier call did it, and this one changed nothing.
	Replayed bool

	// The times are by the database's clock. They are zero in the result of the call that wrote the
	// entry.

	// Created is when the entry was made. Expires is when a reservation expires, zero for never and in
	// any other state. Ended is since when another state is. A reservation whose time has passed is
	// Expired, and Ended is that time until a call closes it, then the time of that call.
	Created, Expires, Ended time.Time

	due int64
	at  State // in the table
}

func scan(row core.Row) (e Entry, err error) {
	var id, limit []byte
	var created int64
	var overdue int
	if err := row.Scan(dest(&e, &id, &limit, &created, &overdue)...); err != nil {
		return Entry{}, err
	}
	e.fill(id, limit, created, overdue)
	return e, nil
}

func dest(e *Entry, id, limit *[]byte, created *int64, overdue *int) []any {
	return []any{id, limit, &e.Amount, &e.Captured, &e.at, &e.due, created, overdue}
}

func (e *Entry) fill(id, limit []byte, created int64, overdue int) {
	e.ID, e.Key, e.Created, e.State = string(id), string(limit), time.UnixMicro(created).UTC(), e.at
	at := time.UnixMicro(e.due).UTC()
	switch {
	case e.at != Reserved:
		e.Ended = at
	case overdue == 1:
		e.State, e.Ended = Expired, at
	case e.due < forever:
		e.Expires = at
	}
}

// overdue reports whether e is a reservation whose time has passed, and that still has to be closed.
func (e *Entry) overdue() bool { return e.at == Reserved && e.State == Expired }
