package outbox

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/idempotency/internal/once"
	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/auditlog"
	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/dialect"
	"github.com/holdfast-go/holdfast/internal/errcode"
	"github.com/holdfast-go/holdfast/internal/options"
	"github.com/holdfast-go/holdfast/internal/trace"
)

// Outbox holds the messages of one name. It is safe for concurrent use, holds no connection and needs
// no closing.
type Outbox[Tx any] struct {
	db     *holdfast.DB[Tx]
	access access.Access[Tx]
	name   string
	sql    statements
	audit  *auditlog.Log
}

// New opens the outbox of a name, and checks that its tables exist. A relay publishes the messages of
// one outbox. At most 128 bytes.
//
// Errors: [holdfast.ErrInvalid], [holdfast.ErrSchema] with the command to run, errors of the driver.
func New[Tx any](ctx context.Context, db *holdfast.DB[Tx], name string) (*Outbox[Tx], error) {
	if db == nil {
		return nil, once.Invalid("db", "is nil")
	}
	if err := core.CheckName("name", name, false); err != nil {
		return nil, err
	}
	if err := db.CheckSchema(ctx); err != nil {
		return nil, err
	}
	a := access.Of(db)
	return &Outbox[Tx]{db: db, access: a, name: name, audit: auditlog.New(a.Dialect, a.Table), sql: compile(a.Dialect, a.Table)}, nil
}

// Write writes messages in the caller's transaction, which may be that of idempotency.Do. They are
// published after its COMMIT, those of a key in the order of the arguments. Write locks their keys until
// the transaction ends. Call it at the end of the transaction: other writers of the same keys wait.
//
// Errors: [holdfast.ErrInvalid], [holdfast.ErrNoTx]: the transaction is untouched. [holdfast.ErrRetry],
// [holdfast.ErrTxLost] and the driver's: Holdfast has rolled tx back.
func (o *Outbox[Tx]) Write(ctx context.Context, tx Tx, messages ...Message) (err error) {
	ctx, span := once.StartSpan(ctx, o.access.Trace, "outbox.write", o.name)
	span.Rows = int64(len(messages))
	defer func() { span.End(err, nil) }()
	all := make([]prepared, len(messages))
	for i, m := range messages {
		if all[i], err = prepare(o.access.Owners, fmt.Sprintf("messages[%d]", i), m); err != nil {
			return err
		}
	}
	q, err := o.access.Join(tx)
	if err != nil {
		return err
	}
	// The same order of keys in all transactions, so that they do not deadlock.
	slices.SortStableFunc(all, func(a, b prepared) int {
		if c := strings.Compare(a.Owner, b.Owner); c != 0 {
			return c
		}
		return strings.Compare(a.Key, b.Key)
	})
	if err = o.write(ctx, q, all); err == nil {
		return nil
	}
	cleanup, cancel := core.Cleanup(ctx)
	defer cancel()
	_ = o.access.Rollback(cleanup, tx) // fails if the connection or the transaction has ended
	switch o.access.Dialect.Classify(err) {
	case dialect.Retry, dialect.Busy:
		return &holdfast.RetryError{Attempts: 1, Err: err}
	case dialect.Gone:
		return &holdfast.TxLostError{Err: err}
	}
	return err
}

// The order of its statements is that of internal/test/model/outbox.pml.
func (o *Outbox[Tx]) write(ctx context.Context, q core.Querier, all []prepared) error {
	if err := o.access.Alive(ctx, q); err != nil {
		return err
	}
	for _, m := range all {
		if _, err := o.sql.bump.Exec(ctx, q, m.Owner, o.name, []byte(m.Key)); err != nil {
			return err
		}
		if _, err := o.sql.insert.Exec(ctx, q, m.Owner, o.name, []byte(m.Key), m.ID, m.Topic, m.headers, m.Body); err != nil {
			return err
		}
	}
	return nil
}

// lettersPage is the number of dead letters that one statement reads. Each may have 1 MiB.
const lettersPage = 20

// ListOptions select dead letters. The zero value selects all.
type ListOptions struct {
	// After is the dead letter that the list continues after. Default: from the oldest.
	After DeadLetter
}

// DeadLetters iterates over the dead letters of all owners, the oldest first. It reads 20 at a time and is no
// snapshot. It ends at the first error.
func (o *Outbox[Tx]) DeadLetters(ctx context.Context, opts ...ListOptions) iter.Seq2[DeadLetter, error] {
	opt, err := options.One(opts)
	return core.Pages(err, opt.After, lettersPage, func(after DeadLetter) ([]DeadLetter, error) {
		rows, err := o.sql.dead.Query(ctx, o.access.Pool, o.name, after.Died.UnixMicro(), after.Owner, []byte(after.Key), after.Seq, lettersPage)
		if err != nil {
			return nil, err
		}
		return core.Collect(rows, func(r core.Row) (DeadLetter, error) {
			m, err := scan(r)
			return DeadLetter{Delivery: m.Delivery, Reason: m.reason, Died: time.UnixMicro(m.due)}, err
		})
	})
}

// ErrNotDead means that there is no such dead letter: it was requeued, discarded or published.
var ErrNotDead = errcode.New("not-dead", "outbox: no such dead letter")

// Requeue makes a dead letter wait again, with all its attempts. It is published before the later
// messages of its key. The same transaction appends to the audit (package audit).
//
// Errors: [ErrNotDead], [holdfast.ErrInvalid], those of [holdfast.DB.InTx].
func (o *Outbox[Tx]) Requeue(ctx context.Context, d DeadLetter, who holdfast.Actor) error {
	return o.change(ctx, decision{o.sql.requeue, "requeue", "waiting"}, d, who)
}

// Discard gives a dead letter up, so that the later messages of its key are published. It is kept as
// long as a published message is. The same transaction appends to the audit (package audit).
//
// Errors: [ErrNotDead], [holdfast.ErrInvalid], those of [holdfast.DB.InTx].
func (o *Outbox[Tx]) Discard(ctx context.Context, d DeadLetter, who holdfast.Actor) error {
	return o.change(ctx, decision{o.sql.discard, "discard", "discarded"}, d, who)
}

// decision is what becomes of a dead letter: the statement, and the names of the action and of the state
// after it.
type decision struct {
	sql           core.Stmt
	action, state string
}

// auditState is the state of a message in the audit: nothing that the program wrote but the outbox's name.
type auditState struct {
	State  string `json:"state"`
	Outbox string `json:"outbox"`
	Seq    int64  `json:"seq"`
}

// change changes a dead letter, lets the messages behind it be found, and appends to the audit.
func (o *Outbox[Tx]) change(ctx context.Context, to decision, d DeadLetter, who holdfast.Actor) error {
	if err := auditlog.Check("Actor.", who.By, who.Reason); err != nil {
		return err
	}
	return o.db.InTx(o.access.Trace.Quiet(ctx), func(ctx context.Context, tx Tx) error {
		q, err := o.access.Join(tx)
		if err != nil {
			return err
		}
		args := []any{d.Owner, o.name, []byte(d.Key), d.Seq}
		r, err := to.sql.Exec(ctx, q, args...)
		if err == nil && r.Affected != 1 {
			err = ErrNotDead
		}
		if err == nil {
			_, err = o.sql.free.Exec(ctx, q, args...)
		}
		if err != nil {
			return err
		}
		return o.audit.Append(ctx, q, auditlog.Entry{
			Actor: who.By, Action: to.action, Reason: who.Reason, Kind: "dead letter", Owner: d.Owner, Subject: auditlog.Subject("message", d.Owner, o.name, d.Key),
			Before: auditState{"dead", o.name, d.Seq}, After: auditState{to.state, o.name, d.Seq},
		})
	}, holdfast.TxOptions{Isolation: o.access.Dialect.Sweep.Isolation})
}

// Stats says how far behind an outbox is.
type Stats struct {
	// Waiting counts the messages that are to be published; Oldest is the age of the oldest. Messages
	// behind a dead letter count.
	Waiting int64
	Oldest  time.Duration
	// Dead counts the dead letters.
	Dead int64
}

// Stats counts the messages of all owners. It reads each waiting message, so call it at most every
// few seconds.
func (o *Outbox[Tx]) Stats(ctx context.Context) (s Stats, err error) {
	rows, err := o.sql.stats.Query(ctx, o.access.Pool, o.name)
	if err != nil {
		return s, err
	}
	_, err = core.Collect(rows, func(r core.Row) (none struct{}, err error) {
		var state int
		var n, age int64
		if err = r.Scan(&state, &n, &age); state == waiting {
			s.Waiting, s.Oldest = n, time.Duration(age)*time.Microsecond
		} else {
			s.Dead = n
		}
		return none, err
	})
	return s, err
}

// clearBatch is the number of messages that Clear deletes in one transaction.
const clearBatch = 500

// Clear deletes the messages that were published or discarded longer than keep ago, in small
// transactions, and returns how many. keep is 0 for all, or 50 ms to 100 years. Several side by side are safe. Relays do it (Options.Keep).
func (o *Outbox[Tx]) Clear(ctx context.Context, keep time.Duration) (total int64, err error) {
	if err := options.Life.Or("all").Check("keep", keep); err != nil {
		return 0, err
	}
	for _, state := range []int{2, 4} {
		for more := true; more && err == nil; {
			var n int64
			n, more, err = o.clear(ctx, state, keep)
			total += n
		}
	}
	return total, err
}

type key struct{ owner, key string }

func (o *Outbox[Tx]) clear(ctx context.Context, state int, keep time.Duration) (n int64, more bool, err error) {
	rows, err := o.sql.old.Query(ctx, o.access.Pool, o.name, state, keep.Microseconds(), clearBatch)
	if err != nil {
		return 0, false, err
	}
	last, found := map[key]int64{}, 0
	_, err = core.Collect(rows, func(r core.Row) (none struct{}, err error) {
		var k key
		var text []byte
		var seq int64
		err = r.Scan(&k.owner, &text, &seq)
		k.key = string(text)
		last[k] = max(last[k], seq)
		found++
		return none, err
	})
	if err != nil || found == 0 {
		return 0, false, err
	}
	keys := make([]key, 0, len(last))
	for k := range last {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(a, b key) int { return strings.Compare(a.owner+"\x00"+a.key, b.owner+"\x00"+b.key) })
	err = o.db.InTx(o.access.Trace.Quiet(ctx), func(ctx context.Context, tx Tx) error {
		q, err := o.access.Join(tx)
		if err != nil {
			return err
		}
		n = 0
		for _, k := range keys {
			// The key first, as writers do.
			if _, err := o.sql.removeKey.Exec(ctx, q, k.owner, o.name, []byte(k.key), last[k]); err != nil {
				return err
			}
			r, err := o.sql.remove.Exec(ctx, q, k.owner, o.name, []byte(k.key), last[k], keep.Microseconds())
			if err != nil {
				return err
			}
			n += r.Affected
		}
		return nil
	})
	// Without progress another process clears the same messages.
	return n, n > 0 && found == clearBatch, err
}

func (o *Outbox[Tx]) emitDead(ctx context.Context, err error) {
	o.access.Trace.Emit(ctx, trace.Event{Name: trace.OutboxDead, Operation: o.name, Count: 1, Err: err})
}
