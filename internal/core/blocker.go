package core

import (
	"context"
	"strconv"
	"strings"
	"time"
)

// Blocker is a session of the server that has a lock for which another session waits.
type Blocker struct {
	// Session is its id: for pg_terminate_backend on PostgreSQL, for KILL on MySQL and MariaDB. It
	// may wait itself, for another session. A prepared transaction has none, and is 0.
	Session string
	// User and Client say whose session it is: the name of its user and, if it gave one, of its
	// application, or else its address. State is what it does, in the server's words: a session
	// that is "idle in transaction" or "Sleep" waits for its program. They are empty if the role
	// may not see them.
	User, Client, State string
	// Open is how long its transaction has lasted; 0 if the role may not see it.
	Open time.Duration
}

// String returns the blocker as "session 4711 (app@worker3, idle in transaction, open for 12s)".
func (b Blocker) String() string {
	var facts []string
	switch {
	case b.User != "" && b.Client != "":
		facts = append(facts, b.User+"@"+b.Client)
	case b.User+b.Client != "":
		facts = append(facts, b.User+b.Client)
	}
	if b.State != "" {
		facts = append(facts, b.State)
	}
	if b.Open > 0 {
		facts = append(facts, "open for "+b.Open.Round(time.Millisecond).String())
	}
	if len(facts) == 0 {
		return "session " + b.Session
	}
	return "session " + b.Session + " (" + strings.Join(facts, ", ") + ")"
}

// Blockers returns list with the public type, holdfast.Blocker.
func Blockers[B blocker](list []Blocker) (public []B) {
	for _, b := range list {
		public = append(public, B(b))
	}
	return public
}

type blocker interface {
	~struct {
		Session, User, Client, State string
		Open                         time.Duration
	}
}

// BlockedBy returns the end of an error's text that names the blockers; "" for none.
func BlockedBy[B blocker](blockers []B) string {
	list := make([]Blocker, len(blockers))
	for i, b := range blockers {
		list[i] = Blocker(b)
	}
	switch len(list) {
	case 0:
		return ""
	case 1:
		return " (blocked by " + list[0].String() + ")"
	}
	return " (blocked by " + list[0].String() + " and " + strconv.Itoa(len(list)-1) + " more)"
}

// ScanBlocker scans a row that ends in a blocker's columns: session, user, client, state, and the age of
// its transaction (µs). before are the targets of the columns before them.
func ScanBlocker(row Row, before ...any) (b Blocker, err error) {
	var open int64
	err = row.Scan(append(before, &b.Session, &b.User, &b.Client, &b.State, &open)...)
	b.Open = time.Duration(open) * time.Microsecond
	return b, err
}

// PoolWait bounds the wait for another connection of the pool, for a call that already has one: the
// program's transactions may hold all connections, and each of them may wait for one more.
const PoolWait = 100 * time.Millisecond

// OnFree runs f on a connection of the pool. It fails if no connection is free within wait. onConn is
// that of access.Handle. before, if given, is a setting for f's statement.
func OnFree(ctx context.Context, wait time.Duration, onConn OnConn, before string, f func(q Querier) error) error {
	acquire, cancel := context.WithCancel(ctx)
	defer cancel()
	late := time.AfterFunc(wait, cancel)
	defer late.Stop()
	return onConn(acquire, before, func(q Querier) error {
		if !late.Stop() {
			return context.Cause(acquire)
		}
		defer late.Reset(wait) // f runs again if the connection was dead
		return f(q)
	})
}

// OnConn is the method of access.Handle.
type OnConn = func(ctx context.Context, before string, f func(q Querier) error) error
