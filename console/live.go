package console

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"time"
)

const (
	maxStreams   = 64
	writeTimeout = 10 * time.Second // for one event
)

// wantsEvents reports whether the page's script asks to be kept up to date.
func wantsEvents(r *http.Request) bool {
	return r.Method == http.MethodGet && r.Header.Get("Accept") == "text/event-stream"
}

// live serves a page, or, to its script, the page again and again as server-sent events: each has the HTML
// as a JSON string. The event "again" asks the browser to open the next stream.
func (c *console[Tx]) live(every time.Duration, h http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if !wantsEvents(r) {
			h(w, r)
			return
		}
		defer c.streams.Add(-1)
		if c.streams.Add(1) > maxStreams {
			http.Error(w, "Too many pages are open: this one asks again by itself.", http.StatusServiceUnavailable)
			return
		}
		c.stream(w, r, every, h)
	}
}

func (c *console[Tx]) stream(w http.ResponseWriter, r *http.Request, every time.Duration, h http.HandlerFunc) {
	control := http.NewResponseController(w)
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no") // nginx
	send := func(event string) bool {
		_ = control.SetWriteDeadline(time.Now().Add(writeTimeout)) // not every writer has one
		_, err := w.Write([]byte(event))
		return err == nil && control.Flush() == nil
	}
	end := time.NewTimer(StreamLife)
	defer end.Stop()
	for {
		began := time.Now()
		page := c.rendered(r, h)
		if page == "" || !send("data: "+page+"\n\n") {
			return // the browser asks for the page, and gets the answer
		}
		select {
		case <-time.After(max(every, 10*time.Since(began))): // a slow answer is asked for less often
		case <-end.C:
			send("event: again\ndata: " + strconv.FormatInt(every.Milliseconds(), 10) + "\n\n")
			return
		case <-c.options.Ending:
			return
		case <-r.Context().Done():
			return
		}
		if !c.options.BehindOwnAuthentication && !c.sessions.has(r) {
			return
		}
	}
}

// rendered returns the page as a JSON string; "" if it cannot be shown.
func (c *console[Tx]) rendered(r *http.Request, h http.HandlerFunc) string {
	ctx, cancel := context.WithTimeout(r.Context(), queryTimeout)
	defer cancel()
	page := &pageWriter{header: http.Header{}}
	h(page, r.WithContext(ctx))
	if page.status != http.StatusOK {
		return ""
	}
	text, err := json.Marshal(page.body.String())
	if err != nil {
		return ""
	}
	return string(text)
}

// pageWriter keeps an answer.
type pageWriter struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (p *pageWriter) Header() http.Header               { return p.header }
func (p *pageWriter) WriteHeader(status int)            { p.status = status }
func (p *pageWriter) Write(b []byte) (n int, err error) { return p.body.Write(b) }
