package idemhttp

import (
	"errors"
	"io"
	"net/http"
	"sync/atomic"
)

var errBusy = errors.New("idemhttp: the requests that are served at once hold as much memory as they may (Options.MaxHeld)")

func busy() Problem {
	return Problem{
		Type: ProblemBusy, Title: "Too much at once", Status: http.StatusServiceUnavailable,
		Detail: "The service handles as many requests as it has memory for, and nothing was done for this one. Retry with the same key.",
	}
}

// memory counts the bytes of the bodies that all requests of a Middleware hold.
type memory struct {
	max  int64
	held atomic.Int64
}

// share is what one request holds. Its handler may write from any goroutine, but not at the same time.
type share struct {
	of                 *memory
	request, responses int64
}

// take adds n bytes to what all requests hold. It returns false, and adds nothing, if they are too many.
func (s *share) take(n int) bool {
	if s.of.held.Add(int64(n)) > s.of.max {
		s.of.held.Add(-int64(n))
		return false
	}
	return true
}

// response takes n bytes of the response.
func (s *share) response(n int) bool {
	if !s.take(n) {
		return false
	}
	s.responses += int64(n)
	return true
}

// again gives back the response of an earlier run.
func (s *share) again() {
	s.of.held.Add(-s.responses)
	s.responses = 0
}

// end gives back everything.
func (s *share) end() {
	s.again()
	s.of.held.Add(-s.request)
	s.request = 0
}

// counted reads the body of a request, and takes what it has read. A client that only announces a body
// takes nothing.
type counted struct {
	from io.Reader
	mine *share
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.from.Read(p)
	if !c.mine.take(n) {
		return 0, errBusy
	}
	c.mine.request += int64(n)
	return n, err
}
