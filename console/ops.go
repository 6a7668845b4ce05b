package console

import (
	"context"
	"encoding/hex"
	"html/template"
	"net/http"
	"net/url"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/internal/operate"
)

// stuckAfter is for how long nobody came for an operation that is called stuck.
const stuckAfter = time.Minute

// operators are those of the program's store, which either has tenants or not.
type operators[Tx any] struct{ tenants, single *idempotency.Operators[Tx] }

func openOperators[Tx any](ctx context.Context, db *holdfast.DB[Tx], o idempotency.Options) (ops operators[Tx], err error) {
	for _, single := range []bool{true, false} {
		o.SingleTenant = single
		store, err := idempotency.New(ctx, db, o)
		if err != nil {
			return ops, err
		}
		if single {
			ops.single = store.Operators()
		} else {
			ops.tenants = store.Operators()
		}
	}
	return ops, nil
}

// of is the one that takes a tenant's operations.
func (o *operators[Tx]) of(tenant string) *idempotency.Operators[Tx] {
	if tenant == "" {
		return o.single
	}
	return o.tenants
}

// filter is one choice of operations.
type filter struct {
	Name, Label string
	states      []idempotency.State
	overdue     time.Duration
}

var filters = []filter{
	{Name: "unknown", Label: "unknown", states: []idempotency.State{idempotency.Parked}},
	{Name: "stuck", Label: "stuck: nobody came for a minute", states: []idempotency.State{idempotency.Pending}, overdue: stuckAfter},
	{Name: "pending", Label: "pending", states: []idempotency.State{idempotency.Pending}},
	{Name: "succeeded", Label: "succeeded", states: []idempotency.State{idempotency.Succeeded, idempotency.ErasedSucceeded}},
	{Name: "rejected", Label: "rejected", states: []idempotency.State{idempotency.Rejected, idempotency.ErasedRejected}},
}

// operationsPage is a page of a list.
type operationsPage struct {
	Filters                        []filter
	State, Kind, Tenant, Name, Key string
	List                           []operationRow
	Later                          bool         // this is a later page
	Next                           template.URL // query of the next page
	Limit                          int
}

type operationRow struct {
	idempotency.Operation
	ID, RowID string
}

func (c *console[Tx]) getOperations(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	p := operationsPage{
		Filters: filters, State: q.Get("state"), Kind: q.Get("kind"), Tenant: q.Get("tenant"), Name: q.Get("name"), Key: q.Get("key"), Limit: pageRows,
	}
	if p.State == "" {
		p.State = filters[0].Name
	}
	f := idempotency.Filter{
		Tenant: typed(p.Tenant), Name: typed(p.Name), Key: typed(p.Key), Records: p.Kind == "records", Limit: pageRows + 1,
	}
	for _, choice := range filters {
		if choice.Name == p.State {
			f.States, f.Overdue = choice.states, choice.overdue
		}
	}
	var err error
	if f.After, err = hex.DecodeString(q.Get("after")); err != nil || f.States == nil {
		c.fail(w, r, http.StatusBadRequest, "That page of the list is not there.")
		return
	}
	p.Later = len(f.After) > 0
	found, err := c.ops.tenants.List(r.Context(), f)
	if err != nil {
		c.failed(w, r, err)
		return
	}
	if len(found) > pageRows {
		found = found[:pageRows]
		next := url.Values{"after": {hex.EncodeToString(found[pageRows-1].ID)}}
		for name, value := range map[string]string{"state": p.State, "kind": p.Kind, "tenant": p.Tenant, "name": p.Name, "key": p.Key} {
			if value != "" {
				next.Set(name, value)
			}
		}
		p.Next = template.URL(next.Encode()) //nolint:gosec // it is encoded
	}
	for _, op := range found {
		p.List = append(p.List, rowOf(op))
	}
	view := page{Title: "Operations", Section: "operations", Every: 5000, Body: p}
	if q.Get("done") == "freed" {
		view.Notice = "Freed: the key may be executed again."
	}
	c.render(w, r, http.StatusOK, "operations", view)
}

func rowOf(op idempotency.Operation) operationRow {
	id := hex.EncodeToString(op.ID)
	return operationRow{Operation: op, ID: id, RowID: "r" + id[:24]}
}

// operationPage is one operation, and what it can be resolved as.
type operationPage struct {
	operationRow
	Ways []way
	// What was chosen and typed: Reason is not the operation's own.
	As, Result, Code, Message, By, Reason string
	// Chosen is the way that is to be confirmed.
	Chosen way
}

func (c *console[Tx]) getOperation(w http.ResponseWriter, r *http.Request) {
	p, ok := c.operation(w, r, r.URL.Query().Get("id"))
	if !ok {
		return
	}
	view := page{Title: "Operation", Section: "operations", Every: 5000, Body: p}
	if r.URL.Query().Get("done") == "resolved" {
		view.Notice = "Resolved: it is " + p.State.String() + " now."
	}
	c.render(w, r, http.StatusOK, "operation", view)
}

// operation reads one, or answers why not.
func (c *console[Tx]) operation(w http.ResponseWriter, r *http.Request, id string) (p operationPage, ok bool) {
	b, err := hex.DecodeString(id)
	if err != nil {
		c.fail(w, r, http.StatusNotFound, "There is no such operation.")
		return p, false
	}
	op, err := c.ops.tenants.ShowID(r.Context(), b)
	if err != nil {
		c.failed(w, r, err)
		return p, false
	}
	p = operationPage{operationRow: rowOf(*op)}
	for _, as := range operate.Legal(op) {
		p.Ways = append(p.Ways, ways[as])
	}
	return p, true
}
