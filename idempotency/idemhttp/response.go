package idemhttp

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strconv"
)

// response is the stored form of a response.
type response struct {
	Status int         `json:"status"`
	Header http.Header `json:"header,omitempty"`
	Body   []byte      `json:"body,omitempty"`
}

// keep encodes a recorded response for the record.
func keep(rec *recorder, replayed []string, limit int) (json.RawMessage, error) {
	stored := response{Status: rec.status, Header: http.Header{}, Body: rec.body.Bytes()}
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
	h.Del(HeaderReplayed)
	write(w, r.status, r.body.Bytes())
}

// replay sends the stored response. Header fields that an outer middleware has set stay, unless
// the record has the same field.
func (s *response) replay(w http.ResponseWriter) {
	h := w.Header()
	maps.Copy(h, s.Header)
	h.Set(HeaderReplayed, "true")
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
