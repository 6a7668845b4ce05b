package console

import (
	"context"
	"encoding/hex"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/sqllock"
)

// releasePage says what taking a lock away does.
type releasePage struct {
	Ref       lockRef
	Holder    string
	Held      bool
	Since     time.Time
	Remaining time.Duration
	// Waiting calls are granted the lock next.
	Waiting    int
	By, Reason string
}

// errGone means that the one who was to lose a lock does not have it any more.
var errGone = errors.New("console: gone")

func lockRefOf(r *http.Request) (ref lockRef, ok bool) {
	key, err := hex.DecodeString(r.PostForm.Get("key"))
	token, err2 := strconv.ParseInt(r.PostForm.Get("token"), 10, 64)
	ref = lockRef{r.PostForm.Get("kind"), string(key), token}
	return ref, err == nil && err2 == nil && (ref.Kind == "lease" || ref.Kind == "fair" || ref.Kind == "semaphore")
}

func (c *console[Tx]) postConfirmRelease(w http.ResponseWriter, r *http.Request) {
	c.confirmRelease(w, r, http.StatusOK, "")
}

func (c *console[Tx]) confirmRelease(w http.ResponseWriter, r *http.Request, status int, problem string) {
	ref, ok := lockRefOf(r)
	if !ok {
		c.fail(w, r, http.StatusBadRequest, "The form does not name a lock.")
		return
	}
	p, err := c.find(r.Context(), ref)
	if err != nil {
		c.failedRelease(w, r, err)
		return
	}
	p.By, p.Reason = r.PostForm.Get("by"), r.PostForm.Get("reason")
	c.render(w, r, status, "release", page{Title: "Release a lock", Section: "locks", Problem: problem, Body: p})
}

// find reads whom a lock is to be taken from; errGone when somebody else, or
// nobody, has it now.
func (c *console[Tx]) find(ctx context.Context, ref lockRef) (p releasePage, err error) {
	p.Ref = ref
	if ref.Kind == "lease" {
		i, found, err := c.locks.Inspect(ctx, ref.Key)
		if err == nil && (!found || !i.Held || i.Token != ref.Token) {
			err = errGone
		}
		p.Holder, p.Held, p.Since, p.Remaining, p.Waiting = i.Holder, i.Held, i.Since, i.Remaining, i.Waiting
		return p, err
	}
	var line sqllock.Line
	if ref.Kind == "fair" {
		line, err = c.locks.Fair().Line(ctx, ref.Key)
	} else {
		var s *sqllock.Semaphore[Tx]
		if s, err = c.locks.Semaphore(ref.Key, sqllock.MaxPermits); err == nil { // how many does not matter here
			line, err = s.Line(ctx)
		}
	}
	if err != nil {
		return p, err
	}
	err = errGone
	for _, place := range line.Places {
		if place.Token == ref.Token {
			p.Holder, p.Held, p.Since, p.Remaining, err = place.Holder, place.Held, place.Since, place.Remaining, nil
		} else if !place.Held {
			p.Waiting++
		}
	}
	return p, err
}

func (c *console[Tx]) postRelease(w http.ResponseWriter, r *http.Request) {
	ref, ok := lockRefOf(r)
	if !ok {
		c.fail(w, r, http.StatusBadRequest, "The form does not name a lock.")
		return
	}
	by, reason := c.who(r), strings.TrimSpace(r.PostForm.Get("reason"))
	if problem := checkWho(by, reason); problem != "" {
		c.confirmRelease(w, r, http.StatusBadRequest, problem)
		return
	}
	if err := c.release(r.Context(), ref, by, reason); err != nil {
		c.failedRelease(w, r, err)
		return
	}
	c.options.Log.InfoContext(r.Context(), "holdfast console: a lock was taken away", "kind", ref.Kind, "by", by)
	redirect(w, "./?done=released")
}

func (c *console[Tx]) release(ctx context.Context, ref lockRef, by, reason string) error {
	l, err := sqllock.New(ctx, c.db, sqllock.Options{Holder: by}) // which is whom it records
	if err != nil {
		return err
	}
	had := false
	switch ref.Kind { // whoever got it since the page was shown is not the one to lose it
	case "lease":
		had, err = l.ForceRelease(ctx, ref.Key, ref.Token, reason)
	case "fair":
		had, err = l.Fair().ForceRelease(ctx, ref.Key, ref.Token, reason)
	case "semaphore":
		var s *sqllock.Semaphore[Tx]
		if s, err = l.Semaphore(ref.Key, sqllock.MaxPermits); err == nil {
			had, err = s.ForceRelease(ctx, ref.Token, reason)
		}
	}
	if err == nil && !had {
		err = errGone
	}
	return errors.Join(err, l.Close(context.WithoutCancel(ctx)))
}

func (c *console[Tx]) failedRelease(w http.ResponseWriter, r *http.Request, err error) {
	if errors.Is(err, errGone) {
		c.fail(w, r, http.StatusConflict, "The one you meant to take it from does not have it any more. Nothing was changed.")
		return
	}
	c.failed(w, r, err)
}

// who makes the request.
func (c *console[Tx]) who(r *http.Request) string {
	if c.options.Who != nil {
		return c.options.Who(r)
	}
	return strings.TrimSpace(r.PostForm.Get("by"))
}

// checkWho says what is missing before anything is asked of the database, which
// checks the rest.
func checkWho(by, reason string) string {
	switch {
	case by == "":
		return "Say who you are: it is recorded."
	case reason == "":
		return "Say why: it is recorded, for those who look later."
	case len(by) > sqllock.MaxHolder || len(reason) > sqllock.MaxReason:
		return "A name has at most " + strconv.Itoa(sqllock.MaxHolder) + " bytes, and a reason at most " + strconv.Itoa(sqllock.MaxReason) + "."
	}
	return ""
}
