package once

import (
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/dialect/postgres"
)

// TestUnknownStaysUnknown runs a transaction whose commit was not answered again. What that run finds is the outcome only if it
// has seen what the commit did.
func TestUnknownStaysUnknown(t *testing.T) {
	t.Parallel()
	found, refused := errors.New("it is another state"), error(&pgconn.PgError{Code: "25006", Message: "the server only reads"})
	w := &Writer[*sql.Tx]{
		Wait: time.Minute, Access: access.Access[*sql.Tx]{Dialect: &postgres.Dialect},
		Answers: func(err error) bool { return errors.Is(err, found) },
		Explain: func(err error) error { return err },
	}
	lost := &holdfast.UnknownError{Err: errors.New("connection reset")}
	for name, c := range map[string]struct {
		runs []error
		want error
	}{
		"it runs":         {[]error{lost, nil}, nil},
		"it finds":        {[]error{lost, found}, found},
		"a lock timeout":  {[]error{lost, &holdfast.RetryError{Attempts: 1, Err: refused}}, holdfast.ErrUnknown},
		"refused":         {[]error{lost, refused}, holdfast.ErrUnknown},
		"refused at once": {[]error{refused}, refused},
		"locked at once":  {[]error{&holdfast.RetryError{Attempts: 1, Err: refused}}, holdfast.ErrRetry},
	} {
		n := 0
		err := w.resolve(t.Context(), func() error { n++; return c.runs[n-1] })
		if !errors.Is(err, c.want) || n != len(c.runs) {
			t.Errorf("%s: %v after %d runs, want %v", name, err, n, c.want)
		}
	}
}
