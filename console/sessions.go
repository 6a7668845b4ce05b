package console

import "net/http"

// sessionsPage lists the browsers that are signed in as the person who looks.
type sessionsPage struct {
	Named  bool // people have names
	Own    session
	Others []session
	More   int // that are not in Others
}

func (c *console[Tx]) getSessions(w http.ResponseWriter, r *http.Request) {
	p := sessionsPage{Named: c.options.Actor != nil}
	p.Own, p.Others = c.sessions.list(r)
	if p.More = len(p.Others) - pageRows; p.More > 0 {
		p.Others = p.Others[:pageRows]
	}
	view := page{Title: "Sessions", Section: "sessions", Live: true, Body: p}
	switch r.URL.Query().Get("done") {
	case "ended":
		view.Notice = "Ended."
	case "gone":
		view.Problem = "Nothing was changed: that session had ended."
	}
	c.render(w, r, http.StatusOK, "sessions", view)
}

func (c *console[Tx]) postEndSession(w http.ResponseWriter, r *http.Request) {
	ref := r.PostFormValue("session")
	if ref == "" {
		c.fail(w, r, http.StatusBadRequest, "The form names no session.")
		return
	}
	c.endSessions(w, r, ref)
}

func (c *console[Tx]) postEndSessions(w http.ResponseWriter, r *http.Request) {
	c.endSessions(w, r, "")
}

// endSessions ends the other session with a reference, or all others for "".
func (c *console[Tx]) endSessions(w http.ResponseWriter, r *http.Request, ref string) {
	ended := c.sessions.endOthers(r, ref)
	if ended == 0 {
		redirect(w, "sessions?done=gone")
		return
	}
	c.options.Log.InfoContext(r.Context(), "holdfast console: sessions were ended", "sessions", ended, "by", c.options.person(r), "from", c.client(r))
	redirect(w, "sessions?done=ended")
}
