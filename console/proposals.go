package console

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"net/http"
	"strings"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/idempotency/operators"
	"github.com/holdfast-go/holdfast/idempotency/staged"
)

// proposalsPage lists what one person has proposed, and another one may confirm.
type proposalsPage struct{ List []proposalRow }

type proposalRow struct {
	operators.Proposal
	ID, RowID string
	// Kind, Owner, Name and Key are those of the operation or the lock; Name is "" for a lock.
	Kind, Owner, Name, Key string
}

// proposalPage is one proposal, with all that the other person needs to judge it.
type proposalPage struct {
	proposalRow
	// Operation is what it is about now: nil for a lock, and if it is gone.
	Operation *operationRow
	// Result is JSON; it and Rejection are there if the proposal has them.
	Result string
	// Own: the person who looks has proposed it.
	Own bool
	By  string // whom the one who looks claims to be
}

func proposalRowOf(p *operators.Proposal) proposalRow {
	id := hex.EncodeToString(p.ID)
	row := proposalRow{Proposal: *p, ID: id, RowID: "p" + id[:2*operators.ProposalIDSize]}
	switch l, op := p.Lock, p.Operation; {
	case op != nil:
		row.Kind, row.Owner, row.Name, row.Key = "operation", op.Owner, op.Name, op.Key
	case l.Kind == "fair":
		row.Kind, row.Owner, row.Key = "fair lock", l.Owner, l.Key
	default:
		row.Kind, row.Owner, row.Key = l.Kind, l.Owner, l.Key
	}
	return row
}

func (c *console[Tx]) getProposals(w http.ResponseWriter, r *http.Request) {
	var p proposalsPage
	for found, err := range c.ops.Proposals(r.Context()) {
		if err != nil {
			c.failed(w, r, err)
			return
		}
		p.List = append(p.List, proposalRowOf(&found))
	}
	view := page{Title: "Proposals", Section: "proposals", Live: true, Body: p}
	switch r.URL.Query().Get("done") {
	case "proposed":
		view.Notice = "Proposed: another person must confirm it. Nothing is done before."
	case "confirmed":
		view.Notice = "Confirmed, and done."
	}
	c.render(w, r, http.StatusOK, "proposals", view)
}

func (c *console[Tx]) getProposal(w http.ResponseWriter, r *http.Request) {
	if id, ok := c.proposalID(w, r, r.URL.Query().Get("id")); ok {
		c.showProposal(w, r, id, http.StatusOK, "")
	}
}

// proposalID reads the id of a proposal, or answers that there is none.
func (c *console[Tx]) proposalID(w http.ResponseWriter, r *http.Request, text string) (id []byte, ok bool) {
	id, err := hex.DecodeString(text)
	if err != nil || len(id) < operators.ProposalIDSize {
		c.fail(w, r, http.StatusNotFound, "There is no such proposal.")
		return nil, false
	}
	return id, true
}

func (c *console[Tx]) showProposal(w http.ResponseWriter, r *http.Request, id []byte, status int, problem string) {
	var p proposalPage
	for found, err := range c.ops.Proposals(r.Context()) {
		if err != nil {
			c.failed(w, r, err)
			return
		}
		if bytes.Equal(found.ID, id) {
			p.proposalRow = proposalRowOf(&found)
			break
		}
	}
	if p.ID == "" {
		c.fail(w, r, http.StatusNotFound, "There is no such proposal: it was confirmed, or has expired.")
		return
	}
	p.Own = c.options.Actor != nil && operators.SamePerson(p.Proposal.By, c.who(r))
	p.By = strings.TrimSpace(r.PostForm.Get("by"))
	if p.Resolution != nil {
		for _, result := range []any{p.Resolution.Result, p.Resolution.StepResult} {
			if raw, ok := result.(json.RawMessage); ok {
				p.Result = string(raw)
			}
		}
		if err := p.Unreadable; err != nil {
			p.Result = "cannot be read here: " + err.Error()
		}
		var err error
		if p.Operation, err = c.proposedFor(r.Context(), *p.Proposal.Operation); err != nil {
			c.failed(w, r, err)
			return
		}
	}
	c.render(w, r, status, "proposal", page{Title: "Proposal", Section: "proposals", Problem: problem, Body: p})
}

// proposedFor reads an operation; nil if it is gone.
func (c *console[Tx]) proposedFor(ctx context.Context, ref staged.Ref) (*operationRow, error) {
	op, err := c.ops.Show(ctx, ref)
	if errors.Is(err, staged.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	row := rowOf(*op)
	return &row, nil
}

func (c *console[Tx]) postConfirm(w http.ResponseWriter, r *http.Request) {
	id, ok := c.proposalID(w, r, strings.TrimSpace(r.PostForm.Get("id")))
	if !ok {
		return
	}
	by := c.who(r)
	if problem := checkActor(by, "confirmed"); problem != "" {
		c.showProposal(w, r, id, http.StatusBadRequest, problem)
		return
	}
	err := c.ops.Confirm(r.Context(), id, by)
	switch {
	case errors.Is(err, operators.ErrSamePerson):
		c.showProposal(w, r, id, http.StatusForbidden, "Nothing was changed: you have proposed it, and another person must confirm it.")
	case errors.Is(err, operators.ErrNoProposal):
		c.fail(w, r, http.StatusConflict, "Nothing was changed: there is no such proposal any more. It was confirmed, or has expired.")
	case errors.Is(err, operators.ErrNotHeld):
		c.showProposal(w, r, id, http.StatusConflict, "Nothing was changed: the one to take it from does not have it any more.")
	case errors.Is(err, staged.ErrState), errors.Is(err, staged.ErrNotFound):
		c.showProposal(w, r, id, http.StatusConflict, "Nothing was changed: this operation is not unknown any more.")
	case err != nil:
		c.failed(w, r, err)
	default:
		c.options.Log.InfoContext(r.Context(), "holdfast console: a proposal was confirmed", "proposal", hex.EncodeToString(id[:operators.ProposalIDSize]), "by", by)
		redirect(w, "proposals?done=confirmed")
	}
}

// proposeRelease proposes to take a lock away, if its holder still has it.
func (c *console[Tx]) proposeRelease(w http.ResponseWriter, r *http.Request, ref lockRef, who holdfast.Actor) {
	_, err := c.find(r.Context(), ref)
	if err == nil {
		_, err = c.ops.ProposeRelease(r.Context(), operators.Lock(ref), who)
	}
	if err != nil {
		c.failedRelease(w, r, err)
		return
	}
	c.options.Log.InfoContext(r.Context(), "holdfast console: a release was proposed", "kind", ref.Kind, "by", who.By)
	redirect(w, "proposals?done=proposed")
}
