package admission_test

import (
	"context"
	"database/sql"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/test/conformance"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
)

// TestDeadlocksAreDecided checks that PostgreSQL chooses one transaction of a deadlock before the default
// LockTimeout ends all of them, regardless of the server's deadlock_timeout.
func TestDeadlocksAreDecided(t *testing.T) {
	t.Parallel()
	conformance.Run(t, conformance.SQL(), func(e *conformance.Env[*sql.Tx]) {
		want := map[string]time.Duration{"": core.DefaultLockTimeout}
		if e.Engine == dbtest.Postgres {
			want = map[string]time.Duration{"": 3 * time.Second, "deadlock_timeout=7000": 9 * time.Second, "deadlock_timeout=50": 2050 * time.Millisecond}
		}
		for param, longest := range want {
			url := e.DSN
			if param != "" {
				url = dbtest.With(url, param)
			}
			db, err := open(e.T, dbtest.OpenSQL(e.T, url))
			if err != nil {
				e.Fatal(err)
			}
			store, err := idempotency.New(e.Ctx, db)
			if err != nil {
				e.Fatal(err)
			}
			if got := store.Options().LockTimeout; got != longest {
				e.Errorf("%s: the default LockTimeout is %v, want %v", param, got, longest)
			}
			if e.Engine != dbtest.Postgres {
				continue
			}
			var setting string
			e.Check(db.InTx(e.Ctx, func(_ context.Context, tx *sql.Tx) error {
				return tx.QueryRowContext(e.Ctx, `SELECT pg_catalog.current_setting('lock_timeout')::pg_catalog.interval = $1::pg_catalog.interval`, longest.String()).Scan(&setting)
			}))
			if !strings.HasPrefix(setting, "t") {
				e.Errorf("%s: the transaction has another lock_timeout", param)
			}
		}
	})
}
