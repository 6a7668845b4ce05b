package idempotency

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/dialect"
)

// The states of a record. A claimed record is seen by nobody else until its
// transaction commits, and by then it has a final state. A tombstone is a final
// state without its answer.
const (
	claimed           = 1
	succeeded         = 2
	rejected          = 3
	tombstone         = 4
	rejectedTombstone = 5
)

// record is what the table says of a key.
type record struct {
	verdict
	print                   []byte
	printVersion            int
	bodyExpired, keyExpired int
}

func (r *record) dest() []any {
	return []any{&r.state, &r.print, &r.printVersion, &r.result, &r.codec, &r.businessID, &r.bodyExpired, &r.keyExpired}
}

// judge says what c gets from a record; nil: its answer.
func (c *claim) judge(r *record) error {
	if err := c.prints.compare(r.printVersion, r.print); err != nil {
		return err
	}
	switch {
	case r.state == claimed:
		return &UnfinishedError{}
	case r.state >= tombstone || r.bodyExpired == 1:
		return &ExpiredError{BusinessID: r.businessID, Rejected: r.state == rejected || r.state == rejectedTombstone}
	}
	return nil
}

// look reads the record with a plain read, which a final state may be replayed from.
func (s *Store[Tx]) look(ctx context.Context, q core.Querier, c *claim) (*record, error) {
	var r record
	found, err := s.sql.look.QueryRow(ctx, q, r.dest(), c.hash[:])
	return s.known(&r, c, found, err)
}

// glance is a look without waiting for whoever has the key, ErrInProgress where
// there is no record. Duplicates at the same moment share it, and its connection.
func (s *Store[Tx]) glance(ctx context.Context, c *claim) (r *record, err error) {
	f, leads := s.glances.join(c.hash, nil)
	if leads {
		defer func() { s.glances.land(c.hash, f, r) }()
		r, err = s.look(ctx, s.access.Pool, c)
	} else {
		select {
		case <-f.done:
			r = f.value
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
	}
	if r == nil && err == nil {
		err = &InProgressError{}
	}
	return r, err
}

func (s *Store[Tx]) known(r *record, c *claim, found bool, err error) (*record, error) {
	if err != nil {
		return nil, s.explain(err)
	}
	c.expired = found && r.keyExpired == 1
	if !found || c.expired {
		return nil, nil
	}
	return r, nil
}

// inFlight tells, without waiting, whether an uncommitted claim is there.
func (s *Store[Tx]) inFlight(ctx context.Context, c *claim) (bool, error) {
	peek := s.dialect().Records.PeekBefore
	if peek == "" {
		return false, nil
	}
	var r record
	found := false
	err := s.access.OnConn(ctx, peek, func(q core.Querier) (err error) {
		found, err = s.sql.look.QueryRow(ctx, q, r.dest(), c.hash[:])
		return err
	})
	return found && r.state == claimed, err
}

// claim inserts the record; false when it was there already. bound bounds the
// wait for another session's claim, where the statement can; after is the
// lock timeout that it leaves behind, 0 for the one it found.
func (s *Store[Tx]) claim(ctx context.Context, q core.Querier, c *claim, bound, after time.Duration) (bool, error) {
	if c.expired {
		if _, err := s.sql.renew.Exec(ctx, q, c.hash[:]); err != nil {
			return false, &claimError{s.explain(err)}
		}
	}
	c.attempt = make([]byte, 16)
	_, _ = rand.Read(c.attempt) // never fails, by its documentation
	args := []any{
		c.hash[:], s.options.Namespace, c.op.Tenant, c.op.Name, []byte(c.op.Key),
		nullable(c.prints.own()), c.prints.version, c.attempt,
	}
	if s.dialect().Records.ClaimBounds {
		leave := ""
		if after > 0 {
			leave = dialect.Millis(after) + "ms"
		}
		args = append(args, dialect.Millis(bound)+"ms", leave)
	}
	won, err := runClaim(ctx, q, s.sql.claim, s.dialect().Records.Verdict, args)
	if err != nil {
		return false, &claimError{s.explain(err)}
	}
	return won, nil
}

// finish stores the verdict. A record that is not there, or not of this
// attempt, shows that the transaction is not the one that claimed.
func (s *Store[Tx]) finish(ctx context.Context, q core.Querier, c *claim, v verdict) error {
	var businessID any
	if v.businessID != "" {
		businessID = v.businessID
	}
	r, err := s.sql.finish.Exec(ctx, q, c.hash[:], c.attempt, v.state, nullable(v.result), c.bodyLife, c.keyLife, v.codec, businessID)
	switch {
	case err != nil && (s.dialect().Classify(err) == dialect.Gone || errors.Is(err, sql.ErrTxDone)):
		return &holdfast.TxLostError{Err: err}
	case err != nil:
		return s.explain(err)
	case r.Affected != 1:
		return &holdfast.TxLostError{}
	}
	return nil
}

func runClaim(ctx context.Context, q core.Querier, stmt core.Stmt, v dialect.Verdict, args []any) (bool, error) {
	if v == dialect.ByRow {
		var n int
		var setting string
		_, err := stmt.QueryRow(ctx, q, []any{&n, &setting}, args...)
		return n == 1, err
	}
	r, err := stmt.Exec(ctx, q, args...)
	switch v {
	case dialect.ByInsertID:
		return r.InsertID != dialect.Lost, err
	case dialect.ByDuplicate:
		return err == nil, err
	default:
		return r.Affected == 1, err
	}
}

// claimError marks an error of the claim, before the function ran.
type claimError struct{ err error }

func (e *claimError) Error() string { return "idempotency: claiming the key: " + e.err.Error() }
func (e *claimError) Unwrap() error { return e.err }

// explain adds what to do to errors that have a known cure.
func (s *Store[Tx]) explain(err error) error {
	if err == nil {
		return nil
	}
	switch s.dialect().Classify(err) {
	case dialect.NoTable:
		return &holdfast.SchemaError{Table: s.access.Table("records"), Err: err}
	case dialect.ReadOnly:
		return fmt.Errorf("idempotency: a claim is a write, and the transaction is read-only, or the server a replica: use a read-write transaction on the primary: %w", err)
	}
	return err
}

// nullable turns nil bytes into a NULL for every driver.
func nullable(b []byte) any {
	if b == nil {
		return nil
	}
	return b
}
