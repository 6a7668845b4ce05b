// Package lockstmt compiles the statements of leases and tickets for the tables of one
// database. Each statement reads its own result, so its callers do not know in which way an
// engine reports it.
package lockstmt

import (
	"context"
	"encoding/hex"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/dialect"
	"github.com/holdfast-go/holdfast/internal/lockname"
)

// AttemptID identifies one attempt to acquire a lock. Each attempt has a new one, so it
// identifies the term that this attempt was granted and no other.
type AttemptID [16]byte

func (id AttemptID) String() string { return hex.EncodeToString(id[:]) }

// TermID identifies a term by the name and the attempt of its row. Token is its fencing token, or 0
// if it is not known.
type TermID struct {
	Name    lockname.Name
	Attempt AttemptID
	Token   int64
}

// State is the row of a lock. Attempt is nil and Left is 0 if the lock is free.
type State struct {
	Attempt []byte
	Token   int64
	Left    time.Duration // until it expires
	Holder  string
}

// Tables compiles statements for the tables of one database.
type Tables struct {
	dialect *dialect.Dialect
	names   *strings.Replacer
}

// New returns the Tables with the quoted names that table returns.
func New(d *dialect.Dialect, table func(name string) string) *Tables {
	return &Tables{d, strings.NewReplacer("{locks}", table("locks"), "{floor}", table("floor"), "{tickets}", table("tickets"), "{waiters}", table("waiters"), "{now}", d.Now)}
}

// Compile compiles a statement. It replaces the placeholders of the tables and of the clock.
func (t *Tables) Compile(name, text string) core.Stmt {
	return t.dialect.Compile("locks."+name, t.names.Replace(text))
}

// List compiles a statement for n names, and n attempts after them. The first name is parameter
// first. n must be a power of two: see core.Pad.
func (t *Tables) List(name, text string, first, n int) core.Stmt {
	return t.Compile(name, strings.NewReplacer("{names}", params(first, n), "{attempts}", params(first+n, n)).Replace(text))
}

// params returns n parameters, from $first, as a list.
func params(first, n int) string {
	p := make([]string, n)
	for i := range p {
		p[i] = param(first + i)
	}
	return strings.Join(p, ", ")
}

func param(n int) string { return "$" + strconv.Itoa(n) }

// OnMany runs f with onConn, in the isolation that the engine needs for one statement that
// affects many rows.
func (t *Tables) OnMany(ctx context.Context, onConn func(ctx context.Context, before string, f func(q core.Querier) error) error, f func(q core.Querier) error) error {
	return onConn(ctx, t.dialect.Leases.ManyBefore, f)
}

// Unready reports whether the error of a read, which waits for no lock, shows that the node has
// lost its cluster. Such a node refuses the read, or the cluster sync before the read times out
// (1205).
func (t *Tables) Unready(read error) bool {
	class := t.dialect.Classify(read)
	return class == dialect.Unready || class == dialect.Busy && t.dialect.Prefix != ""
}

// Look reads the row of a lock.
type Look struct{ stmt core.Stmt }

// Look compiles the read of a lock's row.
func (t *Tables) Look() Look { return Look{t.Compile("look", t.dialect.Leases.Look)} }

// Run returns false if the lock has no row.
func (l Look) Run(ctx context.Context, q core.Querier, name lockname.Name) (s State, there bool, err error) {
	var left int64
	there, err = l.stmt.QueryRow(ctx, q, []any{&s.Attempt, &s.Token, &left, &s.Holder}, name.Args()...)
	s.Left = micros(left)
	return s, there, err
}

// split returns the owner, the names and the attempts of terms as arguments, padded to a power of
// two.
func split(all []TermID) (owner any, names, attempts []any) {
	padded := core.Pad(all)
	names, attempts = make([]any, len(padded)), make([]any, len(padded))
	for i := range padded {
		names[i], attempts[i] = padded[i].Name.Row(), padded[i].Attempt[:]
	}
	return all[0].Name.Owner, names, attempts
}

// number is a row of bytes and a number.
type number struct {
	of []byte
	n  int64
}

func numbers(ctx context.Context, q core.Querier, stmt core.Stmt, args ...any) ([]number, error) {
	rows, err := stmt.Query(ctx, q, args...)
	if err != nil {
		return nil, err
	}
	return core.Collect(rows, func(row core.Row) (r number, err error) {
		err = row.Scan(&r.of, &r.n)
		return r, err
	})
}

// byAttempt runs a statement that returns a number for each of several attempts. After an error it
// returns none, because the statement may not have been committed.
func byAttempt(ctx context.Context, q core.Querier, stmt core.Stmt, args ...any) (map[AttemptID]int64, error) {
	rows, err := numbers(ctx, q, stmt, args...)
	if err != nil {
		return nil, err
	}
	found := make(map[AttemptID]int64, len(rows))
	for _, r := range rows {
		if len(r.of) == len(AttemptID{}) {
			found[AttemptID(r.of)] = r.n
		}
	}
	return found, nil
}

func micros(n int64) time.Duration { return time.Duration(n) * time.Microsecond }
