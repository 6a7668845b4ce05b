package audit

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"iter"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/auditlog"
	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/dialect"
	"github.com/holdfast-go/holdfast/internal/errcode"
	"github.com/holdfast-go/holdfast/internal/options"
)

const page = 500 // rows that one statement reads

// Record is one row of the audit: one intervention.
type Record struct {
	// Chain is the chain of the row: "", or on Vitess the owner. Seq is its number there, from 1.
	Chain string
	Seq   int64
	// At is when it happened, by the database's clock.
	At time.Time
	// By is who did it, as the program, the console or the command named the person. Session is the user
	// whom the database authenticated: PostgreSQL's session_user, MySQL's and MariaDB's CURRENT_USER(),
	// "" on SQLite.
	By, Session string
	// Action is what was done: "force release", "erase", "erase scope", "erase limits", "after-restore",
	// "resume", "free the key", "requeue", "discard", or one that begins with "resolve" or "propose: ".
	Action string
	// Kind is what it was done to: "lease", "fair lock", "semaphore", "record", "staged", "similar",
	// "operation", "limit", "limit entry", "dead letter" or "database". Owner is whose that is, Namespace
	// that of an operation. Subject is a hash of the key: see LockSubject and MessageSubject. An operation's is
	// the ID without the owner. It is empty if there is no one key.
	Kind, Owner, Namespace string
	Subject                []byte
	// Reason is why, in the words of By. ConfirmedBy is the second person, if By had proposed it.
	Reason, ConfirmedBy string
	// Before and After are the states, in JSON; nil for none.
	Before, After json.RawMessage
	// Hash covers the columns and the hash of the row before.
	Hash []byte
}

// MarshalJSON returns the form of `holdfast audit export`: hashes in hexadecimal digits.
func (r Record) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		Chain     string          `json:"chain,omitempty"`
		Seq       int64           `json:"seq"`
		At        time.Time       `json:"at"`
		By        string          `json:"by"`
		Session   string          `json:"session"`
		Action    string          `json:"action"`
		Kind      string          `json:"kind"`
		Owner     string          `json:"owner"`
		Namespace string          `json:"namespace,omitempty"`
		Subject   string          `json:"subject,omitempty"`
		Reason    string          `json:"reason"`
		Confirmed string          `json:"confirmed_by,omitempty"`
		Before    json.RawMessage `json:"before,omitempty"`
		After     json.RawMessage `json:"after,omitempty"`
		Hash      string          `json:"hash"`
	}{
		r.Chain, r.Seq, r.At, r.By, r.Session, r.Action, r.Kind, r.Owner, r.Namespace, hex.EncodeToString(r.Subject),
		r.Reason, r.ConfirmedBy, r.Before, r.After, hex.EncodeToString(r.Hash),
	})
}

// LockSubject returns the Subject of a lock. kind is "lease", "fair lock" or "semaphore".
func LockSubject(kind, owner, key string) []byte { return auditlog.Subject(kind, owner, key) }

// MessageSubject returns the Subject of the messages that an outbox has under a key.
func MessageSubject(owner, outbox, key string) []byte {
	return auditlog.Subject("message", owner, outbox, key)
}

// Filter selects rows. The zero value selects all.
type Filter struct {
	// Owner, Kind and Subject select rows; empty means all. There is no index for them.
	Owner, Kind string
	Subject     []byte
	// After is the row that the list continues after, by its Chain and Seq.
	After Record
}

func (f *Filter) selects(r *auditlog.Row) bool {
	return (f.Owner == "" || f.Owner == r.Owner) && (f.Kind == "" || f.Kind == r.Kind) && (len(f.Subject) == 0 || bytes.Equal(f.Subject, r.Subject))
}

// List iterates over rows in the order in which they were written. It reads 500 at a time and is no
// snapshot. It ends at the first error. It does not verify the chain.
//
// Errors: [holdfast.ErrInvalid], [holdfast.ErrSchema], [holdfast.ErrDenied], the driver's.
func List[Tx any](ctx context.Context, db *holdfast.DB[Tx], opts ...Filter) iter.Seq2[Record, error] {
	f, err := options.One(opts)
	all := rows(ctx, db, err, f.After.Chain, f.After.Seq)
	return func(yield func(Record, error) bool) {
		for r, err := range all {
			if (err != nil || f.selects(&r)) && !yield(recordOf(&r), err) {
				return
			}
		}
	}
}

func recordOf(r *auditlog.Row) Record {
	out := Record{
		Chain: r.Chain, Seq: r.Seq, At: auditlog.Time(r.At), By: r.Actor, Session: r.Session, Action: r.Action, Kind: r.Kind, Owner: r.Owner,
		Namespace: r.Namespace, Subject: r.Subject, Reason: r.Reason, ConfirmedBy: r.Confirmed, Hash: r.Hash,
	}
	out.Before, out.After = state(r.Before), state(r.After)
	return out
}

// state returns a state as JSON, also one that was changed to something else.
func state(text string) json.RawMessage {
	if text == "" || json.Valid([]byte(text)) {
		return json.RawMessage(text)
	}
	b, err := json.Marshal(text)
	if err != nil {
		panic(err) // a string has a form in JSON
	}
	return b
}

// rows reads the rows that follow one.
func rows[Tx any](ctx context.Context, db *holdfast.DB[Tx], err error, chain string, seq int64) iter.Seq2[auditlog.Row, error] {
	return core.Pages(err, auditlog.Row{Chain: chain, Seq: seq}, page, func(after auditlog.Row) (list []auditlog.Row, err error) {
		a := access.Of(db)
		err = a.OnConn(ctx, "", func(q core.Querier) (err error) {
			list, err = auditlog.New(a.Dialect, a.Table).Page(ctx, q, after.Chain, after.Seq, page)
			return err
		})
		if a.Dialect.Classify(err) == dialect.NoTable {
			err = &holdfast.SchemaError{Table: a.Table("audit"), Err: err}
		}
		return list, err
	})
}

// ErrBroken means that the audit is not as it was written.
var ErrBroken = errcode.New("audit-broken", "audit: the chain is broken")

// BrokenError names the first row that is not as it was written. errors.Is(err, ErrBroken) holds.
type BrokenError struct {
	Chain string
	Seq   int64
	// Problem says what is wrong with it.
	Problem string
}

func (e *BrokenError) Error() string {
	at := fmt.Sprintf("row %d", e.Seq)
	if e.Chain != "" {
		at += fmt.Sprintf(" of chain %q", e.Chain)
	}
	return ErrBroken.Error() + ": " + at + " " + e.Problem
}

// Is reports whether target is ErrBroken.
func (e *BrokenError) Is(target error) bool { return target == ErrBroken }

// Head is the last row of a chain.
type Head struct {
	Chain string
	Seq   int64
	Hash  []byte
}

// Report is the result of Verify.
type Report struct {
	// Rows is the number of rows that were verified.
	Rows int64
	// Heads has the last row of each chain. Keep it elsewhere, for VerifyOptions.Expect.
	Heads []Head
}

// VerifyOptions configures Verify.
type VerifyOptions struct {
	// Expect has hashes of rows, such as heads of an earlier Report, that must still be there.
	Expect [][]byte
}

// Verify computes the hash of every row again. After an error, Report describes the rows before it.
//
// Errors: [BrokenError] for the first row that was changed, is missing or was added by another writer, and
// for a row of Expect that is not there; those of [List].
func Verify[Tx any](ctx context.Context, db *holdfast.DB[Tx], opts ...VerifyOptions) (report Report, err error) {
	o, err := options.One(opts)
	if err != nil {
		return report, err
	}
	expect := map[string]bool{}
	for _, h := range o.Expect {
		if len(h) != len(auditlog.Hash{}) {
			return report, &holdfast.InputError{Field: "VerifyOptions.Expect", Problem: fmt.Sprintf("has a hash of %d bytes, not %d", len(h), len(auditlog.Hash{}))}
		}
		expect[string(h)] = true
	}
	var last auditlog.Hash
	// A row with a number below 1 was added by hand, so it begins below all numbers.
	for r, err := range rows(ctx, db, nil, "", -1<<63) {
		if err != nil {
			return report, err
		}
		head := report.head(r.Chain)
		if head.Seq == 0 {
			last = auditlog.Hash{}
		}
		if err := follows(&r, head.Seq, last); err != nil {
			return report, err
		}
		last = auditlog.Hash(r.Hash)
		head.Seq, head.Hash = r.Seq, r.Hash
		report.Rows++
		delete(expect, string(r.Hash))
	}
	for _, h := range o.Expect {
		if expect[string(h)] {
			err := report.cut(h)
			return report, err
		}
	}
	return report, nil
}

// head returns the last row of a chain, which is the last one that was read.
func (r *Report) head(chain string) *Head {
	if n := len(r.Heads); n == 0 || r.Heads[n-1].Chain != chain {
		r.Heads = append(r.Heads, Head{Chain: chain})
	}
	return &r.Heads[len(r.Heads)-1]
}

// follows checks a row after the row with the number seq and the hash last.
func follows(r *auditlog.Row, seq int64, last auditlog.Hash) error {
	broken := &BrokenError{Chain: r.Chain, Seq: r.Seq}
	sum := r.Sum(last)
	switch {
	case r.Seq < 1:
		broken.Problem = "was inserted: rows count from 1"
	case r.Seq != seq+1:
		broken.Seq, broken.Problem = seq+1, fmt.Sprintf("is missing: the next one is row %d", r.Seq)
	case !bytes.Equal(sum[:], r.Hash):
		broken.Problem = "was changed or inserted: its hash does not follow from its columns and the row before"
	default:
		return nil
	}
	return broken
}

// cut reports that a row with a hash is not there. All rows that are there follow from each other.
func (r *Report) cut(hash []byte) error {
	e := &BrokenError{Seq: 1}
	if len(r.Heads) > 0 {
		e.Chain, e.Seq = r.Heads[0].Chain, r.Heads[0].Seq+1
	}
	e.Problem = fmt.Sprintf("or an earlier one is missing or was written anew: no row has the expected hash %x", hash)
	return e
}
