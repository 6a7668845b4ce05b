package idemhttp_test

import (
	"context"
	"database/sql"
	"errors"
	"net/http"
	"testing"

	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/idempotency/idemhttp"
	"github.com/holdfast-go/holdfast/idempotency/staged"
	"github.com/holdfast-go/holdfast/internal/test/conformance"
)

// TestStagedWithinHandler checks that a handler that runs in the middleware's transaction
// cannot begin a staged operation there.
func TestStagedWithinHandler(t *testing.T) {
	t.Parallel()
	conformance.Run(t, conformance.SQL(), func(e *conformance.Env[*sql.Tx]) {
		paid := 0
		runner, err := staged.New(e.Store(idempotency.Options{}), staged.Workflow[string, string, *sql.Tx]{
			Name: "pay", Run: func(context.Context, *staged.Run[*sql.Tx], string) (string, error) { paid++; return "paid", nil },
		})
		if err != nil {
			e.Fatal(err)
		}
		begun := make(chan error, 1)
		s := start(e, idempotency.Options{}, idemhttp.Options{}, func(_ *service[*sql.Tx], _ http.ResponseWriter, r *http.Request, _ *sql.Tx) error {
			_, err := runner.Do(r.Context(), idempotency.Op{Key: "a"}, "a")
			begun <- err
			return nil
		})
		s.post("a", "key-1", "")
		if err := <-begun; !errors.Is(err, staged.ErrInTx) || paid != 0 {
			e.Errorf("%v, paid %d times", err, paid)
		}
	})
}
