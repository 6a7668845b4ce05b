package idempotency

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/internal/core"
)

// State is that of an operation, or of a step, as operators see it.
type State int

// The states of operations. A record of [Do] is only ever seen as unknown (its
// function committed without a result), succeeded, rejected or erased.
const (
	// Pending: a worker has it, or it waits to be tried again.
	Pending State = pending
	// Succeeded and Rejected are final.
	Succeeded State = succeeded
	Rejected  State = rejected
	// ErasedSucceeded and ErasedRejected are final too, without their answers.
	ErasedSucceeded State = tombstone
	ErasedRejected  State = rejectedTombstone
	// Parked: its outcome is unknown, and it waits to be resolved.
	Parked State = parked
	// NotBegun, Begun: of a step only; otherwise a step has Succeeded or was Rejected.
	NotBegun State = 10
	Begun    State = 11
)

func (s State) String() string {
	switch s {
	case Pending:
		return "pending"
	case Succeeded:
		return "succeeded"
	case Rejected:
		return "rejected"
	case ErasedSucceeded:
		return "succeeded, erased"
	case ErasedRejected:
		return "rejected, erased"
	case Parked:
		return "unknown"
	case NotBegun:
		return "not begun"
	case Begun:
		return "begun"
	}
	return "missing"
}

var stepStates = [...]State{stepNotDone: NotBegun, stepBegun: Begun, stepDone: Succeeded, stepRejected: Rejected}

// Ref names an operation of the store's namespace.
type Ref struct{ Tenant, Name, Key string }

// Operation is what operators see: no request, no result.
type Operation struct {
	Ref
	// ID is the record's, 32 bytes.
	ID []byte
	// Staged tells a staged operation from a record of Do.
	Staged bool
	State  State
	// Step has begun, and its outcome is not known; empty for none.
	Step string
	// Started and Finished count attempts; those that never finished crashed.
	Started, Finished int
	// Created and Moved are the first and the last change, by the database's clock.
	Created, Moved time.Time
	// Due is when another worker may go on: in the future while a lease or a
	// pause lasts; negative for how long nobody came. Of a pending operation only.
	Due time.Duration
	// Token is the fencing token of the last change of hands.
	Token int64
	// Reason says why it waits or was parked; it may quote an error of a provider's.
	Reason string
	// Holder is the process that has it, or had it last.
	Holder string

	// These are filled by Show only.
	Steps         []Step
	News          []NewsItem
	Interventions []Intervention
}

// Step is a recovery point of an operation.
type Step struct {
	Name  string
	State State
	// ProviderKey is the idempotency key that the provider was given: look there
	// for what became of the call. Empty for a step in this database.
	ProviderKey string
	// Starts counts how often it was begun.
	Starts       int
	Token        int64
	Begun, Moved time.Time
}

// NewsItem is news that was taken down.
type NewsItem struct {
	ID, Kind string
	// Body is nil once it was erased.
	Body     []byte
	Received time.Time
}

// Intervention is what an operator did.
type Intervention struct {
	Action, By, Reason string
	At                 time.Time
}

// Operators look at operations and intervene, for people and their tools.
type Operators[Tx any] struct {
	rows *stagedRows[Tx]
}

// Operators are the store's.
func (s *Store[Tx]) Operators() *Operators[Tx] { return &Operators[Tx]{rows: newStagedRows(s)} }

// Filter picks operations.
type Filter struct {
	// States to list. Default: Parked, which is every operation whose outcome is
	// unknown. Stuck ones are Pending with Overdue.
	States []State
	// Tenant and Name pick; empty is all.
	Tenant, Name string
	// Key picks operations whose key has these bytes in it; empty is all. There is
	// no index for it, so all operations in those states are read.
	Key string
	// Overdue picks pending operations that nobody came for in so long: the
	// completer does not run, or not often enough. 0 does not look at it.
	Overdue time.Duration
	// Records lists records of Do instead of staged operations. There is no
	// index for it, so the table is read.
	Records bool
	// Limit bounds the answer; default 100, at most 10000. After is the ID of the
	// last one that was listed, to go on behind it.
	Limit int
	After []byte
}

// List lists operations, in the order of their IDs. Steps, News and Interventions
// are left out.
//
// Errors: [holdfast.ErrInvalid], [holdfast.ErrSchema], the driver's.
func (o *Operators[Tx]) List(ctx context.Context, f Filter) ([]Operation, error) {
	if f.Limit == 0 {
		f.Limit = DefaultBatch
	}
	if f.Limit < 0 || f.Limit > MaxBatch || f.Overdue < 0 {
		return nil, invalid("Filter", fmt.Sprintf("Limit is not between 0 (default) and %d, or Overdue is negative", MaxBatch))
	}
	if err := firstOf(checkName("Filter.Tenant", f.Tenant, true), checkName("Filter.Name", f.Name, true)); err != nil {
		return nil, err
	}
	if len(f.States) == 0 {
		f.States = []State{Parked}
	}
	text, least := o.rows.store.dialect().Staged.List, any(f.Overdue.Microseconds())
	if f.Records {
		text = o.rows.store.dialect().Staged.RecordList
	}
	var numbers []string
	for _, s := range f.States {
		n := int(s)
		if f.Records && s == Parked {
			n = claimed // seen by others only when it was committed without a result
		} else if f.Records && s == Pending {
			continue
		}
		numbers = append(numbers, strconv.Itoa(n))
	}
	if len(numbers) == 0 {
		return nil, nil
	}
	if f.Overdue == 0 {
		least = int64(-maxAhead)
	}
	s := o.rows.store
	stmt := s.dialect().Compile("operators.list", strings.ReplaceAll(stagedTables(s.access.Table, s.dialect().Now).Replace(text), "{states}", strings.Join(numbers, ", ")))
	return o.list(ctx, s.access.Pool, stmt, f.Records, s.options.Namespace, f.Tenant, f.Name, least, f.After, f.Limit, []byte(f.Key))
}

// maxAhead is further in the future (µs) than any lease or pause ends.
const maxAhead = 1 << 52

func (o *Operators[Tx]) list(ctx context.Context, q core.Querier, stmt core.Stmt, records bool, args ...any) (out []Operation, err error) {
	for i, a := range args {
		if b, ok := a.([]byte); ok && b == nil {
			args[i] = []byte{}
		}
	}
	rows, err := stmt.Query(ctx, q, args...)
	if err != nil {
		return nil, o.rows.explain(err)
	}
	defer rows.Close()
	for rows.Next() {
		var op Operation
		var key []byte
		var state int
		var created, moved, due int64
		if err := rows.Scan(&op.ID, &op.Tenant, &op.Name, &key, &state, &op.Step, &op.Started, &op.Finished, &created, &moved, &due, &op.Token, &op.Reason, &op.Holder); err != nil {
			return nil, err
		}
		op.Key, op.State, op.Staged = string(key), State(state), !records
		op.Created, op.Moved = time.UnixMicro(created), time.UnixMicro(moved)
		if records && state == claimed {
			op.State = Parked
		}
		if op.State == Pending {
			op.Due = time.Duration(due) * time.Microsecond
		}
		out = append(out, op)
	}
	return out, firstOf(rows.Err(), rows.Close())
}

// Show is one operation with its steps, news and interventions: a staged one, or
// else a record of Do.
//
// Errors: [ErrNotFound], [holdfast.ErrInvalid], [holdfast.ErrSchema], the driver's.
func (o *Operators[Tx]) Show(ctx context.Context, ref Ref) (*Operation, error) {
	if err := o.rows.store.options.checkRef(ref); err != nil {
		return nil, err
	}
	return o.show(ctx, o.rows.store.access.Pool, o.rows.store.hashOf(ref))
}

// ShowID is [Operators.Show] of the operation with an ID, as List gives it.
//
// Errors: those of Show.
func (o *Operators[Tx]) ShowID(ctx context.Context, id []byte) (*Operation, error) {
	var key hash
	if len(id) != len(key) {
		return nil, ErrNotFound
	}
	copy(key[:], id)
	op, err := o.show(ctx, o.rows.store.access.Pool, key)
	if err == nil && op.Key != "" && o.rows.store.hashOf(op.Ref) != key { // an erased key is empty
		err = ErrNotFound // of another namespace
	}
	if err != nil {
		return nil, err
	}
	return op, nil
}

func (o *Operators[Tx]) show(ctx context.Context, q core.Querier, key hash) (*Operation, error) {
	s := o.rows.store
	d := &s.dialect().Staged
	for i, text := range []string{d.Show, d.RecordShow} {
		stmt := s.dialect().Compile("operators.show", stagedTables(s.access.Table, s.dialect().Now).Replace(text))
		ops, err := o.list(ctx, q, stmt, i == 1, key[:])
		if err != nil {
			return nil, err
		}
		if len(ops) == 1 {
			return &ops[0], o.more(ctx, q, key, &ops[0])
		}
	}
	return nil, ErrNotFound
}

// more reads what belongs to an operation.
func (o *Operators[Tx]) more(ctx context.Context, q core.Querier, key hash, op *Operation) error {
	each := func(stmt core.Stmt, scan func(core.Rows) error) error {
		rows, err := stmt.Query(ctx, q, key[:])
		if err != nil {
			return o.rows.explain(err)
		}
		defer rows.Close()
		for rows.Next() {
			if err := scan(rows); err != nil {
				return err
			}
		}
		return firstOf(rows.Err(), rows.Close())
	}
	var at, moved int64
	err := each(o.rows.sql.steps, func(rows core.Rows) error {
		var st Step
		var state int
		err := rows.Scan(&st.Name, &state, &st.ProviderKey, &st.Starts, &st.Token, &at, &moved)
		if err == nil {
			st.State, st.Begun, st.Moved = stepStates[state], time.UnixMicro(at), time.UnixMicro(moved)
			op.Steps = append(op.Steps, st)
		}
		return err
	})
	if err == nil {
		err = each(o.rows.sql.newsList, func(rows core.Rows) error {
			var n NewsItem
			var id, body []byte
			err := rows.Scan(&id, &n.Kind, &body, &at)
			if err == nil && body != nil {
				err = o.rows.unpack(key, body, &n.Body)
			}
			n.ID, n.Received = string(id), time.UnixMicro(at)
			op.News = append(op.News, n)
			return err
		})
	}
	if err == nil {
		err = each(o.rows.sql.interventions, func(rows core.Rows) error {
			var i Intervention
			err := rows.Scan(&i.Action, &i.By, &i.Reason, &at)
			i.At = time.UnixMicro(at)
			op.Interventions = append(op.Interventions, i)
			return err
		})
	}
	return err
}

func (s *Store[Tx]) hashOf(ref Ref) hash {
	return hashKey(s.options.Namespace, ref.Tenant, ref.Name, ref.Key)
}

// checkRef checks what names an operation as check does.
func (o *Options) checkRef(ref Ref) error {
	_, err := o.check(Op{Tenant: ref.Tenant, Name: ref.Name, Key: ref.Key, NoFingerprint: true})
	return err
}
