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

// recorder is the ResponseWriter of a handler: it keeps the response until the
// transaction has committed. It does as net/http's own does with a status
// written twice (the first counts), without any (200), an impossible one
// (panic), and a body where none is allowed; informational responses (1xx),
// which say nothing of the outcome, are dropped.
type recorder struct {
	header http.Header // the handler's
	sent   http.Header // as it was at WriteHeader
	status int         // 0 until WriteHeader
	body   bytes.Buffer
	limit  int
	err    error // why the response cannot be kept
}

func newRecorder(header http.Header, limit int) *recorder {
	return &recorder{header: header.Clone(), limit: limit}
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

// WriteString spares io.WriteString a copy.
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
	}
	return r.err
}

// FlushError refuses: http.ResponseController finds it, and a test for
// http.Flusher finds none.
func (r *recorder) FlushError() error {
	return fmt.Errorf("idemhttp: nothing is sent before COMMIT, so nothing can be flushed: %w", http.ErrNotSupported)
}

// Hijack refuses.
func (r *recorder) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return nil, nil, fmt.Errorf("idemhttp: nothing is sent before COMMIT, so the connection cannot be taken over: %w", http.ErrNotSupported)
}

func (r *recorder) fail(err error) {
	if r.err == nil {
		r.err = err
	}
}

// refused tells whether the handler wrote an answer that says "no": a router
// may write 200 for one that wrote none.
func (r *recorder) refused() bool { return r.status >= http.StatusBadRequest }

// end is called when the handler has returned.
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
