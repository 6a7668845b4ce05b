package console

import (
	"context"
	"encoding/hex"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/sqllock"
	"github.com/holdfast-go/holdfast/sqllock/fairlock"
)

// releasePage says what taking a lock away does.
type releasePage struct {
	Ref       lockRef
	Holder    string
	Held      bool
	Since     time.Time
	Remaining time.Duration
	// Waiting calls get the lock next.
	Waiting    int
	By, Reason string
}

// errGone means that the holder that was to lose a lock no longer has it.
var errGone = errors.New("console: gone")

func lockRefOf(r *http.Request) (ref lockRef, ok bool) {
	key, err := hex.DecodeString(r.PostForm.Get("key"))
	owner, err3 := hex.DecodeString(r.PostForm.Get("owner"))
	token, err2 := strconv.ParseInt(r.PostForm.Get("token"), 10, 64)
	ref = lockRef{r.PostForm.Get("kind"), string(owner), string(key), token}
	return ref, err == nil && err2 == nil && err3 == nil && (ref.Kind == "lease" || ref.Kind == "fair" || ref.Kind == "semaphore")
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

// find reads the holder of a lock that is to be taken away. It returns errGone if the holder has
// changed, or if there is none.
func (c *console[Tx]) find(ctx context.Context, ref lockRef) (p releasePage, err error) {
	p.Ref = ref
	locks := c.locks.For(ref.Owner)
	if ref.Kind == "lease" {
		i, found, err := locks.Inspect(ctx, ref.Key)
		if err == nil && (!found || !i.Held || i.Token != ref.Token) {
			err = errGone
		}
		p.Holder, p.Held, p.Since, p.Remaining, p.Waiting = i.Holder, i.Held, i.Since, i.Remaining, i.Waiting
		return p, err
	}
	var line fairlock.Queue
	if ref.Kind == "fair" {
		line, err = fairlock.New(locks).Queue(ctx, ref.Key)
	} else {
		var s *fairlock.Semaphore[Tx]
		if s, err = fairlock.New(locks).Semaphore(ref.Key, fairlock.MaxPermits); err == nil { // the number of permits does not matter here
			line, err = s.Queue(ctx)
		}
	}
	if err != nil {
		return p, err
	}
	err = errGone
	for _, place := range line.Tickets {
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
	if problem := checkActor(by, reason); problem != "" {
		c.confirmRelease(w, r, http.StatusBadRequest, problem)
		return
	}
	if c.options.FourEyes {
		c.proposeRelease(w, r, ref, holdfast.Actor{By: by, Reason: reason})
		return
	}
	if err := c.release(r.Context(), ref, by, reason); err != nil {
		c.failedRelease(w, r, err)
		return
	}
	c.options.Log.InfoContext(r.Context(), "holdfast console: a lock was taken away", "kind", ref.Kind, "by", by)
	redirect(w, "locks?done=released")
}

func (c *console[Tx]) release(ctx context.Context, ref lockRef, by, reason string) error {
	l, err := sqllock.New(ctx, c.db)
	if err != nil {
		return err
	}
	had, of := false, l.For(ref.Owner)
	switch ref.Kind { // refuse if the holder has changed since the page was shown
	case "lease":
		had, err = of.ForceRelease(ctx, ref.Key, ref.Token, holdfast.Actor{By: by, Reason: reason})
	case "fair":
		had, err = fairlock.New(of).ForceRelease(ctx, ref.Key, ref.Token, holdfast.Actor{By: by, Reason: reason})
	case "semaphore":
		var s *fairlock.Semaphore[Tx]
		if s, err = fairlock.New(of).Semaphore(ref.Key, fairlock.MaxPermits); err == nil {
			had, err = s.ForceRelease(ctx, ref.Token, holdfast.Actor{By: by, Reason: reason})
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

// who returns the name of the person who makes the request.
func (c *console[Tx]) who(r *http.Request) string {
	if c.options.Actor != nil {
		return c.options.Actor(r)
	}
	return strings.TrimSpace(r.PostForm.Get("by"))
}

// checkActor reports missing input before the database is used. The database checks the rest.
func checkActor(by, reason string) string {
	switch {
	case by == "":
		return "Say who you are: it is recorded."
	case reason == "":
		return "Say why: it is recorded, for those who look later."
	case len(by) > 255 || len(reason) > 500:
		return "A name has at most 255 bytes, and a reason at most 500."
	}
	return ""
}
