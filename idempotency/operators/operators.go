package operators

import (
	"cmp"
	"context"
	"iter"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/idempotency/internal/inside"
	"github.com/holdfast-go/holdfast/idempotency/internal/ledger"
	"github.com/holdfast-go/holdfast/idempotency/internal/once"
	"github.com/holdfast-go/holdfast/idempotency/staged"
	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/options"
)

const (
	listPage = 500    // rows that a list reads with one statement
	maxCount = 10_000 // operations that Namespaces counts
)

// Operators lists and resolves operations of a store, for people and their tools. It is safe for
// concurrent use.
type Operators[Tx any] struct {
	db     *holdfast.DB[Tx]
	store  *idempotency.Store[Tx]
	ledger *ledger.Ledger[Tx]
	staged operations
	sql    statements
}

// New opens the operations of the store's namespace.
func New[Tx any](s *idempotency.Store[Tx]) *Operators[Tx] {
	l := inside.Of(s).Ledger()
	return &Operators[Tx]{inside.Of(s).DB(), s, l, operationsOf(s), compile(l.Access.Dialect, l.Access.Table)}
}

// Filter selects operations.
type Filter struct {
	// States to list. Default: StateUnknown. For stuck operations use StateWaiting and StateSettling with
	// Overdue. StateAbsent is not allowed.
	States []idempotency.State
	// Owner and Name select operations; empty means all.
	Owner, Name string
	// Key selects operations whose key contains these bytes; empty means all. There is no index
	// for it, so List reads all operations in those states. With Options.HashKeys, only the whole
	// key selects.
	Key string
	// Overdue selects operations that have waited for a worker for at least this long: the
	// completer does not run, or not often enough. At least 1 ms; 0 selects all.
	Overdue time.Duration
	// Records lists records of Do instead of staged operations. There is no index for it, so List
	// reads the table.
	Records bool
	// After is the operation that the list continues after, by its ID.
	After staged.Operation
}

// List iterates over operations, in the order of their IDs. Steps, Events and Interventions are left out. It
// reads 500 at a time and is no snapshot. It ends at the first error.
//
// Errors: [holdfast.ErrInvalid], [holdfast.ErrSchema], errors of the driver.
func (o *Operators[Tx]) List(ctx context.Context, opts ...Filter) iter.Seq2[staged.Operation, error] {
	f, err := options.One(opts)
	if err == nil {
		err = cmp.Or(
			options.Wait.Or("all").UpTo(options.Century).Check("Filter.Overdue", f.Overdue),
			core.CheckName("Filter.Owner", f.Owner, true), core.CheckName("Filter.Name", f.Name, true),
		)
	}
	if _, ok := once.ParseID(f.After.ID); err == nil && !ok && len(f.After.ID) > 0 {
		err = once.Invalid("Filter.After", "has no ID of an operation")
	}
	states, unknown := f.states()
	err = cmp.Or(err, unknown)
	from := ledger.Selection{
		Records: f.Records, Namespace: o.store.Options().Namespace, Owner: f.Owner, Name: f.Name,
		States: states, Least: f.Overdue.Microseconds(), Limit: listPage, Key: []byte(f.Key),
	}
	if f.Key != "" {
		from.Key = []byte(o.store.Options().HashKeys.Key(f.Key))
	}
	if f.Overdue == 0 {
		from.Least = -ledger.MaxAhead
	}
	return core.Pages(err, f.After, listPage, func(after staged.Operation) ([]staged.Operation, error) {
		from := from
		from.After, _ = once.ParseID(after.ID)
		return o.staged.List(ctx, from)
	})
}

// Namespaces counts the operations in the States of f in each namespace of the tables, or the records with
// f.Records: it tells where to look when List returns none. It reads at most limit operations (1 to
// 10,000), so the numbers are a minimum once their sum is limit. The other fields of f have no effect.
//
// Errors: [holdfast.ErrInvalid], [holdfast.ErrSchema], errors of the driver.
func (o *Operators[Tx]) Namespaces(ctx context.Context, f Filter, limit int) (map[string]int, error) {
	if err := options.Many.Or("").UpTo(maxCount).Of("operations").Check("limit", int64(limit)); err != nil {
		return nil, err
	}
	states, err := f.states()
	if err != nil {
		return nil, err
	}
	found := map[string]int{}
	pool := o.ledger.Access.Pool
	rows, err := o.ledger.Namespaces(ctx, pool, f.Records, states, limit)
	if err != nil {
		return nil, err
	}
	_, err = core.Collect(rows, func(row core.Row) (none struct{}, err error) {
		var namespace string
		var n int
		err = row.Scan(&namespace, &n)
		found[namespace] = n
		return none, err
	})
	return found, err
}

// states returns the numbers of Filter.States.
func (f *Filter) states() (numbers []int, err error) {
	for _, s := range f.States {
		if s <= idempotency.StateAbsent || s > idempotency.StateRejectedExpired {
			return nil, once.Invalid("Filter.States", "has one that no operation in the tables has")
		}
		numbers = append(numbers, int(s))
	}
	if numbers == nil {
		numbers = []int{ledger.SeenUnknown}
	}
	return numbers, nil
}

// Show returns one operation with its steps, events and interventions: a staged operation or, if
// there is none, a record of Do. A record whose outcome is unknown goes before a staged operation of its name and key
// that waits for nobody: it is what Resolve resolves.
//
// Errors: [staged.ErrNotFound], [holdfast.ErrInvalid], [holdfast.ErrSchema], errors of the driver.
func (o *Operators[Tx]) Show(ctx context.Context, ref staged.Ref) (*staged.Operation, error) {
	in := o.staged
	if err := in.CheckRef(ref); err != nil {
		return nil, err
	}
	return in.Show(ctx, in.ID(ref))
}

// ShowID does what [Operators.Show] does, for an ID that List returned.
//
// Errors: those of Show.
func (o *Operators[Tx]) ShowID(ctx context.Context, id []byte) (*staged.Operation, error) {
	key, ok := once.ParseID(id)
	if !ok {
		return nil, staged.ErrNotFound
	}
	in := o.staged
	op, err := in.Show(ctx, key)
	if err == nil && op.Key != "" && in.ID(op.Ref) != key { // an erased key is empty
		err = staged.ErrNotFound // it belongs to another namespace
	}
	if err != nil {
		return nil, err
	}
	return op, nil
}
