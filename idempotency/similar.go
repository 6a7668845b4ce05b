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

// Similar (experimental) finds operations that are likely the same intent under different keys, for clients that
// generate a key for each click. After an operation was executed, another key with the same parts
// gets [ErrLikelyDuplicate] until the window ends, and its function does not run. Where you can,
// derive the key from the business instead (see KeyOf).
//
// The transaction of the record also writes the row of the intent, and locks it. So the second of two
// concurrent calls waits for the first, as it would wait for a key: up to Op.Wait (not at all with
// NoWait), and then it gets ErrInProgress. If the first is rolled back or rejected, the second runs.
// The same key again is always replayed.
//
// A Similar costs one statement, and operations with the same parts run one after the other. [Lookup] ignores it. Staged operations refuse
// it: start them with StartTx in a function of Do whose Op has one.
//
// Experimental: before v1.0 its fields may change in a minor version. Rows of intents that are stored stay valid.
type Similar struct {
	// By is what makes two operations alike, such as order and amount: 1 to 16 parts, none of them
	// empty, at most 4 KiB together, compared byte for byte. Owner, namespace and Op.Name are
	// compared too. Required.
	By []string
	// Window is how long another key counts as the same intent. It begins when this operation claims
	// the intent, by the database's clock, and is exact to the microsecond. 50 ms to 366 days. Required.
	Window time.Duration
	// Confirm is the Token of a *LikelyDuplicateError that a person has seen and confirmed. The
	// operation runs, and later ones are compared with it. A token confirms one operation; the next
	// one gets an error with another token. See also [ConfirmAny].
	Confirm string
	// ReportOnly runs the operation in any case, to try the guard. A tracer gets the event
	// "intent.again" for each operation that would have been refused.
	ReportOnly bool
}

// ErrLikelyDuplicate means that an operation with the same Similar was executed under another key,
// and its window has not ended. Nothing was executed for this call, and its key is free. A
// *LikelyDuplicateError names that operation and has the token to confirm with.
var ErrLikelyDuplicate = errcode.New("likely-duplicate", "idempotency: likely a duplicate of an operation with another key")

// LikelyDuplicateError names the operation that was executed first, or confirmed last.
// errors.Is(err, ErrLikelyDuplicate) holds.
type LikelyDuplicateError struct {
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

func (e *LikelyDuplicateError) Error() string {
	what := ""
	if e.BusinessID != "" {
		what = fmt.Sprintf(" (business id %q)", e.BusinessID)
	}
	return fmt.Sprintf("%v%s, claimed at %s: if it is meant, call again with Similar.Confirm = %q", ErrLikelyDuplicate, what, e.At.UTC().Format(time.RFC3339), e.Token)
}

// Is reports whether target is ErrLikelyDuplicate.
func (e *LikelyDuplicateError) Is(target error) bool { return target == ErrLikelyDuplicate }

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
		return nil, once.Invalid("Op.Similar.Confirm", "is not the Token of a LikelyDuplicateError")
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

// intents are the statements of Similar.
type intents struct {
	claim, read, take, find core.Stmt
	verdict                 dialect.Verdict
	erase                   string // the text of a statement with a list: {hashes}
}

// compileIntents compiles the statements. read and take follow a claim that lost, which has the row locked.
// $0 is the owner. The comment of each lists its parameters.
func compileIntents(d *dialect.Dialect, table func(string) string) intents {
	r := d.Names(table)
	x := func(name, text string) core.Stmt { return d.Compile(name, r.Replace(text)) }
	return intents{
		verdict: d.Intents.Verdict,
		// intent_hash, namespace, operation, key_hash, op_key, attempt, window (µs).
		claim: x("intents.claim", `INSERT INTO {intents}`+d.Intents.As+` (owner, intent_hash, namespace, operation, key_hash, op_key, attempt, claimed_at, expires_at)
VALUES ($0, $1, $2, $3, $4, $5, $6, {now}, {now} + $7) `+d.Intents.OnConflict),
		// intent_hash (returns key_hash, op_key, attempt, claimed_at and the µs until the end of the window).
		read: x("intents.read", `SELECT key_hash, op_key, attempt, claimed_at, expires_at - {now} FROM {intents} WHERE owner = $0 AND intent_hash = $1{for reread}`),
		// intent_hash, key_hash, op_key, attempt, window (µs).
		take: x("intents.take", `UPDATE {intents} SET key_hash = $2, op_key = $3, attempt = $4, claimed_at = {now}, expires_at = {now} + $5
WHERE owner = $0 AND intent_hash = $1`),
		// namespace, operation ("" = each), intent_hash to continue after, limit (returns intent_hash).
		find: x("erase.find", `SELECT intent_hash FROM {intents}
WHERE owner = $0 AND namespace = $1 AND operation = CASE WHEN $2 = '' THEN operation ELSE $2 END AND intent_hash > $3 ORDER BY intent_hash LIMIT $4`),
		erase: r.Replace(`DELETE FROM {intents} WHERE owner = $0 AND intent_hash IN ({hashes})`),
	}
}

// intent is what a call with a Similar adds to its protocol.
// Its model is internal/test/model/similar.pml.
type intent[Tx any] struct {
	s    *Store[Tx]
	call *call
	// again is the outcome of the event if this call runs though it is likely a duplicate.
	again string
}

// queued runs a transaction of p. It makes the calls of this process with one intent run theirs one after
// the other, so that those that wait hold no connection.
func (in *intent[Tx]) queued(ctx context.Context, p *pending, w work[Tx]) (*record, error) {
	flights, hash := in.s.intents, in.call.similar.hash
	policy := once.WaitPolicy{NoWait: p.op.NoWait, Wait: p.wait, Deadline: time.Now().Add(p.wait)}
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

// before returns w with the claim of the intent before it.
func (in *intent[Tx]) before(w work[Tx]) work[Tx] {
	return func(ctx context.Context, tx access.OwnTx[Tx]) (storedResult, error) {
		err := in.claim(ctx, tx, in.wait())
		if errors.Is(err, ErrLikelyDuplicate) {
			return storedResult{}, &once.FuncError{Err: err} // as the function's: the record is read before it is returned
		}
		if err != nil {
			return storedResult{}, err
		}
		return w(ctx, tx)
	}
}

// claim claims the intent in a transaction that has its key. It returns a *LikelyDuplicateError if the
// intent is taken. wait bounds the wait for another session's intent; 0 is that of the transaction.
func (in *intent[Tx]) claim(ctx context.Context, q core.Querier, wait time.Duration) error {
	s, c := in.s, in.call
	in.again = ""
	token := once.RandomID()
	claim := func() (bool, error) {
		r, err := s.sql.intents.claim.Exec(ctx, q, c.op.Owner, c.similar.hash[:], s.options.Namespace, c.op.Name, c.hash[:], []byte(c.op.Key), token, c.similar.Window.Microseconds())
		return err == nil && s.sql.intents.verdict.Won(r), err
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
	case err == nil, errors.Is(err, ErrLikelyDuplicate):
		return err
	case s.dialect().Classify(err) == dialect.NoTable:
		err = &holdfast.SchemaError{Table: s.access.Table("intents"), Err: err}
	}
	return &once.ClaimError{Err: err}
}

// minIntentWait bounds the wait of a call that does not wait: as long as the engine's own short locks.
const minIntentWait = 20 * time.Millisecond

// wait returns the bound of the wait for an intent in a transaction of Do, whose lock timeout is
// LockTimeout.
func (in *intent[Tx]) wait() time.Duration {
	switch {
	case in.call.op.NoWait:
		return minIntentWait
	case in.call.wait < in.s.options.LockTimeout:
		return max(in.call.wait, minIntentWait)
	}
	return 0
}

// claimTx is claim in a caller's transaction, behind the savepoint: a rejection undoes it. It waits
// once, because on some servers a wait that is over ends the transaction.
func (in *intent[Tx]) claimTx(ctx context.Context, q core.Querier) error {
	wait := min(in.call.wait, in.s.options.LockTimeout)
	if in.call.op.NoWait {
		wait = 0
	}
	return in.claim(ctx, q, max(wait, minIntentWait))
}

// taken decides about an intent that another key has. This transaction has its row locked. next is the
// token of this call's intent, if it takes over.
func (in *intent[Tx]) taken(ctx context.Context, q core.Querier, next []byte) error {
	s, c := in.s, in.call
	var hash once.Hash
	var key, last []byte
	var at, remaining int64
	found, err := s.sql.intents.read.QueryRow(ctx, q, []any{once.Into(&hash), &key, &last, &at, &remaining}, c.op.Owner, c.similar.hash[:])
	switch {
	case err != nil:
		return err
	case !found: // the caller's snapshot is older than the row
		return &holdfast.RetryError{Attempts: 1, Err: errors.New("idempotency: the row of the intent is not to be seen in this transaction")}
	}
	token := hex.EncodeToString(last)
	switch {
	case c.similar.Confirm == token, c.similar.Confirm == ConfirmAny:
		in.again = trace.Confirmed
	case c.similar.ReportOnly:
		in.again = trace.Reported
	default:
		e := &LikelyDuplicateError{
			Key: string(key), At: time.UnixMicro(at).UTC(), Remaining: time.Duration(max(remaining, 0)) * time.Microsecond, Token: token,
		}
		return s.describe(ctx, q, c, e, hash)
	}
	r, err := s.sql.intents.take.Exec(ctx, q, c.op.Owner, c.similar.hash[:], c.hash[:], []byte(c.op.Key), next, c.similar.Window.Microseconds())
	if err == nil && r.Affected != 1 {
		err = &holdfast.TxLostError{}
	}
	return err
}

// describe adds to e what the record of its operation says, and returns it.
func (s *Store[Tx]) describe(ctx context.Context, q core.Querier, c *call, e *LikelyDuplicateError, hash once.Hash) error {
	var r record
	found, err := s.sql.look.QueryRow(ctx, q, r.dest(), c.op.Owner, hash[:])
	if err != nil || !found {
		return once.FirstOf(err, e)
	}
	e.BusinessID, e.State = r.businessID, r.seen()
	return e
}

// executed tells a tracer that the call was executed, if it was likely a duplicate.
func (in *intent[Tx]) executed(ctx context.Context) {
	if in.again != "" {
		in.s.access.Trace.Emit(ctx, trace.Event{Name: trace.IntentAgain, Operation: in.call.op.Name, Outcome: in.again, Count: 1})
	}
}
