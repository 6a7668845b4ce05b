package console

import (
	"bytes"
	"context"
	"encoding/hex"
	"html/template"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/idempotency/operators"
	"github.com/holdfast-go/holdfast/idempotency/staged"
	"github.com/holdfast-go/holdfast/internal/core"
)

// stuckAfter is how long an operation must have waited for a worker to count as stuck.
const stuckAfter = time.Minute

// stuck are the states of operations that need a worker to come back.
var stuck = []idempotency.State{idempotency.StateWaiting, idempotency.StateSettling}

// filter is one selection of operations.
type filter struct {
	Name, Label string
	states      []idempotency.State
	overdue     time.Duration
}

var filters = []filter{
	{Name: "unknown", Label: "unknown", states: []idempotency.State{idempotency.StateUnknown}},
	{Name: "stuck", Label: "stuck: nobody came for a minute", states: stuck, overdue: stuckAfter},
	{Name: "in progress", Label: "in progress", states: []idempotency.State{idempotency.StateInProgress}},
	{Name: "waiting", Label: "waiting", states: []idempotency.State{idempotency.StateWaiting}},
	{Name: "settling", Label: "settling", states: []idempotency.State{idempotency.StateSettling}},
	{Name: "succeeded", Label: "succeeded, also expired", states: []idempotency.State{idempotency.StateSucceeded, idempotency.StateSucceededExpired}},
	{Name: "rejected", Label: "rejected, also expired", states: []idempotency.State{idempotency.StateRejected, idempotency.StateRejectedExpired}},
}

// sorted lists by time: what waits, those that moved the longest ago first; what has ended, the latest first. If
// there are more than sortedRows, it lists a page in the order of ids.
func (c *console[Tx]) sorted(ctx context.Context, p *operationsPage, f operators.Filter) ([]staged.Operation, error) {
	after := f.After
	f.After = staged.Operation{}
	all, err := core.First(sortedRows+1, c.ops.List(ctx, f))
	if err != nil {
		return nil, err
	}
	if len(all) > sortedRows {
		f.After = after
		return core.First(pageRows+1, c.ops.List(ctx, f))
	}
	byTime(all)
	p.Count, p.Order = len(all), "the longest ago first"
	if p.State == "succeeded" || p.State == "rejected" {
		slices.Reverse(all)
		p.Order = "the latest first"
	}
	last := slices.IndexFunc(all, func(op staged.Operation) bool { return bytes.Equal(op.ID, after.ID) })
	return all[last+1:], nil // from the start if that one has moved on
}

// byTime sorts those that have moved the longest ago to the front.
func byTime(list []staged.Operation) {
	slices.SortStableFunc(list, func(a, b staged.Operation) int { return a.Moved.Compare(b.Moved) })
}

// operationsPage is a page of a list.
type operationsPage struct {
	Filters                       []filter
	State, Kind, Owner, Name, Key string
	List                          []operationRow
	Later                         bool         // not the first page
	Next                          template.URL // query of the next page
	// Count is how many there are, and Order how they are sorted. They are 0 and empty if there are more
	// than sortedRows: then they come in the order of their ids.
	Count int
	Order string
}

type operationRow struct {
	staged.Operation
	ID, RowID string
}

func (c *console[Tx]) getOperations(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	p := operationsPage{
		Filters: filters, State: q.Get("state"), Kind: q.Get("kind"), Owner: q.Get("owner"), Name: q.Get("name"), Key: q.Get("key"),
	}
	if p.State == "" {
		p.State = filters[0].Name
	}
	f := operators.Filter{
		Owner: typed(p.Owner), Name: typed(p.Name), Key: typed(p.Key), Records: p.Kind == "records",
	}
	for _, choice := range filters {
		if choice.Name == p.State {
			f.States, f.Overdue = choice.states, choice.overdue
		}
	}
	var err error
	if f.After.ID, err = hex.DecodeString(q.Get("after")); err != nil || f.States == nil {
		c.fail(w, r, http.StatusBadRequest, "That page of the list is not there.")
		return
	}
	p.Later = len(f.After.ID) > 0
	found, err := c.sorted(r.Context(), &p, f)
	if err != nil {
		c.failed(w, r, err)
		return
	}
	if len(found) > pageRows {
		found = found[:pageRows]
		next := url.Values{"after": {hex.EncodeToString(found[pageRows-1].ID)}}
		for name, value := range map[string]string{"state": p.State, "kind": p.Kind, "owner": p.Owner, "name": p.Name, "key": p.Key} {
			if value != "" {
				next.Set(name, value)
			}
		}
		p.Next = template.URL(next.Encode()) //nolint:gosec // it is encoded
	}
	for _, op := range found {
		p.List = append(p.List, rowOf(op))
	}
	view := page{Title: "Operations", Section: "operations", Live: true, Body: p}
	if q.Get("done") == "freed" {
		view.Notice = "Freed: the key may be executed again."
	}
	c.render(w, r, http.StatusOK, "operations", view)
}

func rowOf(op staged.Operation) operationRow {
	id := hex.EncodeToString(op.ID)
	return operationRow{Operation: op, ID: id, RowID: "r" + id[:24]}
}

// operationPage is one operation and its possible resolutions.
type operationPage struct {
	operationRow
	Ways []way
	// Story is who intervened. Audited: also from the audit's last storyRows rows. Proposed is what waits
	// for another person.
	Story    []intervention
	Audited  bool
	Proposed []proposalRow
	// The chosen and typed values. Reason is not the operation's own.
	As, Result, Code, Message, By, Reason string
	// Chosen is the resolution to confirm.
	Chosen way
}

func (c *console[Tx]) getOperation(w http.ResponseWriter, r *http.Request) {
	p, ok := c.operation(w, r, r.URL.Query().Get("id"))
	if !ok {
		return
	}
	view := page{Title: "Operation", Section: "operations", Live: true, Body: p}
	if r.URL.Query().Get("done") == "resolved" {
		view.Notice = "Resolved: it is " + p.State.String() + " now."
	}
	c.render(w, r, http.StatusOK, "operation", view)
}

// operation reads one operation, or answers with the error.
func (c *console[Tx]) operation(w http.ResponseWriter, r *http.Request, id string) (p operationPage, ok bool) {
	b, err := hex.DecodeString(id)
	if err != nil {
		c.fail(w, r, http.StatusNotFound, "There is no such operation.")
		return p, false
	}
	op, err := c.ops.ShowID(r.Context(), b)
	if err != nil {
		c.failed(w, r, err)
		return p, false
	}
	p = operationPage{operationRow: rowOf(*op)}
	if err := c.readStory(r.Context(), &p); err != nil {
		c.failed(w, r, err)
		return p, false
	}
	for _, as := range operators.Choices(op) {
		way := ways[as]
		way.Does = operators.Effects(as)
		way.Expects = operators.ResultType(op, as)
		p.Ways = append(p.Ways, way)
	}
	return p, true
}
