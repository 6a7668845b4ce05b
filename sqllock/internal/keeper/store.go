package keeper

import (
	"context"
	"encoding/hex"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/dialect"
)

// OwnerID identifies one attempt to acquire a lock. Each attempt has a new one, so it
// identifies the term that this attempt was granted and no other.
type OwnerID [16]byte

// NewOwnerID returns a new random id.
func NewOwnerID() OwnerID { return OwnerID(uuid.New()) }

func (o OwnerID) String() string { return hex.EncodeToString(o[:]) }

// Attempt is one attempt to acquire a lock, with the arguments of its statement.
type Attempt struct {
	Name  []byte
	Owner OwnerID
	TTL   time.Duration
	Token int64 // the token of a ticket, which has it before it is granted
	// Ambiguous means that the answer of a statement was lost. That statement may still grant
	// the lock, perhaps a second time.
	Ambiguous bool
}

// Answer is the outcome of an attempt.
type Answer struct {
	Won       bool
	Token     int64
	Ambiguous bool // as in Attempt
	// For a held lock whose row could be read:
	Left   time.Duration
	Holder string
	Owner  []byte // nil if the lock is free
}

// Store runs the statements of the locks' tables.
type Store struct {
	Dialect *dialect.Dialect
	Locks   string // the table
	Holder  string
	Self    OwnerID // identifies this process as a waiter
	ID      string  // the identity of the tables: after-restore changes it
	// Render replaces the placeholders of the table names and of the clock.
	Render func(text string) string

	onConn func(ctx context.Context, before string, f func(q core.Querier) error) error
	inTx   func(ctx context.Context, o core.TxOptions, f func(ctx context.Context, q core.Querier) error) error
	read   core.Stmt
	guards map[bool]guardStmts // by whether the term is a lease
}

// OpenStore returns the store of a database and reads the identity of its tables.
func OpenStore[Tx any](ctx context.Context, a access.Access[Tx], holder string) (*Store, error) {
	d := a.Dialect
	r := strings.NewReplacer("{locks}", a.Table("locks"), "{floor}", a.Table("floor"), "{tickets}", a.Table("tickets"), "{waiters}", a.Table("waiters"), "{now}", d.Now)
	s := &Store{
		Dialect: d, Locks: a.Table("locks"), Holder: holder, Self: NewOwnerID(), Render: r.Replace,
		onConn: a.OnConn,
		inTx: func(ctx context.Context, o core.TxOptions, f func(ctx context.Context, q core.Querier) error) error {
			return a.Attempt(ctx, o, func(ctx context.Context, _ Tx, q core.Querier) error { return f(ctx, q) })
		},
	}
	s.read = s.Compile("look", d.Leases.Look)
	s.guards = compileGuards(s)
	err := s.identify(ctx, a.Table("floor"))
	return s, err
}

// identify reads the identity of the tables.
func (s *Store) identify(ctx context.Context, floor string) error {
	var id []byte
	err := s.OnConn(ctx, "", func(q core.Querier) error {
		found, err := s.Compile("store", `SELECT store FROM {floor} WHERE id = 1`).QueryRow(ctx, q, []any{&id})
		if err == nil && !found {
			return errors.New("its row is gone: apply the migrations again (holdfast migrate up)")
		}
		s.ID = string(id)
		return err
	})
	if missing := (*holdfast.SchemaError)(nil); errors.As(err, &missing) {
		missing.Table = floor
	}
	return err
}

// Compile compiles a statement.
func (s *Store) Compile(name, text string) core.Stmt {
	return s.Dialect.Compile("locks."+name, s.Render(text))
}

// OnConn runs f on a connection of the pool. If the connection was dead, f runs again on
// another one. before, if not empty, is a setting for f's statement.
func (s *Store) OnConn(ctx context.Context, before string, f func(q core.Querier) error) error {
	return s.missing(s.onConn(ctx, before, f))
}

// InTx runs f in one transaction, once.
func (s *Store) InTx(ctx context.Context, o core.TxOptions, f func(ctx context.Context, q core.Querier) error) error {
	return s.missing(s.inTx(ctx, o, f))
}

// missing turns the error of a missing table into a SchemaError, which says what to do.
func (s *Store) missing(err error) error {
	if s.Dialect.Classify(err) == dialect.NoTable {
		return &holdfast.SchemaError{Table: s.Locks, Err: err}
	}
	return err
}

// Retry runs f again after errors that the engine wants retried, at most
// holdfast.DefaultAttempts times.
func (s *Store) Retry(ctx context.Context, f func(q core.Querier) error) error {
	return s.Again(ctx, func() error { return s.OnConn(ctx, "", f) })
}

// Again is Retry for an f that opens its own connection.
func (s *Store) Again(ctx context.Context, f func() error) error {
	pause := core.NewBackoff()
	for n := 1; ; n++ {
		err := f()
		switch class := s.Dialect.Classify(err); {
		case class != dialect.Retry && class != dialect.Busy && class != dialect.Unready:
			return err
		case n == holdfast.DefaultAttempts:
			return &holdfast.RetryError{Attempts: n, Err: err}
		}
		if err := pause.Sleep(ctx); err != nil {
			return err
		}
	}
}

// Ambiguous wraps f. It sets ambiguous if f failed and may still take effect.
func (s *Store) Ambiguous(ambiguous *bool, f func(q core.Querier) error) func(q core.Querier) error {
	return func(q core.Querier) error {
		err := f(q)
		*ambiguous = *ambiguous || err != nil && !s.Dialect.RolledBack(err)
		return err
	}
}

// HolderOf reads the row of a lock.
func (s *Store) HolderOf(ctx context.Context, name []byte) (a Answer, err error) {
	err = s.OnConn(ctx, "", func(q core.Querier) error {
		_, err := s.ReadOn(ctx, q, name, &a)
		return err
	})
	a.Won = false
	return a, err
}

// ReadOn reads the row of a lock into a. there reports whether the row exists.
func (s *Store) ReadOn(ctx context.Context, q core.Querier, name []byte, a *Answer) (there bool, err error) {
	var left int64
	there, err = s.read.QueryRow(ctx, q, []any{&a.Owner, &a.Token, &left, &a.Holder}, name)
	a.Left = Micros(left)
	return there, err
}

// List compiles a statement for n names. n is a power of two, because lists of every length
// would fill the drivers' statement caches.
func (s *Store) List(label, text string, first, n int) core.Stmt {
	params := func(from int) string {
		p := make([]string, n)
		for i := range p {
			p[i] = "$" + strconv.Itoa(from+i)
		}
		return strings.Join(p, ", ")
	}
	r := strings.NewReplacer("{names}", params(first), "{owners}", params(first+n))
	return s.Compile(label, r.Replace(text))
}

// Rows runs a query that returns bytes and a number per row.
func (s *Store) Rows(ctx context.Context, stmt core.Stmt, row func(b []byte, n int64), args ...any) error {
	return s.OnConn(ctx, "", func(q core.Querier) error { return RowsOn(ctx, q, stmt, row, args...) })
}

// RowsOn is Rows on a connection.
func RowsOn(ctx context.Context, q core.Querier, stmt core.Stmt, row func(b []byte, n int64), args ...any) error {
	rows, err := stmt.Query(ctx, q, args...)
	return Each(rows, err, func() error {
		var b []byte
		var n int64
		if err := rows.Scan(&b, &n); err != nil {
			return err
		}
		row(b, n)
		return nil
	})
}

// Owners runs a statement that returns a number for each of several owners. After an error it
// discards the rows, because the statement may not have been committed. ambiguous reports
// whether the statement may still take effect.
func (s *Store) Owners(ctx context.Context, stmt core.Stmt, args ...any) (said map[OwnerID]int64, ambiguous bool, err error) {
	err = s.OnConn(ctx, "", s.Ambiguous(&ambiguous, func(q core.Querier) (err error) {
		said, err = OwnersOn(ctx, q, stmt, args...)
		return err
	}))
	if err != nil {
		said = nil
	}
	return said, ambiguous, err
}

// OwnersOn is Owners on a connection.
func OwnersOn(ctx context.Context, q core.Querier, stmt core.Stmt, args ...any) (said map[OwnerID]int64, err error) {
	said = map[OwnerID]int64{}
	return said, RowsOn(ctx, q, stmt, func(b []byte, n int64) {
		if len(b) == len(OwnerID{}) {
			said[OwnerID(b)] = n
		}
	}, args...)
}

// Each runs f for each row of a query, and closes the rows.
func Each(rows core.Rows, err error, f func() error) error {
	if err != nil {
		return err
	}
	for rows.Next() && err == nil {
		err = f()
	}
	if err == nil {
		err = rows.Err()
	}
	if e := rows.Close(); err == nil {
		err = e
	}
	return err
}

// Pad repeats the last element until the length is a power of two.
func Pad[T any](list []T) []T {
	n := 1
	for n < len(list) {
		n *= 2
	}
	return append(slices.Clone(list), slices.Repeat(list[len(list)-1:], n-len(list))...)
}

// Micros returns n microseconds.
func Micros(n int64) time.Duration { return time.Duration(n) * time.Microsecond }
