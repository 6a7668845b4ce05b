package idemhttp

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strconv"
	"strings"

	"github.com/holdfast-go/holdfast/idempotency/idemclient"
)

// response is the stored form of a response.
type response struct {
	Status int         `json:"status"`
	Header http.Header `json:"header,omitempty"`
	Body   []byte      `json:"body,omitempty"`
	// Started is the operation that the handler has started, Request the request that it was for.
	Started *startedRef `json:"started,omitempty"`
	Request string      `json:"request,omitempty"`
}

// keep encodes a recorded response for the record.
func keep(rec *recorder, replayed []string, limit int, started *startedRef, request string) (json.RawMessage, error) {
	stored := response{Status: rec.status, Header: http.Header{}, Body: rec.body.Bytes(), Started: started, Request: request}
	for _, name := range replayed {
		if values := rec.sent[name]; len(values) > 0 {
			stored.Header[name] = values
		}
	}
	text, err := json.Marshal(stored)
	if err == nil && len(text) > limit {
		err = errTooLarge
	}
	return text, err
}

var errRecord = errors.New("idemhttp: the record holds no response: is the operation's name that of something else?")

func restore(text json.RawMessage) (*response, error) {
	var stored response
	if err := json.Unmarshal(text, &stored); err != nil {
		return nil, fmt.Errorf("%w: %w", errRecord, err)
	}
	if stored.Status < 200 || stored.Status > 999 {
		return nil, fmt.Errorf("%w: status %d", errRecord, stored.Status)
	}
	return &stored, nil
}

// send sends the handler's response, with all its header fields.
func (r *recorder) send(w http.ResponseWriter) {
	h := w.Header()
	clear(h)
	maps.Copy(h, r.sent)
	h.Del(idemclient.HeaderReplayed)
	h.Del(idemclient.HeaderOriginal)
	write(w, r.status, r.body.Bytes())
}

// original says which request the response was made for.
func (s *response) original(w http.ResponseWriter) {
	if s.Request != "" && printable(s.Request) {
		w.Header().Set(idemclient.HeaderOriginal, s.Request)
	}
}

// maxRequestID bounds the id of a request, in bytes.
const maxRequestID = 255

// printable reports whether a header field can carry the text.
func printable(text string) bool {
	return strings.IndexFunc(text, func(c rune) bool { return c < ' ' || c > '~' }) < 0
}

// replay sends the stored response. Header fields that an outer middleware has set stay, unless
// the record has the same field.
func (s *response) replay(w http.ResponseWriter) {
	h := w.Header()
	maps.Copy(h, s.Header)
	h.Set(idemclient.HeaderReplayed, "true")
	write(w, s.Status, s.Body)
}

func write(w http.ResponseWriter, status int, body []byte) {
	if status == http.StatusNoContent || status == http.StatusNotModified {
		w.Header().Del("Content-Length")
	} else {
		w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	}
	w.WriteHeader(status)
	if len(body) > 0 {
		_, _ = w.Write(body) // a client that has disconnected retries
	}
}
