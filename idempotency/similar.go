package idempotency

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/idempotency/internal/once"
	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/dialect"
	"github.com/holdfast-go/holdfast/internal/errcode"
	"github.com/holdfast-go/holdfast/internal/options"
	"github.com/holdfast-go/holdfast/internal/trace"
)

// Bounds of a Similar.
const (
	maxSimilarParts  = 16
	maxSimilarBytes  = 4096 // of all parts
	maxSimilarWindow = 366 * 24 * time.Hour
)

// ConfirmAny is a Similar.Confirm that confirms the operation regardless of what was executed before
// it, for a program that has already asked. Never accept it from a client.
const ConfirmAny = "*"

// Similar (experimental) finds operations with different keys that are probably one intent, for clients that
// generate a key for each click. After an operation was executed, another key with the same parts
// gets [ErrSimilar] until the window ends, and its function does not run. Where you can,
// derive the key from the business instead (see KeyOf).
//
// The transaction of the record also writes a row for these parts, and locks it. So the second of two
// concurrent calls waits for the first, as it would wait for a key: up to Op.Wait (not at all with
// NoWait), and then it gets ErrInProgress. If the first is rolled back or rejected, the second runs.
// The same key again is always replayed.
//
// A Similar costs one statement, and operations with the same parts run one after the other. [Lookup] ignores it. Staged operations refuse
// it: start them with StartTx in a function of Do whose Op has one.
//
// Experimental: before v1.0 its fields may change in a minor version. Rows that are stored stay valid.
type Similar struct {
	// By is what makes two operations alike, such as order and amount: 1 to 16 parts, none of them
	// empty, at most 4 KiB together, compared byte for byte. Owner, namespace and Op.Name are
	// compared too. Required.
	By []string
	// Window is how long another key is refused. It begins when this operation claims
	// the row, by the database's clock, and is exact to the microsecond. 50 ms to 366 days. Required.
	Window time.Duration
	// Confirm is the Token of a *SimilarError that a person has seen and confirmed. The
	// operation runs, and later ones are compared with it. A token confirms one operation; the next
	// one gets an error with another token. See also [ConfirmAny].
	Confirm string
	// ReportOnly runs the operation in any case, to try the guard. A tracer gets the event
	// "similar.again" for each operation that would have been refused.
	ReportOnly bool
}

// ErrSimilar means that an operation with the same Similar was executed under another key,
// and its window has not ended. Nothing was executed for this call, and its key is free. A
// *SimilarError names that operation and has the token to confirm with.
var ErrSimilar = errcode.New("similar", "idempotency: similar to an operation with another key")

// SimilarError names the operation that was executed first, or confirmed last.
// errors.Is(err, ErrSimilar) holds.
type SimilarError struct {
	// Key is the key of that operation, of the same owner and name; with Options.HashKeys, as it is
	// kept.
	Key string
	// At is when it was claimed, and Remaining how long its window is still open, both by the
	// database's clock.
	At        time.Time
	Remaining time.Duration
	// State and BusinessID are of its record; StateAbsent if that was not found.
	State      State
	BusinessID string
	// Token is the value for Similar.Confirm: 32 hexadecimal digits that cannot be guessed. It does
	// not reveal the key.
	Token string
}

func (e *SimilarError) Error() string {
	what := ""
	if e.BusinessID != "" {
		what = fmt.Sprintf(" (business id %q)", e.BusinessID)
	}
	return fmt.Sprintf("%v%s, claimed at %s: if it is meant, call again with Similar.Confirm = %q", ErrSimilar, what, e.At.UTC().Format(time.RFC3339), e.Token)
}

// Is reports whether target is ErrSimilar.
func (e *SimilarError) Is(target error) bool { return target == ErrSimilar }

// similar is a checked Similar.
type similar struct {
	Similar

	hash once.Hash
}

func (o *Options) similar(op Op) (*similar, error) {
	s := op.Similar
	bytes := 0
	for i, part := range s.By {
		if part == "" {
			return nil, once.Invalid("Op.Similar.By", fmt.Sprintf("part %d is empty, so that every operation without it would be similar", i+1))
		}
		bytes += len(part)
	}
	switch {
	case len(s.By) == 0 || len(s.By) > maxSimilarParts:
		return nil, once.Invalid("Op.Similar.By", fmt.Sprintf("has %d parts, 1 to %d are allowed: name what makes two operations alike, such as order and amount", len(s.By), maxSimilarParts))
	case bytes > maxSimilarBytes:
		return nil, once.Invalid("Op.Similar.By", fmt.Sprintf("has %d bytes, at most %d are allowed: hash the long part", bytes, maxSimilarBytes))
	case s.Confirm != "" && s.Confirm != ConfirmAny && !isToken(s.Confirm):
		return nil, once.Invalid("Op.Similar.Confirm", "is not the Token of a SimilarError")
	}
	if err := options.Life.Or("").UpTo(maxSimilarWindow).Check("Op.Similar.Window", s.Window); err != nil {
		return nil, err
	}
	return &similar{Similar: *s, hash: once.HashSimilar(o.Namespace, op.Owner, op.Name, o.HashKeys.similar(s.By))}, nil
}

func isToken(text string) bool {
	b, err := hex.DecodeString(text)
	return err == nil && len(b) == len(once.RandomID())
}

// similarSQL are the statements of Similar.
type similarSQL struct {
	claim, read, take, find core.Stmt
	verdict                 dialect.Verdict
	erase                   string // the text of a statement with a list: {hashes}
}

// compileSimilar compiles the statements. read and take follow a claim that lost, which has the row locked.
// $0 is the owner. The comment of each lists its parameters.
func compileSimilar(d *dialect.Dialect, table func(string) string) similarSQL {
	r := d.Names(table)
	x := func(name, text string) core.Stmt { return d.Compile(name, r.Replace(text)) }
	return similarSQL{
		verdict: d.Similar.Verdict,
		// similar_hash, namespace, operation, key_hash, op_key, attempt, window (µs).
		claim: x("similar.claim", `INSERT INTO {similar}`+d.Similar.As+` (owner, similar_hash, namespace, operation, key_hash, op_key, attempt, claimed_at, expires_at)
VALUES ($0, $1, $2, $3, $4, $5, $6, {now}, {now} + $7) `+d.Similar.OnConflict),
		// similar_hash (returns key_hash, op_key, attempt, claimed_at and the µs until the end of the window).
		read: x("similar.read", `SELECT key_hash, op_key, attempt, claimed_at, expires_at - {now} FROM {similar} WHERE owner = $0 AND similar_hash = $1{for reread}`),
		// similar_hash, key_hash, op_key, attempt, window (µs).
		take: x("similar.take", `UPDATE {similar} SET key_hash = $2, op_key = $3, attempt = $4, claimed_at = {now}, expires_at = {now} + $5
WHERE owner = $0 AND similar_hash = $1`),
		// namespace, operation ("" = each), similar_hash to continue after, limit (returns similar_hash).
		find: x("erase.find", `SELECT similar_hash FROM {similar}
WHERE owner = $0 AND namespace = $1 AND operation = CASE WHEN $2 = '' THEN operation ELSE $2 END AND similar_hash > $3 ORDER BY similar_hash LIMIT $4`),
		erase: r.Replace(`DELETE FROM {similar} WHERE owner = $0 AND similar_hash IN ({hashes})`),
	}
}

// similarClaim is what a call with a Similar adds to its protocol.
// Its model is internal/test/model/similar.pml.
type similarClaim[Tx any] struct {
	s    *Store[Tx]
	call *call
	// again is the outcome of the event if this call runs though a similar one has run.
	again string
}

// queued runs a transaction of p. It makes the similar calls of this process run theirs one after
// the other, so that those that wait hold no connection.
func (in *similarClaim[Tx]) queued(ctx context.Context, p *pending, w work[Tx]) (*record, error) {
	flights, hash := in.s.similar, in.call.similar.hash
	policy := once.WaitPolicy{NoWait: p.noWait, Wait: p.wait, Deadline: time.Now().Add(p.wait)}
	f, leads := flights.Join(hash)
	for !leads {
		if _, err := f.Follow(ctx, policy); err != nil {
			return nil, err
		}
		f, leads = flights.Join(hash)
	}
	defer flights.Finish(hash, f, nil)
	return in.s.transact(ctx, p, w)
}

// before returns w with the claim before it.
func (in *similarClaim[Tx]) before(w work[Tx]) work[Tx] {
	return func(ctx context.Context, tx access.OwnTx[Tx]) (storedResult, error) {
		err := in.claim(ctx, tx, in.wait())
		if errors.Is(err, ErrSimilar) {
			return storedResult{}, &once.FuncError{Err: err} // as the function's: the record is read before it is returned
		}
		if err != nil {
			return storedResult{}, err
		}
		return w(ctx, tx)
	}
}

// claim claims the row in a transaction that has its key. It returns a *SimilarError if the
// row is taken. wait bounds the wait for another session's claim; 0 is that of the transaction.
func (in *similarClaim[Tx]) claim(ctx context.Context, q core.Querier, wait time.Duration) error {
	s, c := in.s, in.call
	in.again = ""
	token := once.RandomID()
	claim := func() (bool, error) {
		r, err := s.sql.similar.claim.Exec(ctx, q, c.op.Owner, c.similar.hash[:], s.options.Namespace, c.op.Name, c.hash[:], []byte(c.op.Key), token, c.similar.Window.Microseconds())
		return err == nil && s.sql.similar.verdict.Won(r), err
	}
	var mine bool
	var err error
	if wait == 0 {
		mine, err = claim()
	} else {
		mine, err = s.sql.claim.Bounded(ctx, q, wait, claim)
	}
	if err == nil && !mine {
		err = in.taken(ctx, q, token)
	}
	switch {
	case err == nil, errors.Is(err, ErrSimilar):
		return err
	case s.dialect().Classify(err) == dialect.NoTable:
		err = &holdfast.SchemaError{Table: s.access.Table("similar"), Err: err}
	}
	return &once.ClaimError{Err: err}
}

// minSimilarWait bounds the wait of a call that does not wait: as long as the engine's own short locks.
const minSimilarWait = 20 * time.Millisecond

// wait returns the bound of the wait for the row in a transaction of Do, whose lock timeout is
// LockTimeout.
func (in *similarClaim[Tx]) wait() time.Duration {
	switch {
	case in.call.noWait:
		return minSimilarWait
	case in.call.wait < in.s.options.LockTimeout:
		return max(in.call.wait, minSimilarWait)
	}
	return 0
}

// claimTx is claim in a caller's transaction, behind the savepoint: a rejection undoes it. It waits
// once, because on some servers a wait that is over ends the transaction.
func (in *similarClaim[Tx]) claimTx(ctx context.Context, q core.Querier) error {
	wait := min(in.call.wait, in.s.options.LockTimeout)
	if in.call.noWait {
		wait = 0
	}
	return in.claim(ctx, q, max(wait, minSimilarWait))
}

// taken decides about a row that another key has. This transaction has it locked. next is the
// token of this call, if it takes over.
func (in *similarClaim[Tx]) taken(ctx context.Context, q core.Querier, next []byte) error {
	s, c := in.s, in.call
	var hash once.Hash
	var key, last []byte
	var at, remaining int64
	found, err := s.sql.similar.read.QueryRow(ctx, q, []any{once.Into(&hash), &key, &last, &at, &remaining}, c.op.Owner, c.similar.hash[:])
	switch {
	case err != nil:
		return err
	case !found: // the caller's snapshot is older than the row
		return &holdfast.RetryError{Attempts: 1, Err: errors.New("idempotency: the row of the similar operation is not to be seen in this transaction")}
	}
	token := hex.EncodeToString(last)
	switch {
	case c.similar.Confirm == token, c.similar.Confirm == ConfirmAny:
		in.again = trace.Confirmed
	case c.similar.ReportOnly:
		in.again = trace.Reported
	default:
		e := &SimilarError{
			Key: string(key), At: time.UnixMicro(at).UTC(), Remaining: time.Duration(max(remaining, 0)) * time.Microsecond, Token: token,
		}
		return s.describe(ctx, q, c, e, hash)
	}
	r, err := s.sql.similar.take.Exec(ctx, q, c.op.Owner, c.similar.hash[:], c.hash[:], []byte(c.op.Key), next, c.similar.Window.Microseconds())
	if err == nil && r.Affected != 1 {
		err = &holdfast.TxLostError{}
	}
	return err
}

// describe adds to e what the record of its operation says, and returns it.
func (s *Store[Tx]) describe(ctx context.Context, q core.Querier, c *call, e *SimilarError, hash once.Hash) error {
	var r record
	found, err := s.sql.look.QueryRow(ctx, q, r.dest(), c.op.Owner, hash[:])
	if err != nil || !found {
		return once.FirstOf(err, e)
	}
	e.BusinessID, e.State = r.businessID, r.seen()
	return e
}

// executed tells a tracer that the call was executed, if a similar one was executed before.
func (in *similarClaim[Tx]) executed(ctx context.Context) {
	if in.again != "" {
		in.s.access.Trace.Emit(ctx, trace.Event{Name: trace.SimilarAgain, Operation: in.call.op.Name, Outcome: in.again, Count: 1})
	}
}
