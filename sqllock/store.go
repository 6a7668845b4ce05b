package sqllock

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
	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/dialect"
)

// owner is the id of one attempt to get a lock. It is fresh each time, so it
// stands for the term that the attempt was granted, and for nobody else's.
type owner [16]byte

func newOwner() owner { return owner(uuid.New()) }

func (o owner) String() string { return hex.EncodeToString(o[:]) }

// attempt is one attempt: what the statement that may grant it is told.
type attempt struct {
	name  []byte
	owner owner
	ttl   time.Duration
	token int64 // of a claim, which knows it beforehand
	// doubt: a statement whose answer was lost may yet grant it, once more where
	// it was granted.
	doubt bool
}

// verdict is what became of an attempt.
type verdict struct {
	won   bool
	token int64
	doubt bool // as of the attempt
	// Of a lock that somebody else has, where it could be looked at.
	left   time.Duration
	holder string
}

// store runs the statements of the leases.
type store struct {
	dialect *dialect.Dialect
	locks   string // the table
	onConn  func(ctx context.Context, before string, f func(q core.Querier) error) error
	holder  string
	self    owner  // this process, as one who waits
	id      string // of the tables
	seen    *seen  // rows that are known to be there
	texts   func(text string) string

	make, take, handOver, look, release, guard, write core.Stmt

	// Several leases at once, where the engine has statements for it.
	many   manyStmts
	taking gather[attempt, verdict]
	ending gather[freeing, freed]

	claims claimStmts
	inTx   func(ctx context.Context, o core.TxOptions, f func(ctx context.Context, q core.Querier) error) error
}

func newStore(d *dialect.Dialect, table func(string) string, onConn func(context.Context, string, func(core.Querier) error) error, holder string) *store {
	r := strings.NewReplacer("{locks}", table("locks"), "{floor}", table("floor"), "{claims}", table("claims"), "{waiters}", table("waiters"), "{now}", d.Now)
	compile := func(name, text string) core.Stmt { return d.Compile("locks."+name, r.Replace(text)) }
	l := &d.Leases
	s := &store{
		dialect: d, locks: table("locks"), holder: holder, self: newOwner(), seen: newSeen(), texts: r.Replace,
		make: compile("make", l.Make.Text), take: compile("take", l.Take.Text),
		handOver: compile("hand over", l.HandOver.Text), look: compile("look", l.Look),
		release: compile("release", l.Release), guard: compile("guard", l.Guard), write: compile("guard write", l.GuardWrite),
		claims: compileClaims(&d.Claims, compile),
	}
	s.many = compileMany(s)
	s.taking.run, s.ending.run = s.takeMany, s.freeMany
	from, least, life := gatherFrom, gatherLeast, placeLife
	if l.TakeBound.Before != nil { // one writer at a time
		from, least, life = 1, 2, writerLife
	}
	s.taking.from, s.taking.least, s.taking.life = from, least, life
	s.ending.from, s.ending.least, s.ending.life = from, least, life
	s.onConn = func(ctx context.Context, before string, f func(q core.Querier) error) error {
		return s.missing(onConn(ctx, before, f))
	}
	return s
}

// missing says of a table that is not there what is to be done.
func (s *store) missing(err error) error {
	if s.dialect.Classify(err) == dialect.NoTable {
		return &holdfast.SchemaError{Table: s.locks, Err: err}
	}
	return err
}

// identify reads which tables these are.
func (s *store) identify(ctx context.Context) error {
	var id []byte
	return s.onConn(ctx, "", func(q core.Querier) error {
		found, err := s.dialect.Compile("locks.store", s.texts(`SELECT store FROM {floor} WHERE id = 1`)).QueryRow(ctx, q, []any{&id})
		if err == nil && !found {
			return errors.New("its row is gone: apply the migrations again (holdfast migrate up)")
		}
		s.id = string(id)
		return err
	})
}

// busyTries is how often a row that seems free, and is locked, is asked for
// within one attempt: some 15 ms.
const busyTries = 4

// takeBound is how long an attempt waits at the most for SQLite's writer.
const takeBound = 10 * time.Millisecond

// acquire makes an attempt once. Errors after which the engine wants the
// statement again, or which say that a row is locked, are not the caller's:
// held is the answer when they do not end.
func (s *store) acquire(ctx context.Context, a attempt) (v verdict, err error) {
	doubt := false // of any of the tries
	defer func() { v.doubt = doubt }()
	pause := core.NewBackoff()
	for n := 1; ; n++ {
		v, err = s.acquireOnce(ctx, a)
		doubt = doubt || v.doubt
		if err == nil {
			return v, nil
		}
		switch class := s.dialect.Classify(err); {
		case class == dialect.Busy:
			// Somebody's statement, or the reaper that raises the floor, has ended
			// in a moment; a guarded transaction has not.
			v, looked := s.holderOf(ctx, a.name)
			if s.unready(looked) {
				return v, &holdfast.RetryError{Attempts: n, Err: looked}
			}
			if v.left > 0 || n >= busyTries {
				return v, nil
			}
		case class != dialect.Retry:
			return v, err
		case n == holdfast.DefaultAttempts:
			v, _ = s.holderOf(ctx, a.name)
			return v, nil
		}
		if err := pause.Sleep(ctx); err != nil {
			return v, err
		}
	}
}

func (s *store) acquireOnce(ctx context.Context, a attempt) (verdict, error) {
	v, err := s.taking.ask(ctx, a, func() (verdict, error) { return s.acquireAlone(ctx, a) })
	if err != nil || v.won || !v.doubt {
		return v, err
	}
	v, err = s.acquireAlone(ctx, a) // it finds its own term, if there is one by now
	v.doubt = true
	return v, err
}

func (s *store) acquireAlone(ctx context.Context, a attempt) (v verdict, err error) {
	doubt := false
	err = s.onConn(ctx, "", s.doubting(&doubt, func(q core.Querier) error {
		v, err = s.acquireOn(ctx, q, a)
		return err
	}))
	v.doubt = doubt
	return v, err
}

func (s *store) acquireOn(ctx context.Context, q core.Querier, a attempt) (verdict, error) {
	l := &s.dialect.Leases
	if l.Make.Text != "" && !s.seen.has(a.name) {
		v, told, err := s.grant(ctx, q, s.make, l.Make.ByInsertID, a)
		if err != nil && s.dialect.Classify(err) != dialect.Duplicate {
			return v, err
		}
		s.seen.add(a.name) // it is there now, whoever made it
		if v.won || told {
			return v, nil
		}
	}
	var v verdict
	var told bool
	err := s.bounded(ctx, q, func() (err error) {
		v, told, err = s.grant(ctx, q, s.take, l.Take.ByInsertID, a)
		return err
	})
	if err != nil || v.won || told {
		return v, err
	}
	there, err := s.lookOn(ctx, q, a.name, &v)
	if err == nil && !there {
		s.seen.remove(a.name) // it was reaped: the next attempt makes it
	}
	return v, err
}

// bounded runs f, which takes, with a bound on its wait.
func (s *store) bounded(ctx context.Context, q core.Querier, f func() error) error {
	undo, err := s.dialect.Leases.TakeBound.Change(ctx, q, takeBound)
	if err != nil {
		return err
	}
	err = f()
	if undo.Text != "" {
		if _, e := undo.Exec(context.WithoutCancel(ctx), q); err == nil {
			err = e
		}
	}
	return err
}

// grant runs a statement that may grant; told is whether it said who has the
// lock when it did not.
func (s *store) grant(ctx context.Context, q core.Querier, stmt core.Stmt, byInsertID bool, a attempt, more ...any) (v verdict, told bool, err error) {
	args := append([]any{a.name, a.owner[:], a.ttl.Microseconds(), s.holder}, more...)
	if byInsertID {
		r, err := stmt.Exec(ctx, q, args...)
		v = verdict{won: err == nil && r.Affected == 1, token: r.InsertID}
		if v.won && v.token <= 0 { // a trigger may hide it
			_, err = s.lookOn(ctx, q, a.name, &v)
		}
		return v, false, err
	}
	var won int
	var left int64
	told, err = stmt.QueryRow(ctx, q, []any{&won, &v.token, &left, &v.holder}, args...)
	v.won, v.left = won == 1, micros(left)
	return v, told, err
}

// pass hands the term of one owner over to an attempt. Where there was no such
// term any more, doubt says that a run whose answer was lost may have done it.
func (s *store) pass(ctx context.Context, from owner, a attempt) (v verdict, doubt bool, err error) {
	err = s.retry(ctx, func(q core.Querier) (err error) {
		v, _, err = s.grant(ctx, q, s.handOver, s.dialect.Leases.HandOver.ByInsertID, a, from[:])
		doubt = doubt || err != nil && !s.dialect.RolledBack(err)
		return err
	})
	return v, doubt, err
}

// retry runs f as long as the engine wants it run again.
func (s *store) retry(ctx context.Context, f func(q core.Querier) error) error {
	return s.again(ctx, func() error { return s.onConn(ctx, "", f) })
}

func (s *store) again(ctx context.Context, f func() error) error {
	pause := core.NewBackoff()
	for n := 1; ; n++ {
		err := f()
		switch class := s.dialect.Classify(err); {
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

// free ends a term.
func (s *store) free(ctx context.Context, t freeing) (freed, error) {
	f, err := s.ending.ask(ctx, t, func() (freed, error) { return s.freeAlone(ctx, t) })
	if err != nil || f.was || !f.doubt {
		return f, err
	}
	f, err = s.freeAlone(ctx, t)
	f.doubt = true
	return f, err
}

func (s *store) freeAlone(ctx context.Context, t freeing) (f freed, err error) {
	err = s.retry(ctx, func(q core.Querier) (err error) {
		var ended, waiters int64
		if s.dialect.Leases.ReleaseTells {
			_, err = s.release.QueryRow(ctx, q, []any{&ended, &waiters}, t.name, t.owner[:], s.self[:])
		} else {
			var r core.Result
			r, err = s.release.Exec(ctx, q, t.name, t.owner[:])
			ended = r.Affected
		}
		f.was, f.tell = err == nil && ended > 0, err == nil && waiters > 0
		f.doubt = f.doubt || err != nil && !s.dialect.RolledBack(err)
		return err
	})
	return f, err
}

// holderOf looks who has a lock; an error leaves it unknown.
func (s *store) holderOf(ctx context.Context, name []byte) (v verdict, err error) {
	err = s.onConn(ctx, "", func(q core.Querier) error {
		_, err := s.lookOn(ctx, q, name, &v)
		return err
	})
	v.won = false
	return v, err
}

// unready is whether a read, which waits for no lock, shows that the node has
// lost its cluster: what it waits for before never comes (1205), or it refuses.
func (s *store) unready(read error) bool {
	class := s.dialect.Classify(read)
	return class == dialect.Unready || class == dialect.Busy && s.dialect.Prefix != ""
}

func (s *store) lookOn(ctx context.Context, q core.Querier, name []byte, v *verdict) (there bool, err error) {
	var owner []byte
	var left int64
	there, err = s.look.QueryRow(ctx, q, []any{&owner, &v.token, &left, &v.holder}, name)
	v.left = micros(left)
	return there, err
}

// list compiles a statement for so many names, rounded up to a power of two:
// lists of every length would fill the drivers' caches of statements.
func (s *store) list(label, text string, first, n int) core.Stmt {
	params := func(from int) string {
		p := make([]string, n)
		for i := range p {
			p[i] = "$" + strconv.Itoa(from+i)
		}
		return strings.Join(p, ", ")
	}
	r := strings.NewReplacer("{names}", params(first), "{owners}", params(first+n))
	return s.dialect.Compile("locks."+label, s.texts(r.Replace(text)))
}

// pad repeats the last element up to the length of a list.
func pad[T any](list []T) []T {
	n := 1
	for n < len(list) {
		n *= 2
	}
	return append(slices.Clone(list), slices.Repeat(list[len(list)-1:], n-len(list))...)
}

func micros(n int64) time.Duration { return time.Duration(n) * time.Microsecond }
