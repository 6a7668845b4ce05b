package idemhttp

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"

	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/idempotency/idemclient"
	"github.com/holdfast-go/holdfast/idempotency/internal/inside"
	"github.com/holdfast-go/holdfast/internal/trace"
)

// requestError is a request that is refused before the store is used.
type requestError struct {
	problem Problem
	err     error // for the log; may be nil
	again   bool  // the same request is right later
}

func (e *requestError) Error() string { return e.problem.Title + ": " + e.problem.Detail }
func (e *requestError) Unwrap() error { return e.err }

// read makes the operation of a request and reads the body. It makes the cheapest checks first.
func (m *Middleware[T]) read(w http.ResponseWriter, r *http.Request, mine *share) (op idempotency.Op, body []byte, err error) {
	o := &m.options
	var key string
	if o.Key == nil {
		if key, err = idemclient.ParseKey(r.Header); err != nil || len(key) > o.MaxKey {
			if key, err = m.unkeyed(r, key, err); err != nil {
				return op, nil, err
			}
		}
	}
	owner, err := m.owner(r)
	if err != nil {
		return op, nil, err
	}
	if body, err = readBody(w, r, o.MaxBody, mine); err != nil {
		return op, nil, err
	}
	if o.Key != nil {
		if key, err = o.Key(r, body); err != nil || key == "" || len(key) > o.MaxKey {
			if key, err = m.unkeyed(r, key, err); err != nil {
				return op, nil, err
			}
		}
	}
	if key == "" {
		return idempotency.Op{Owner: owner, Name: m.operation(r)}, body, nil
	}
	fp, err := o.Fingerprint(r, body)
	if err != nil {
		return op, nil, unusable("The request cannot be told from others", err.Error())
	}
	op = idempotency.Op{
		Owner: owner, Name: m.operation(r), Key: key, Fingerprint: fp, Wait: o.Wait,
	}
	op.Similar, err = m.similar(r, body)
	return op, body, err
}

// tooLong returns err, or the error of a key that is empty or too long.
func (m *Middleware[T]) tooLong(key string, err error) error {
	if err == nil && (key == "" || len(key) > m.options.MaxKey) {
		return fmt.Errorf("%w: it has %d bytes, 1 to %d are allowed", idemclient.ErrKeyMalformed, len(key), m.options.MaxKey)
	}
	return err
}

// unkeyed decides about a request without a key, or with one that cannot be used. "" without an error is served.
func (m *Middleware[T]) unkeyed(r *http.Request, key string, err error) (string, error) {
	err = m.tooLong(key, err)
	missing := errors.Is(err, idemclient.ErrKeyMissing)
	switch {
	case !missing && !errors.Is(err, idemclient.ErrKeyMalformed):
		return "", unusable("No key can be made of the request", err.Error())
	case m.options.Unkeyed == ReportUnkeyed:
		outcome := trace.Malformed
		if missing {
			outcome = trace.Missing
		}
		inside.Of(m.store).Access().Trace.Emit(r.Context(), trace.Event{Name: trace.Unkeyed, Operation: m.operation(r), Outcome: outcome, Count: 1})
		return "", nil
	case m.options.Unkeyed == ServeUnkeyed && missing:
		return "", nil
	}
	return "", malformed(err)
}

// similar makes what is similar to a request, with the client's confirmation.
func (m *Middleware[T]) similar(r *http.Request, body []byte) (*idempotency.Similar, error) {
	if m.options.Similar == nil {
		return nil, nil
	}
	similar, err := m.options.Similar(r, body)
	switch {
	case err != nil:
		return nil, unusable("It cannot be said which requests are similar", err.Error())
	case similar == nil:
		return nil, nil
	}
	confirmed := *similar
	if confirmed.Confirm = r.Header.Get(idemclient.HeaderConfirm); !isToken(confirmed.Confirm) {
		return nil, unusable(idemclient.HeaderConfirm+" is malformed", "Send the value of the response that asked for it.")
	}
	return &confirmed, nil
}

// isToken reports whether a client may send this value: none, or hexadecimal digits, so not ConfirmAny.
func isToken(value string) bool {
	return strings.Trim(value, "0123456789abcdef") == "" && (len(value) == 0 || len(value) == tokenLength)
}

const tokenLength = 32

// owner returns the owner of a request.
func (m *Middleware[T]) owner(r *http.Request) (string, error) {
	if m.options.Owner == nil {
		return "", nil
	}
	owner, err := m.options.Owner(r)
	if err == nil && owner == "" {
		err = errors.New("idemhttp: Options.Owner gave no owner")
	}
	if err != nil {
		return "", &requestError{Problem{
			Type: ProblemOwner, Title: "Owner is not known", Status: http.StatusForbidden,
			Detail: "It is not known whose request this is.",
		}, err, false}
	}
	return owner, nil
}

func readBody(w http.ResponseWriter, r *http.Request, limit int64, mine *share) ([]byte, error) {
	if r.Body == nil || r.Body == http.NoBody {
		return nil, nil
	}
	body, err := io.ReadAll(&counted{http.MaxBytesReader(w, r.Body, limit), mine})
	var large *http.MaxBytesError
	switch {
	case errors.Is(err, errBusy):
		return nil, &requestError{busy(), nil, true}
	case errors.As(err, &large):
		return nil, &requestError{Problem{
			Type: ProblemBodyTooLarge, Title: "Request body is too large", Status: http.StatusRequestEntityTooLarge,
			Detail: "At most " + strconv.FormatInt(limit, 10) + " bytes are allowed.",
		}, nil, false}
	case err != nil:
		return nil, unusable("Request body could not be read", "It ended early, or its encoding is wrong.")
	case len(body) == 0 && (r.ContentLength > 0 || len(r.PostForm) > 0 || r.MultipartForm != nil):
		// Without it, requests for other amounts would have one fingerprint.
		return nil, &requestError{internal(), errors.New("idemhttp: something has read the request's body before the middleware, as ParseForm and FormValue do: put the middleware before it, or give the body back"), false}
	}
	return body, nil
}

func unusable(title, detail string) error {
	return &requestError{Problem{Type: ProblemRequest, Title: title, Status: http.StatusBadRequest, Detail: detail}, nil, false}
}

func malformed(err error) error {
	p := Problem{
		Type: ProblemKeyMalformed, Title: "Idempotency-Key is malformed", Status: http.StatusBadRequest,
		Detail: err.Error(),
	}
	if errors.Is(err, idemclient.ErrKeyMissing) {
		p.Type, p.Title = ProblemKeyMissing, "Idempotency-Key is missing"
		p.Detail = `This operation needs the header Idempotency-Key: a quoted string that is the same whenever the same thing is asked for, and never otherwise.`
	}
	return &requestError{p, nil, false}
}
