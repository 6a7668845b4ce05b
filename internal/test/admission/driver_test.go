package admission_test

import (
	"context"
	"database/sql"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/internal/test/conformance"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
)

// TestDriverErrorsHaveCodes checks what MySQL's driver gives up on its own: a statement that waits for
// longer than readTimeout, a session that was idle for longer than wait_timeout, and a packet that is too
// large. The error has a code, nothing happened, and the key is free.
func TestDriverErrorsHaveCodes(t *testing.T) {
	t.Parallel()
	conformance.Run(t, conformance.SQL(), func(e *conformance.Env[*sql.Tx]) {
		if !e.InnoDB() {
			return
		}
		e.Must(`CREATE TABLE large (v LONGTEXT)`)
		for name, c := range map[string]struct {
			param, code string
			fn          func(ctx context.Context, tx *sql.Tx) error
		}{
			"a wait that is longer than readTimeout": {"readTimeout=3s", "connection-lost", func(ctx context.Context, tx *sql.Tx) error {
				_, err := tx.ExecContext(ctx, `SELECT SLEEP(30)`)
				return err
			}},
			"a session that was idle": {"wait_timeout=1", "connection-lost", func(ctx context.Context, tx *sql.Tx) error {
				var id int
				if err := tx.QueryRowContext(ctx, `SELECT CONNECTION_ID()`).Scan(&id); err != nil {
					return err
				}
				e.Eventually("the server ends the session", func() bool {
					return e.Int(`SELECT COUNT(*) FROM `+e.Engine.Sessions()+` WHERE id = $1`, id) == 0
				})
				return e.Effect(ctx, tx, "a")
			}},
			"a packet that is larger than the driver sends": {"maxAllowedPacket=65536", "statement-too-large", insert(1 << 17)},
			"a packet that is larger than the server takes": {"maxAllowedPacket=1073741824", "", insert(1 << 27)},
		} {
			db := mustOpen(e.T, dbtest.OpenSQL(e.T, dbtest.With(e.DSN, c.param)))
			store, err := idempotency.New(e.Ctx, db)
			e.Check(err)
			fn := func(ctx context.Context, tx *sql.Tx) error {
				if err := e.Effect(ctx, tx, "a"); err != nil {
					return err
				}
				return c.fn(ctx, tx)
			}
			_, inDo := idempotency.Do(e.Ctx, store, conformance.Op("a"), func(ctx context.Context, tx *sql.Tx) (string, error) { return "", fn(ctx, tx) })
			for call, err := range map[string]error{"Do": inDo, "InTx": db.InTx(e.Ctx, fn)} {
				code := holdfast.Code(err)
				// The server may end the connection before it has said why.
				if code != c.code && (c.code != "" || code != "statement-too-large" && code != "connection-lost") {
					e.Errorf("%s, %s: the code is %q: %v", name, call, code, err)
				}
			}
			if n := e.Effects("a"); n != 0 {
				e.Errorf("%s: %d effects", name, n)
			}
		}
		if r, err := e.Do(e.Store(idempotency.Options{}), conformance.Op("a")); err != nil || r.Outcome != idempotency.Executed {
			e.Errorf("the key is not free: %v, %v", r.Outcome, err)
		}
	})
}

func insert(bytes int) func(ctx context.Context, tx *sql.Tx) error {
	return func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `INSERT INTO large (v) VALUES ('`+strings.Repeat("x", bytes)+`')`)
		return err
	}
}

// TestDuplicateBehindReadTimeout checks a duplicate whose wait for the key is longer than its DSN's
// readTimeout: it gets a code, and once the first call has ended, its result.
func TestDuplicateBehindReadTimeout(t *testing.T) {
	t.Parallel()
	conformance.Run(t, conformance.SQL(), func(e *conformance.Env[*sql.Tx]) {
		if !e.InnoDB() {
			return
		}
		store, err := idempotency.New(e.Ctx, mustOpen(e.T, dbtest.OpenSQL(e.T, dbtest.With(e.DSN, "readTimeout=3s"))), idempotency.Options{LockTimeout: time.Minute})
		e.Check(err)
		entered, free, done := make(chan struct{}), make(chan struct{}), make(chan error)
		go func() {
			_, err := idempotency.Do(e.Ctx, e.Store(idempotency.Options{}), conformance.Op("a"), func(ctx context.Context, tx *sql.Tx) (string, error) {
				close(entered)
				<-free
				return "first", e.Effect(ctx, tx, "a")
			})
			done <- err
		}()
		<-entered
		op := conformance.Op("a")
		op.Wait = time.Minute
		if _, err := e.Do(store, op); holdfast.Code(err) != "connection-lost" {
			e.Errorf("the code is %q: %v", holdfast.Code(err), err)
		}
		close(free)
		e.Check(<-done)
		if r, err := e.Do(store, op); err != nil || r.Outcome != idempotency.Replayed {
			e.Errorf("afterwards: %v, %v", r.Outcome, err)
		}
		e.WantOnce("a")
	})
}
