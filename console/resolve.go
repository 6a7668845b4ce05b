package console

import (
	"cmp"
	"errors"
	"net/http"
	"strconv"
	"strings"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/idempotency"
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
)

var ways = map[string]way{
	operators.AsStepDone:     {As: operators.AsStepDone, Label: "The step’s call was made", Takes: takesResult},
	operators.AsStepNotDone:  {As: operators.AsStepNotDone, Label: "The step’s call was not made"},
	operators.AsStepRejected: {As: operators.AsStepRejected, Label: "The provider refused the call for good", Takes: takesRejection},
	operators.AsResume:       {As: operators.AsResume, Label: "Go on with it"},
	operators.AsSucceeded:    {As: operators.AsSucceeded, Label: "It succeeded: end it", Takes: takesResult},
	operators.AsRejected:     {As: operators.AsRejected, Label: "It was refused: end it", Takes: takesRejection},
	operators.AsFree:         {As: operators.AsFree, Label: "Nothing of it stands: forget it"},
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
	seen, err := strconv.ParseInt(cmp.Or(form("token"), "0"), 10, 64)
	if p.State != idempotency.StateUnknown || err != nil || seen != 0 && seen != p.Token {
		c.notAsSeen(w, r, p)
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
	resolution.Token = p.Token
	ops, actor := c.ops, holdfast.Actor{By: by, Reason: p.Reason}
	if c.options.FourEyes {
		_, err = ops.Propose(r.Context(), p.Ref, resolution, actor)
	} else {
		err = ops.Resolve(r.Context(), p.Ref, resolution, actor)
	}
	var input *holdfast.InputError
	switch {
	case errors.Is(err, staged.ErrState), errors.Is(err, staged.ErrNotFound):
		c.notAsSeen(w, r, p) // it was a moment ago
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

// notAsSeen answers a request for an operation that has been resolved since its page was made. It may be unknown again.
func (c *console[Tx]) notAsSeen(w http.ResponseWriter, r *http.Request, p operationPage) {
	op, ok := c.operation(w, r, p.ID)
	if !ok {
		return
	}
	is := op.State.String() + " by now"
	if op.State == idempotency.StateUnknown {
		is = "unknown once more: it has gone on since you saw it"
	}
	said := "Nothing was changed: this operation is " + is + ". "
	if n := len(op.Interventions); n > 0 {
		said += "The last to intervene was " + display.Text(op.Interventions[n-1].By) + "."
	} else {
		said += "Only what is unknown, as you saw it, can be resolved."
	}
	c.render(w, r, http.StatusConflict, "operation", page{Title: "Operation", Section: "operations", Problem: said, Body: op})
}

func sentence(err error) string {
	s := err.Error()
	return strings.ToUpper(s[:1]) + s[1:] + "."
}
