package idemhttp

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"unicode/utf8"
)

var (
	errTooLarge = errors.New("idemhttp: the response is larger than the store keeps (idempotency.Options.MaxResult): answer with an id and let the client read the rest by it")
	errTrailers = errors.New("idemhttp: the response has trailers, which are not kept: send them as header fields")
	errSwitch   = errors.New("idemhttp: the handler switched protocols, before COMMIT")
	errHeader   = errors.New("idemhttp: a header field that is replayed is not UTF-8")
)

// recorder is the ResponseWriter of a handler. It keeps the response until the transaction has
// committed. It handles special cases as net/http does: of two statuses the first counts, a
// missing status is 200, an impossible one panics, and a body that is not allowed is refused. It
// drops informational responses (1xx), which say nothing about the outcome.
type recorder struct {
	header http.Header // the handler's
	sent   http.Header // a copy of header at WriteHeader
	status int         // 0 until WriteHeader
	body   bytes.Buffer
	limit  int
	err    error // why the response cannot be stored
	memory *share
}

func newRecorder(header http.Header, limit int, memory *share) *recorder {
	return &recorder{header: header.Clone(), limit: limit, memory: memory}
}

func (r *recorder) Header() http.Header { return r.header }

func (r *recorder) WriteHeader(status int) {
	switch {
	case status < 100 || status > 999:
		panic(fmt.Sprintf("idemhttp: invalid WriteHeader code %d", status))
	case r.status != 0:
		return
	case status == http.StatusSwitchingProtocols:
		r.fail(errSwitch)
		return
	case status < 200:
		return
	}
	r.status = status
	r.sent = r.header.Clone()
}

func (r *recorder) Write(p []byte) (int, error) {
	if err := r.room(len(p)); err != nil || len(p) == 0 {
		return 0, err
	}
	return r.body.Write(p)
}

// WriteString saves io.WriteString a copy.
func (r *recorder) WriteString(s string) (int, error) {
	if err := r.room(len(s)); err != nil || s == "" {
		return 0, err
	}
	return r.body.WriteString(s)
}

func (r *recorder) room(n int) error {
	r.WriteHeader(http.StatusOK)
	switch {
	case n > 0 && (r.status == http.StatusNoContent || r.status == http.StatusNotModified):
		return http.ErrBodyNotAllowed
	case r.body.Len()+n > r.limit:
		r.fail(errTooLarge)
	case r.err == nil && !r.memory.response(n):
		r.fail(errBusy)
	}
	return r.err
}

// FlushError returns an error. http.ResponseController finds this method, and a type assertion to
// http.Flusher fails.
func (r *recorder) FlushError() error {
	return fmt.Errorf("idemhttp: nothing is sent before COMMIT, so nothing can be flushed: %w", http.ErrNotSupported)
}

// Hijack returns an error.
func (r *recorder) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return nil, nil, fmt.Errorf("idemhttp: nothing is sent before COMMIT, so the connection cannot be taken over: %w", http.ErrNotSupported)
}

func (r *recorder) fail(err error) {
	if r.err == nil {
		r.err = err
	}
}

// refused reports whether the handler wrote a status of 400 or above. A router may write 200 for a
// handler that wrote no status.
func (r *recorder) refused() bool { return r.status >= http.StatusBadRequest }

// end completes the response after the handler has returned.
func (r *recorder) end(replayed []string) {
	if r.err == nil {
		r.WriteHeader(http.StatusOK)
	}
	if len(r.sent["Trailer"]) > 0 {
		r.fail(errTrailers)
	}
	for name := range r.header {
		if strings.HasPrefix(name, http.TrailerPrefix) {
			r.fail(errTrailers)
		}
	}
	for _, name := range replayed {
		for _, value := range r.sent[name] {
			if !utf8.ValidString(value) {
				r.fail(errHeader)
			}
		}
	}
}
