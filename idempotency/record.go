package idempotency

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/holdfast-go/holdfast"
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

// look reads the record without a lock. A final state may be replayed from it.
func (s *Store[Tx]) look(ctx context.Context, q core.Querier, c *call) (*record, error) {
	var r record
	found, err := s.sql.look.QueryRow(ctx, q, r.dest(), c.args()...)
	return s.known(&r, c, found, err)
}

// peek reads the record without waiting for the call that holds the key. It returns
// ErrInProgress when there is no record. Concurrent duplicates share one read.
func (s *Store[Tx]) peek(ctx context.Context, c *call) (r *record, err error) {
	f, leads := s.peeks.Join(c.hash)
	if leads {
		defer func() { s.peeks.Finish(c.hash, f, r) }()
		r, err = s.look(ctx, s.access.Pool, c)
	} else {
		r, err = f.Peek(ctx)
	}
	if r == nil && err == nil {
		err = &InProgressError{}
	}
	return r, err
}

func (s *Store[Tx]) known(r *record, c *call, found bool, err error) (*record, error) {
	if err != nil {
		return nil, s.explain(err)
	}
	c.expired = found && r.keyExpired == 1
	if !found || c.expired {
		return nil, nil
	}
	return r, nil
}

// inFlight reports, without waiting, whether there is an uncommitted claim, if the engine shows
// it.
func (s *Store[Tx]) inFlight(ctx context.Context, c *call) (bool, error) {
	var r record
	found, err := s.sql.peek.Run(ctx, s.access.OnConn, r.dest(), c.args()...)
	return found && r.state == claimed, err
}

// claim runs a claim in a transaction that runs; it returns false if the record exists.
func (s *Store[Tx]) claim(ctx context.Context, q core.Querier, c *call, claim core.Bound, reserves bool) (bool, error) {
	if c.expired {
		if _, err := s.sql.renew.Exec(ctx, q, c.args()...); err != nil {
			return false, &once.ClaimError{Err: s.explain(err)}
		}
	}
	var a core.Answer
	if err := c.watch.During(ctx, q, s.options.LockTimeout, func() error {
		a = claim.Run(ctx, q)
		return a.Err
	}); err != nil && a.Err == nil {
		a.Err = err
	}
	return s.won(c, a, reserves)
}

// blocked adds to an ErrInProgress who has the key.
func (s *Store[Tx]) blocked(ctx context.Context, c *call, err error) error {
	p, is := err.(*InProgressError) //nolint:errorlint // it is never wrapped
	switch {
	case !is || c.op.NoWait:
	case s.sql.holders.Text != "":
		p.Blockers, _ = s.blockers.Run(ctx, s.sql.holders, c.args()...)
	default:
		p.Blockers = c.watch.Found()
	}
	return err
}

// reserves reports whether Do reserves a key, and writes its record at the end; otherwise it claims the
// key by a first write. misses reports that a reservation may have missed a record that another call
// stored between its snapshot and its lock, so that an error has to be checked against the record.
func (s *Store[Tx]) reserves() bool { return s.sql.claim.Reserves(s.options.Isolation) }
func (s *Store[Tx]) misses() bool   { return s.reserves() && s.sql.before.Text != "" }

// last reports whether c claims nothing before its function, and writes its record at the end. The
// insert does not replace an expired record, so the key of one is claimed first. So is the key of a
// call with an intent, so that all calls lock their key before their intent.
func (s *Store[Tx]) last(c *call) bool {
	return s.options.ClaimLast && !c.expired && (c.similar == nil || c.similar.rejects)
}

// claiming returns the claim to send, of a new attempt. It inserts the record. wait bounds the wait
// for another session's claim, if the statement can do so; 0 is no wait. after is the lock timeout to
// set afterwards; 0 restores the previous one.
func (s *Store[Tx]) claiming(c *call, wait, after time.Duration) core.Bound {
	c.attempt = once.RandomID()
	return s.sql.claim.Bind(append(s.identified(c, c.args()), c.attempt), wait, after)
}

// reserving returns a claim that writes nothing; recording writes the whole record at the end.
func (s *Store[Tx]) reserving(c *call, wait, after time.Duration) core.Bound {
	c.attempt, c.reserved = once.RandomID(), time.Now()
	return s.sql.claim.Reserve(c.args(), wait, after)
}

// recording writes the whole record, in the transaction that has reserved the key.
func (s *Store[Tx]) recording(c *call, v storedResult) core.Bound {
	b := s.finishing(c, v)
	b.Stmt, b.OrFail = s.sql.record, s.sql.recordOrFail
	b.Args = append(s.identified(c, b.Args), time.Since(c.reserved).Microseconds(), c.transaction)
	return b
}

// identified appends the values of a record that do not depend on its transaction.
func (s *Store[Tx]) identified(c *call, args []any) []any {
	return append(args, s.options.Namespace, c.op.Name, []byte(c.op.Key), once.Nullable(c.fingerprints.own), c.fingerprints.version)
}

// won reads the answer of a claim, with the transaction's id.
func (s *Store[Tx]) won(c *call, a core.Answer, reserved bool) (bool, error) {
	c.transaction = a.Text
	if a.Err != nil {
		return false, &once.ClaimError{Err: s.explain(a.Err)}
	}
	if reserved {
		return s.sql.claim.Reserved(a.Result), nil
	}
	return s.sql.claim.Won(a.Result), nil
}

// finishing stores the result, as the last statement of the transaction. If the record is missing,
// or belongs to another attempt, this transaction is not the one that claimed.
func (s *Store[Tx]) finishing(c *call, v storedResult) core.Bound {
	var businessID, requestID any
	if v.businessID != "" {
		businessID = v.businessID
	}
	if c.requestID != "" {
		requestID = c.requestID
	}
	life := c.kept
	if v.state == rejected {
		life = c.refused
	}
	return core.Bound{Stmt: s.sql.finish, OrFail: s.sql.finishOrFail, Args: c.args(
		c.attempt, v.state, once.Nullable(v.result), life.result, life.key, v.codec, businessID, s.holder, s.program, requestID,
	)}
}

// finish runs finishing in the caller's transaction, which may continue afterwards.
func (s *Store[Tx]) finish(ctx context.Context, q core.Querier, c *call, v storedResult) error {
	a := s.finishing(c, v).Run(ctx, q)
	switch {
	case a.Err != nil && (s.dialect().Classify(a.Err) == dialect.Gone || errors.Is(a.Err, sql.ErrTxDone)):
		return &holdfast.TxLostError{Err: a.Err}
	case a.Err != nil:
		return s.explain(a.Err)
	case a.Affected != 1:
		return &holdfast.TxLostError{}
	}
	return nil
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
