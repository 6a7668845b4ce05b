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
	if b, won := s.claiming(c, bound, after); b != nil {
		b.Exec(ctx, q)
		return won(b)
	}
	leave := ""
	if after > 0 {
		leave = dialect.Millis(after) + "ms"
	}
	var n int
	var setting string
	_, err := s.sql.claim.QueryRow(ctx, q, []any{&n, &setting}, append(s.claimArgs(c), dialect.Millis(bound)+"ms", leave)...)
	if err != nil {
		return false, &claimError{s.explain(err)}
	}
	return n == 1, nil
}

// claiming is the claim as a write, and what its outcome says; nil where it has
// to be a query, which puts another lock timeout back.
func (s *Store[Tx]) claiming(c *claim, bound, after time.Duration) (*core.Bound, func(*core.Bound) (bool, error)) {
	d := &s.dialect().Records
	b := &core.Bound{Stmt: s.sql.claim, Args: s.claimArgs(c)}
	verdict := d.Verdict
	switch {
	case d.ClaimBounds && bound == after:
		b.Stmt, verdict, b.Args = s.sql.claimSetting, dialect.ByAffected, append(b.Args, dialect.Millis(bound)+"ms")
	case d.ClaimBounds:
		return nil, nil
	}
	return b, func(b *core.Bound) (bool, error) {
		if b.Err != nil {
			return false, &claimError{s.explain(b.Err)}
		}
		return verdict.Won(b.Result), nil
	}
}

func (s *Store[Tx]) claimArgs(c *claim) []any {
	c.attempt = make([]byte, 16)
	_, _ = rand.Read(c.attempt) // never fails, by its documentation
	return []any{
		c.hash[:], s.options.Namespace, c.op.Tenant, c.op.Name, []byte(c.op.Key),
		nullable(c.prints.own()), c.prints.version, c.attempt,
	}
}

// finishing stores the verdict, as the last statement of the transaction. A
// record that is not there, or not of this attempt, shows that the transaction
// is not the one that claimed.
func (s *Store[Tx]) finishing(c *claim, v verdict) core.Bound {
	var businessID any
	if v.businessID != "" {
		businessID = v.businessID
	}
	return core.Bound{Stmt: s.sql.finish, OrFail: s.sql.finishOrFail, Args: []any{
		c.hash[:], c.attempt, v.state, nullable(v.result), c.bodyLife, c.keyLife, v.codec, businessID,
	}}
}

// finish is finishing in a caller's transaction, where more may follow.
func (s *Store[Tx]) finish(ctx context.Context, q core.Querier, c *claim, v verdict) error {
	b := s.finishing(c, v)
	switch b.Exec(ctx, q); {
	case b.Err != nil && (s.dialect().Classify(b.Err) == dialect.Gone || errors.Is(b.Err, sql.ErrTxDone)):
		return &holdfast.TxLostError{Err: b.Err}
	case b.Err != nil:
		return s.explain(b.Err)
	case b.Result.Affected != 1:
		return &holdfast.TxLostError{}
	}
	return nil
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
