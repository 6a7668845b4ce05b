// Package auditlog appends to the audit: one row per intervention, in its transaction, in a chain of
// hashes. Package audit reads it.
package auditlog

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/dialect"
	"github.com/holdfast-go/holdfast/internal/errcode"
)

// MaxState is the maximum length of a state before or after, in bytes.
const MaxState = 4096

// Hash is the hash of a row.
type Hash = [sha256.Size]byte

// Entry is one intervention.
type Entry struct {
	// Actor did Action, and says Reason.
	Actor, Action, Reason string
	// Kind says what was changed, Owner and Namespace whose it is, and Subject is a hash of its key; nil if
	// it has none.
	Kind, Owner, Namespace string
	Subject                []byte
	// Before and After are its states, which Append writes as JSON; nil for none.
	Before, After any
}

// Row is a row of the audit.
type Row struct {
	// Chain is "" on all engines but Vitess, where it is the owner.
	Chain string
	// Seq counts from 1.
	Seq int64
	// At is the database's time, in µs.
	At int64
	// Actor is whom the caller named, and Session the database's name of the session's user.
	Actor, Session         string
	Action                 string
	Kind, Owner, Namespace string
	Subject                []byte
	Reason, Confirmed      string
	Before, After          string
	Hash                   []byte
}

// Sum returns the hash of a row that follows one with the hash previous: SHA-256 over a name, previous,
// both numbers, and each text with its length before it. Before the first row of a chain, previous is zero.
func (r *Row) Sum(previous Hash) (sum Hash) {
	h := sha256.New()
	h.Write([]byte("holdfast audit 1"))
	h.Write(previous[:])
	number := func(n int64) { h.Write(binary.BigEndian.AppendUint64(nil, uint64(n))) } //nolint:gosec // the bits of the number
	number(r.Seq)
	number(r.At)
	for _, text := range []string{r.Chain, r.Actor, r.Session, r.Action, r.Kind, r.Owner, r.Namespace, string(r.Subject), r.Reason, r.Confirmed, r.Before, r.After} {
		number(int64(len(text)))
		h.Write([]byte(text))
	}
	h.Sum(sum[:0])
	return sum
}

// Subject returns the hash of a key, with the length of each part before it.
func Subject(parts ...string) []byte {
	h := sha256.New()
	h.Write([]byte("holdfast subject 1"))
	for _, p := range parts {
		h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(p))))
		h.Write([]byte(p))
	}
	return h.Sum(nil)
}

// Confirmation is the second person's word for what another one proposed.
type Confirmation struct {
	By string
	// Check runs in the transaction of the intervention, which fails with its error. session is the name
	// of the session's user.
	Check func(ctx context.Context, q core.Querier, session string) error
}

// refusedError is an error of Check.
type refusedError struct{ error }

type confirmationKey struct{}

// Confirming returns a context for one intervention that c confirms.
func Confirming(ctx context.Context, c *Confirmation) context.Context {
	return context.WithValue(ctx, confirmationKey{}, c)
}

// Log appends to the audit of one database.
type Log struct {
	lock, head, tail, self, insert, page, recent core.Stmt

	dialect *dialect.Dialect
}

// bound is a seq that no chain reaches. A row with it or a later one was not written by Holdfast.
const bound = 1 << 62

// New compiles the statements. The comment of each lists its parameters.
func New(d *dialect.Dialect, table func(name string) string) *Log {
	const columns = `chain, seq, happened_at, actor, session_name, action, kind, owner, namespace, subject, reason, confirmed_by, before_state, after_state, hash`
	insert := slices.Clone(dialect.AuditColumns)
	if !d.Audit.SetsSession {
		insert = append(insert, "session_name")
	}
	r, lock := d.Names(table), strings.ReplaceAll(d.Audit.Lock, "{lockspace}", dialect.Lockspace(table("audit")))
	x := func(name, text string) core.Stmt { return d.Compile("audit."+name, r.Replace(text)) }
	return &Log{
		dialect: d,

		lock: x("lock", lock),
		// chain (returns seq and hash of the last row).
		head: x("head", `SELECT seq, hash FROM {audit} WHERE chain = $1 ORDER BY seq DESC LIMIT 1`+d.Audit.Last),
		// chain (returns seq and hash of the last row that has one before it for each number, from the first row on: it
		// reads the chain).
		tail: x("tail", `SELECT a.seq, a.hash FROM {audit} a WHERE a.chain = $1 AND a.seq < `+strconv.Itoa(bound)+` AND NOT EXISTS (SELECT 1 FROM {audit} b WHERE b.chain = $1 AND b.seq = a.seq + 1)
ORDER BY a.seq LIMIT 1`),
		// The clock, and the name of the session's user.
		self:   x("self", `SELECT {now}, {user}`),
		insert: x("insert", `INSERT INTO {audit} (`+strings.Join(insert, ", ")+`) VALUES (`+dialect.Params(len(insert))+`)`),
		// chain and seq to continue after, limit.
		page: x("page", `SELECT `+columns+` FROM {audit} WHERE `+d.Compare([]string{"chain", "seq"}, ">", "$1", "$2")+` ORDER BY chain, seq LIMIT $3`),
		// chain, owner, subject, how many of the chain's last rows are read: there is no index on the subject.
		recent: x("recent", `SELECT happened_at, actor, session_name, action, reason, confirmed_by
FROM (SELECT happened_at, actor, session_name, action, reason, confirmed_by, owner, subject FROM {audit} WHERE chain = $1 ORDER BY seq DESC LIMIT $4) recent
WHERE owner = $2 AND subject = $3`),
	}
}

// Append writes a row in the transaction of q, as its last statement: until the transaction ends, no other
// one can append. On an error the transaction must be rolled back. core.ErrAgain means that another row
// took the place: the transaction may run again.
func (l *Log) Append(ctx context.Context, q core.Querier, e Entry) error {
	err := l.append(ctx, q, e)
	if refused := (*refusedError)(nil); errors.As(err, &refused) {
		return refused.error
	}
	if err != nil && !errors.Is(err, core.ErrAgain) {
		err = fmt.Errorf("holdfast: nothing was changed, because the audit could not be written: %w", err)
	}
	return err
}

func (l *Log) append(ctx context.Context, q core.Querier, e Entry) error {
	r, err := l.row(e)
	if err != nil {
		return err
	}
	if l.lock.Text != "" {
		var locked int
		if _, err := l.lock.QueryRow(ctx, q, []any{&locked}); err != nil {
			return err
		}
	}
	var last Hash
	var hash []byte
	if _, err := l.head.QueryRow(ctx, q, []any{&r.Seq, &hash}, r.Chain); err != nil {
		return err
	}
	if r.Seq >= bound { // it was written by hand, so that no row could follow
		r.Seq, hash = 0, nil
		if _, err := l.tail.QueryRow(ctx, q, []any{&r.Seq, &hash}, r.Chain); err != nil {
			return err
		}
	}
	copy(last[:], hash)
	if _, err := l.self.QueryRow(ctx, q, []any{&r.At, &r.Session}); err != nil {
		return err
	}
	if c, ok := ctx.Value(confirmationKey{}).(*Confirmation); ok {
		if err := c.Check(ctx, q, r.Session); err != nil {
			return &refusedError{err}
		}
		r.Confirmed = c.By
	}
	r.Seq++
	sum := r.Sum(last)
	args := []any{r.Chain, r.Seq, r.At, r.Actor, r.Action, r.Kind, r.Owner, r.Namespace, r.Subject, r.Reason, r.Confirmed, r.Before, r.After, sum[:]}
	if !l.dialect.Audit.SetsSession {
		args = append(args, r.Session)
	}
	_, err = l.insert.Exec(ctx, q, args...)
	if l.dialect.Classify(err) == dialect.Duplicate {
		return fmt.Errorf("%w: another row of the audit came first: %w", core.ErrAgain, err)
	}
	return err
}

func (l *Log) row(e Entry) (r Row, err error) {
	r = Row{Actor: e.Actor, Action: e.Action, Kind: e.Kind, Owner: e.Owner, Namespace: e.Namespace, Subject: e.Subject, Reason: e.Reason}
	if l.dialect.Audit.PerOwner {
		r.Chain = e.Owner
	}
	if r.Subject == nil {
		r.Subject = []byte{}
	}
	if r.Before, err = state(e.Before); err == nil {
		r.After, err = state(e.After)
	}
	return r, err
}

// state returns a state in JSON.
func state(v any) (string, error) {
	if v == nil {
		return "", nil
	}
	b, err := json.Marshal(v)
	if err == nil && len(b) > MaxState {
		err = fmt.Errorf("a state of %d bytes, at most %d", len(b), MaxState)
	}
	return string(b), err
}

// Page reads up to limit rows that follow a row, in the order of the chains.
func (l *Log) Page(ctx context.Context, q core.Querier, chain string, seq int64, limit int) ([]Row, error) {
	rows, err := l.page.Query(ctx, q, chain, seq, limit)
	if err != nil {
		return nil, err
	}
	return core.Collect(rows, func(row core.Row) (r Row, err error) {
		err = row.Scan(&r.Chain, &r.Seq, &r.At, &r.Actor, &r.Session, &r.Action, &r.Kind, &r.Owner, &r.Namespace, &r.Subject, &r.Reason, &r.Confirmed, &r.Before, &r.After, &r.Hash)
		return r, err
	})
}

// Recent reads what was done to one subject among the last rows of its chain, in no order. Of each row, only
// the time, the persons, the action and the reason are read.
func (l *Log) Recent(ctx context.Context, q core.Querier, owner string, subject []byte, last int) ([]Row, error) {
	chain := ""
	if l.dialect.Audit.PerOwner {
		chain = owner
	}
	rows, err := l.recent.Query(ctx, q, chain, owner, subject, last)
	if err != nil {
		return nil, err
	}
	return core.Collect(rows, func(row core.Row) (r Row, err error) {
		err = row.Scan(&r.At, &r.Actor, &r.Session, &r.Action, &r.Reason, &r.Confirmed)
		return r, err
	})
}

// Bounds of Actor and Reason, in bytes.
const (
	MaxActor  = 255
	MaxReason = 500
)

// Check refuses an actor or a reason that is empty or too long. The prefix leads the names of the fields.
func Check(prefix, actor, reason string) error {
	for _, f := range []struct {
		name, text string
		limit      int
	}{{"By", actor, MaxActor}, {"Reason", reason, MaxReason}} {
		if f.text == "" || len(f.text) > f.limit || !utf8.ValidString(f.text) || strings.ContainsRune(f.text, 0) {
			return errcode.Invalid(prefix+f.name, fmt.Sprintf("is not 1 to %d bytes of UTF-8 without NUL: it is kept in the audit", f.limit))
		}
	}
	return nil
}

// Time returns a time of the database.
func Time(micros int64) time.Time { return time.UnixMicro(micros).UTC() }
