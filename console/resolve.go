package console

import (
	"errors"
	"net/http"
	"strings"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/idempotency/operators"
	"github.com/holdfast-go/holdfast/idempotency/staged"
	"github.com/holdfast-go/holdfast/internal/display"
)

// way is one way to resolve an operation, and its effect.
type way struct {
	As, Label string
	// Takes is the input that it needs: a result, a rejection or nothing.
	Takes string
	Does  []string
	// Expects is the type of the result, if it is known.
	Expects string
}

const (
	takesResult    = "result"
	takesRejection = "rejection"
	stale          = "A worker that still has it and comes back can write nothing more: its token is an old one."
	stays          = "This is final. Whoever asks with the same key is told so for good."
)

var ways = map[string]way{
	operators.AsStepDone: {As: operators.AsStepDone, Label: "The step’s call was made", Takes: takesResult, Does: []string{
		"The step counts as done, with the result that you give, and is not called again.",
		"The operation goes on with its next step as soon as a worker comes for it.", stale,
	}},
	operators.AsStepNotDone: {As: operators.AsStepNotDone, Label: "The step’s call was not made", Does: []string{
		"The operation goes on and makes the call, with the same provider key. If the call was made after all and the provider does not know the key, it happens twice.", stale,
	}},
	operators.AsStepRejected: {As: operators.AsStepRejected, Label: "The provider refused the call for good", Takes: takesRejection, Does: []string{
		"The step counts as refused, with the code and the message that you give.",
		"The operation goes on from there: its function decides what a refusal means.", stale,
	}},
	operators.AsResume: {As: operators.AsResume, Label: "Go on with it", Does: []string{
		"The operation is tried again from its last step, with its attempts counted anew.", stale,
	}},
	operators.AsSucceeded: {As: operators.AsSucceeded, Label: "It succeeded: end it", Takes: takesResult, Does: []string{
		"The operation ends as succeeded, with the result that you give. None of its steps runs any more.", stays, stale,
	}},
	operators.AsRejected: {As: operators.AsRejected, Label: "It was refused: end it", Takes: takesRejection, Does: []string{
		"The operation ends as rejected, with the code and the message that you give. None of its steps runs any more.", stays, stale,
	}},
	operators.AsFree: {As: operators.AsFree, Label: "Nothing of it stands: forget it", Does: []string{
		"The record is deleted, and the key may be executed again. If anything of it stands after all, it happens twice.",
	}},
}

func (c *console[Tx]) postConfirmResolve(w http.ResponseWriter, r *http.Request) {
	p, ok := c.resolved(w, r)
	if !ok {
		return
	}
	if _, err := operators.ParseResolution(p.As, p.Result, p.Code, p.Message); err != nil {
		c.render(w, r, http.StatusBadRequest, "operation", page{Title: "Operation", Section: "operations", Problem: sentence(err), Body: p})
		return
	}
	c.render(w, r, http.StatusOK, "resolve", page{Title: "Resolve an operation", Section: "operations", Body: p})
}

// resolved reads the choice for an operation that is still unknown.
func (c *console[Tx]) resolved(w http.ResponseWriter, r *http.Request) (p operationPage, ok bool) {
	form := func(name string) string { return strings.TrimSpace(r.PostForm.Get(name)) }
	if p, ok = c.operation(w, r, form("id")); !ok {
		return p, false
	}
	p.As, p.Result, p.Code, p.Message = form("as"), form("result"), form("code"), form("message")
	p.By, p.Reason = form("by"), form("reason")
	if p.State != staged.Parked {
		c.notUnknown(w, r, p)
		return p, false
	}
	for _, w := range p.Ways {
		if w.As == p.As {
			p.Chosen = w
		}
	}
	// Drop the input that belongs to another way.
	if p.Chosen.Takes != takesResult {
		p.Result = ""
	}
	if p.Chosen.Takes != takesRejection {
		p.Code, p.Message = "", ""
	}
	if p.Chosen.As == "" {
		c.render(w, r, http.StatusBadRequest, "operation", page{Title: "Operation", Section: "operations", Problem: "Choose what became of it.", Body: p})
		return p, false
	}
	return p, true
}

func (c *console[Tx]) postResolve(w http.ResponseWriter, r *http.Request) {
	p, ok := c.resolved(w, r)
	if !ok {
		return
	}
	again := func(problem string) {
		c.render(w, r, http.StatusBadRequest, "resolve", page{Title: "Resolve an operation", Section: "operations", Problem: problem, Body: p})
	}
	by := c.who(r)
	if problem := checkActor(by, p.Reason); problem != "" {
		again(problem)
		return
	}
	resolution, err := operators.ParseResolution(p.As, p.Result, p.Code, p.Message)
	if err != nil {
		again(sentence(err))
		return
	}
	ops, actor := c.ops.of(p.Owner), operators.Actor{By: by, Reason: p.Reason}
	if c.options.FourEyes {
		_, err = ops.Propose(r.Context(), p.Ref, resolution, actor)
	} else {
		err = ops.Resolve(r.Context(), p.Ref, resolution, actor)
	}
	var input *holdfast.InputError
	switch {
	case errors.Is(err, staged.ErrState), errors.Is(err, staged.ErrNotFound):
		c.notUnknown(w, r, p) // it was unknown a moment ago
		return
	case errors.As(err, &input):
		again(input.Field + " " + input.Problem)
		return
	case err != nil:
		c.failed(w, r, err)
		return
	}
	if c.options.FourEyes {
		c.options.Log.InfoContext(r.Context(), "holdfast console: a resolution was proposed", "id", p.ID, "as", p.As, "by", by)
		redirect(w, "proposals?done=proposed")
		return
	}
	c.options.Log.InfoContext(r.Context(), "holdfast console: an operation was resolved", "id", p.ID, "as", p.As, "by", by)
	if resolution.Free {
		redirect(w, "operations?done=freed")
		return
	}
	redirect(w, "operation?id="+p.ID+"&done=resolved")
}

// notUnknown answers a request for an operation that has already been resolved.
func (c *console[Tx]) notUnknown(w http.ResponseWriter, r *http.Request, p operationPage) {
	op, ok := c.operation(w, r, p.ID)
	if !ok {
		return
	}
	said := "Nothing was changed: this operation is " + op.State.String() + " by now, and only what is unknown can be resolved."
	if n := len(op.Interventions); n > 0 {
		last := op.Interventions[n-1]
		said = "Nothing was changed: this operation is " + op.State.String() + " by now. The last to intervene was " + display.Text(last.By) + "."
	}
	c.render(w, r, http.StatusConflict, "operation", page{Title: "Operation", Section: "operations", Problem: said, Body: op})
}

func sentence(err error) string {
	s := err.Error()
	return strings.ToUpper(s[:1]) + s[1:] + "."
}
