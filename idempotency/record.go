package idempotency

import (
	"context"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/idempotency/internal/ledger"
	"github.com/holdfast-go/holdfast/idempotency/internal/once"
	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/dialect"
)

// The states of a record. Other sessions do not see a claimed record until its transaction
// commits, and by then it has a final state. A tombstone is a final state without its result.
const (
	claimed           = 1
	succeeded         = 2
	rejected          = 3
	tombstone         = 4
	rejectedTombstone = 5
)

// record is the stored row of a key.
type record struct {
	storedResult
	fingerprint               []byte
	fingerprintVersion        int
	resultExpired, keyExpired int
	requestID                 string // of the call that executed it
}

func (r *record) dest() []any {
	return []any{&r.state, &r.fingerprint, &r.fingerprintVersion, &r.result, &r.codec, &r.businessID, &r.requestID, &r.resultExpired, &r.keyExpired}
}

// judge returns the error that c gets from a record; nil means its result.
func (c *call) judge(r *record) error {
	if err := c.fingerprints.compare(r.fingerprintVersion, r.fingerprint); err != nil {
		return err
	}
	switch {
	case r.state == claimed:
		return &UnfinishedError{}
	case r.state >= tombstone || r.resultExpired == 1:
		return &ExpiredError{BusinessID: r.businessID, Rejected: r.state == rejected || r.state == rejectedTombstone}
	}
	return nil
}

// seen is the record's state, as others see it.
func (r *record) seen() State { return State(ledger.Seen(r.state, r.resultExpired)) }

// look reads the record of c without a lock; nil for none. A final state may be replayed from it. expired:
// there is one, and its KeyTTL is over.
func (s *Store[Tx]) look(ctx context.Context, q core.Querier, c *call) (r *record, expired bool, err error) {
	return s.find(ctx, q, &s.sql.look, c)
}

// find is look with one of the reads of a record.
func (s *Store[Tx]) find(ctx context.Context, q core.Querier, read *core.Stmt, c *call) (r *record, expired bool, err error) {
	r = new(record)
	found, err := read.QueryRow(ctx, q, r.dest(), c.args()...)
	return s.found(r, found, err)
}

// found says what reading r has found.
func (s *Store[Tx]) found(r *record, found bool, err error) (_ *record, expired bool, _ error) {
	switch {
	case err != nil:
		return nil, false, s.explain(err)
	case !found || r.keyExpired == 1:
		return nil, found, nil
	}
	return r, false, nil
}

// peek reads the record without waiting for the call that holds the key. It returns
// ErrInProgress when there is no record. Concurrent duplicates share one read.
func (s *Store[Tx]) peek(ctx context.Context, c *call) (r *record, err error) {
	f, leads := s.peeks.Join(c.hash)
	if leads {
		defer func() { s.peeks.Finish(c.hash, f, r) }()
		r, _, err = s.look(ctx, s.access.Pool, c)
	} else {
		r, err = f.Peek(ctx)
	}
	if r == nil && err == nil {
		err = &InProgressError{}
	}
	return r, err
}

// inFlight reports, without waiting, whether there is an uncommitted claim, if the engine shows
// it.
func (s *Store[Tx]) inFlight(ctx context.Context, c *call) (bool, error) {
	var r record
	found, err := s.sql.peek.Run(ctx, s.access.OnConn, r.dest(), c.args()...)
	return found && r.state == claimed, err
}

// blocked adds the holders of the key to an ErrInProgress.
func (s *Store[Tx]) blocked(ctx context.Context, p *pending, err error) error {
	busy, is := err.(*InProgressError) //nolint:errorlint // it is never wrapped
	if !is || p.noWait {
		return err
	}
	if busy.Waited == 0 { // the database has waited
		busy.Waited = time.Since(p.deadline.Add(-p.wait))
	}
	switch {
	case s.sql.holders.Text != "":
		found, _ := s.blockers.Run(ctx, s.sql.holders, p.args()...)
		busy.Blockers = core.Blockers[holdfast.Blocker](found)
	case p.watch != nil:
		busy.Blockers = core.Blockers[holdfast.Blocker](p.watch.Found())
	}
	return err
}

// writing writes the whole record of an attempt that has none, as the last statement of the transaction
// that began at since. transaction is the database's id of it, if the engine has one.
func (s *Store[Tx]) writing(c *call, write core.Bound, attempt []byte, v storedResult, since time.Time, transaction string) core.Bound {
	args := s.finishing(c, attempt, v).Args
	return write.With(append(s.identified(c, args), time.Since(since).Microseconds(), transaction)...)
}

// identified appends the values of a record that do not depend on its transaction.
func (s *Store[Tx]) identified(c *call, args []any) []any {
	return append(args, s.options.Namespace, c.op.Name, []byte(c.op.Key), once.Nullable(c.fingerprints.own), c.fingerprints.version)
}

// finishing stores the result, as the last statement of the transaction. If the record is missing,
// or belongs to another attempt, this transaction is not the one that claimed.
func (s *Store[Tx]) finishing(c *call, attempt []byte, v storedResult) core.Bound {
	var businessID, requestID any
	if v.businessID != "" {
		businessID = v.businessID
	}
	if c.requestID != "" {
		requestID = c.requestID
	}
	result, key := s.options.ResultTTL, s.options.KeyTTL
	if v.state == rejected {
		result, key = s.options.refusedFor()
	}
	return s.sql.finish.With(c.args(
		attempt, v.state, once.Nullable(v.result), ttl(result), ttl(key), v.codec, businessID, s.holder, s.program, requestID,
	)...)
}

// refusedFor returns how long a rejection and its key are kept.
func (o *Options) refusedFor() (result, key time.Duration) {
	result, key = o.ResultTTL, o.RejectionTTL
	if result == 0 || key > 0 && result > key {
		result = key
	}
	return result, key
}

// explain adds the remedy to errors that have a known one.
func (s *Store[Tx]) explain(err error) error {
	if err == nil {
		return nil
	}
	if s.dialect().Classify(err) == dialect.NoTable {
		return &holdfast.SchemaError{Table: s.access.Table("records"), Err: err}
	}
	return err
}
