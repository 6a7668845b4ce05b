package simulation

import (
	"bytes"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"time"
)

// store is what the statements of SQLite's leases do to their tables, in memory and on a clock that the caller
// gives. TestStoreIsSQLite compares it with SQLite, statement by statement, and TestStoreIsEachEngine with the
// statements of each server.
type store struct {
	rows    map[string]*row
	waiters map[string]map[string]int64 // by name and process: when the row expires
	terms   map[string]map[int64]*term  // by name and token: every grant, and how it ended
}

// row is a row of the table of locks.
type row struct {
	attempt []byte // nil: the lock is free
	holder  string
	token   int64
	expires int64
}

// term is one grant, for the invariants: the statements do not read it.
type term struct {
	end    end
	late   bool // it ended after its expiry
	caller int  // to whom it was given, plus one
}

// end says how a term ended.
type end string

const (
	lasts    end = ""
	released end = "released"
	handed   end = "handed over"
	taken    end = "taken over after its expiry"
)

// answer is what a statement returns.
type answer struct {
	affected int64
	rows     [][]any
}

func newStore() *store {
	return &store{rows: map[string]*row{}, waiters: map[string]map[string]int64{}, terms: map[string]map[int64]*term{}}
}

// run runs a statement of leases, with its arguments in the order of SQLite's question marks. known is false
// for another statement.
func (s *store) run(name, text string, args []any, now int64) (a answer, known bool) {
	switch name {
	case "locks.take":
		if strings.HasPrefix(text, "WITH") {
			return s.takeMany(args, now), true
		}
		return s.take(args, now), true
	case "locks.hand over":
		return s.handOver(args, now), true
	case "locks.look":
		return s.look(args, now), true
	case "locks.release":
		return s.release(args, now), true
	case "locks.released":
		return s.released(args), true
	case "locks.announce":
		return s.announce(args, now), true
	case "locks.renew":
		return s.renew(args, now), true
	case "locks.remaining":
		return s.remaining(args, now), true
	case "locks.waits":
		return s.waits(args, now), true
	case "locks.rivals":
		return s.rivals(args, now), true
	}
	return answer{}, false
}

// grant begins the next term of a row.
func (s *store) grant(name []byte, r *row, attempt []byte, holder string, ttl, now int64, how end) {
	if r.attempt != nil {
		s.ended(name, r, how, now)
	}
	r.attempt, r.holder, r.token, r.expires = attempt, holder, max(r.token+1, now), now+ttl
	if s.terms[string(name)] == nil {
		s.terms[string(name)] = map[int64]*term{}
	}
	s.terms[string(name)][r.token] = &term{}
}

func (s *store) ended(name []byte, r *row, how end, now int64) {
	if t := s.terms[string(name)][r.token]; t != nil {
		t.end, t.late = how, r.expires <= now
	}
}

func (s *store) of(name []byte) *row {
	r := s.rows[string(name)]
	if r == nil {
		r = &row{}
		s.rows[string(name)] = r
	}
	return r
}

func (s *store) take(args []any, now int64) answer {
	name, attempt, holder, ttl := blob(args[1]), blob(args[2]), as[string](args[3]), as[int64](args[4])
	r := s.of(name)
	switch {
	case bytes.Equal(r.attempt, attempt) && r.attempt != nil && r.expires > now:
		r.holder, r.expires = holder, max(r.expires, now+ttl)
	case r.attempt == nil || r.expires <= now || bytes.Equal(r.attempt, attempt):
		s.grant(name, r, attempt, holder, ttl, now, taken)
	default:
		return answer{}
	}
	return answer{1, [][]any{{int64(1), r.token, int64(0), ""}}}
}

func (s *store) takeMany(args []any, now int64) (a answer) {
	n := (len(args) - 3) / 3
	holder := as[string](args[3*n+1])
	for i := range n {
		name, attempt, ttl := blob(args[3*i]), blob(args[3*i+1]), as[int64](args[3*i+2])
		if r := s.of(name); r.attempt == nil || r.expires <= now {
			s.grant(name, r, attempt, holder, ttl, now, taken)
			a.rows = append(a.rows, []any{attempt, r.token})
		}
	}
	a.affected = int64(len(a.rows))
	return a
}

func (s *store) handOver(args []any, now int64) answer {
	attempt, holder, ttl, name, from := blob(args[0]), as[string](args[1]), as[int64](args[2]), blob(args[4]), blob(args[5])
	r := s.rows[string(name)]
	if r == nil || !bytes.Equal(r.attempt, from) || r.expires <= now {
		return answer{}
	}
	s.grant(name, r, attempt, holder, ttl, now, handed)
	return answer{1, [][]any{{int64(1), r.token, int64(0), ""}}}
}

func (s *store) look(args []any, now int64) answer {
	r := s.rows[string(blob(args[1]))]
	if r == nil {
		return answer{}
	}
	return answer{0, [][]any{{null(r.attempt), r.token, r.left(now), r.holder}}}
}

// left is how long the lock remains held.
func (r *row) left(now int64) int64 {
	if r.attempt == nil || r.expires <= now {
		return 0
	}
	return r.expires - now
}

// release is that of one term and of several.
func (s *store) release(args []any, now int64) (a answer) {
	names, attempts := halves(args[1:])
	for _, name := range unique(names) {
		if r := s.rows[string(name)]; r != nil && r.attempt != nil && has(attempts, r.attempt) {
			s.ended(name, r, released, now)
			r.attempt, r.expires = nil, now
			a.affected++
		}
	}
	return a
}

func (s *store) released(args []any) (a answer) {
	n := (len(args) - 1) / 2
	attempts, names := blobs(args[:n]), blobs(args[n+1:])
	for _, name := range unique(names) {
		r := s.rows[string(name)]
		switch {
		case r == nil:
		case r.attempt == nil:
			a.rows = append(a.rows, []any{name, r.token})
		case has(attempts, r.attempt):
			a.rows = append(a.rows, []any{name, int64(0)})
		default:
			a.rows = append(a.rows, []any{name, int64(-1)})
		}
	}
	return a
}

func (s *store) announce(args []any, now int64) (a answer) {
	for row := range slices.Chunk(args, 6) {
		name := string(blob(row[1]))
		if s.waiters[name] == nil {
			s.waiters[name] = map[string]int64{}
		}
		s.waiters[name][string(blob(row[2]))] = now + as[int64](row[5])
		a.affected++
	}
	return a
}

func (s *store) renew(args []any, now int64) (a answer) {
	ttl := as[int64](args[0])
	names, attempts := halves(args[2:])
	for _, name := range unique(names) {
		if r := s.rows[string(name)]; r != nil && r.attempt != nil && has(attempts, r.attempt) && r.expires > now {
			r.expires = max(r.expires, now+ttl)
			a.rows = append(a.rows, []any{r.attempt, r.expires})
		}
	}
	a.affected = int64(len(a.rows))
	return a
}

func (s *store) remaining(args []any, now int64) (a answer) {
	names, attempts := halves(args[1:])
	for _, name := range unique(names) {
		if r := s.rows[string(name)]; r != nil && r.attempt != nil && has(attempts, r.attempt) {
			a.rows = append(a.rows, []any{r.attempt, r.expires - now})
		}
	}
	return a
}

func (s *store) waits(args []any, now int64) (a answer) {
	for _, name := range unique(blobs(args[1:])) {
		if r := s.rows[string(name)]; r != nil {
			a.rows = append(a.rows, []any{name, null(r.attempt), r.token, r.left(now)})
		}
	}
	return a
}

func (s *store) rivals(args []any, now int64) (a answer) {
	self := string(blob(args[len(args)-1]))
	for _, name := range unique(blobs(args[1 : len(args)-1])) {
		for waiter, expires := range s.waiters[string(name)] {
			if waiter != self && expires > now {
				a.rows = append(a.rows, []any{name, int64(1)})
				break
			}
		}
	}
	return a
}

// blob returns an argument that is bytes.
func blob(arg any) []byte { return as[[]byte](arg) }

// as returns an argument as what the statement takes there. Another type would be a zero, which SQLite's answer is not.
func as[T any](arg any) T {
	v, _ := arg.(T)
	return v
}

func blobs(args []any) [][]byte {
	list := make([][]byte, len(args))
	for i, a := range args {
		list[i] = blob(a)
	}
	return list
}

// halves returns the names and as many attempts of a list.
func halves(args []any) (names, attempts [][]byte) {
	return blobs(args[:len(args)/2]), blobs(args[len(args)/2:])
}

func has(list [][]byte, b []byte) bool {
	return slices.ContainsFunc(list, func(one []byte) bool { return bytes.Equal(one, b) })
}

// unique removes repetitions: a list is padded to a power of two.
func unique(list [][]byte) (one [][]byte) {
	for _, b := range list {
		if !has(one, b) {
			one = append(one, b)
		}
	}
	return one
}

func null(b []byte) any {
	if b == nil {
		return nil
	}
	return b
}

// read is the rows of an answer, as core.Rows.
type read struct {
	rows [][]any
	at   int
}

// Columns implements core.Rows. Only the admission asks, which does not come here.
func (r *read) Columns() ([]string, error) { return nil, nil }

// Next implements core.Rows.
func (r *read) Next() bool { r.at++; return r.at <= len(r.rows) }

// Err and Close implement core.Rows.
func (*read) Err() error   { return nil }
func (*read) Close() error { return nil }

// Scan implements core.Rows.
func (r *read) Scan(dest ...any) error {
	for i, v := range r.rows[r.at-1] {
		if err := assign(dest[i], v); err != nil {
			return err
		}
	}
	return nil
}

func assign(dest, v any) error {
	switch d := dest.(type) {
	case sql.Scanner:
		return d.Scan(v)
	case *[]byte:
		*d = nil
		switch v := v.(type) {
		case []byte:
			*d = bytes.Clone(v)
		case string:
			*d = []byte(v)
		}
		return nil
	case *string:
		*d = fmt.Sprintf("%s", v)
		if n, is := v.(int64); is {
			*d = fmt.Sprint(n)
		}
		return nil
	case *int64:
		if n, is := v.(int64); is {
			*d = n
			return nil
		}
	case *int:
		if n, is := v.(int64); is {
			*d = int(n)
			return nil
		}
	}
	return fmt.Errorf("scan %T into %T", v, dest)
}

// micros is a time as the store has it.
func micros(t time.Time) int64 { return t.UnixMicro() }
