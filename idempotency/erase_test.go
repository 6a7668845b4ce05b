package idempotency_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"testing"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/stdhandle"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
	"github.com/holdfast-go/holdfast/migrations"
)

// cut is an adapter whose connections are lost at the first query of a name.
type cut struct {
	core.Adapter[*sql.Tx]

	at *string
}

func (a cut) Acquire(ctx context.Context) (core.Conn[*sql.Tx], error) {
	c, err := a.Adapter.Acquire(ctx)
	return &cutConn{c, a.at, false}, err
}

type cutConn struct {
	core.Conn[*sql.Tx]

	at   *string
	lost bool
}

func (c *cutConn) Query(ctx context.Context, query string, args ...any) (core.Rows, error) {
	if *c.at != "" && core.StatementName(ctx) == *c.at {
		*c.at, c.lost = "", true
	}
	if c.lost {
		return nil, driver.ErrBadConn
	}
	return c.Conn.Query(ctx, query, args...)
}

// TestEraseAfterALostConnection loses the connection at each look of an erasure: it looks again, and erases all.
func TestEraseAfterALostConnection(t *testing.T) {
	t.Parallel()
	for _, lost := range []string{"erase.page", "erase.find"} {
		pool := dbtest.OpenSQL(t, dbtest.DSN(t, dbtest.SQLite))
		if err := migrations.Up(t.Context(), pool); err != nil {
			t.Fatal(err)
		}
		at := ""
		db, err := access.Open(t.Context(), new(holdfast.DB[*sql.Tx]), core.Adapter[*sql.Tx](cut{stdhandle.Handle[*sql.Tx]{
			Querier: stdhandle.Querier{R: pool},
			Pin: func(ctx context.Context) (*sql.Conn, stdhandle.Begin[*sql.Tx], error) {
				c, err := pool.Conn(ctx)
				if err != nil {
					return nil, nil, err
				}
				return c, c.BeginTx, nil
			},
			Std: func(tx *sql.Tx) *sql.Tx { return tx },
		}, &at}), []holdfast.Options{{SingleOwner: true}})
		if err != nil {
			t.Fatal(err)
		}
		s, err := idempotency.New(t.Context(), db)
		if err != nil {
			t.Fatal(err)
		}
		for _, key := range []string{"a", "b", "c"} {
			if _, err := idempotency.Do(t.Context(), s, idempotency.Op{Name: "refund", Key: key, NoFingerprint: true}, func(context.Context, *sql.Tx) (string, error) { return "secret", nil }); err != nil {
				t.Fatal(err)
			}
		}
		at = lost
		n, err := s.EraseScope(t.Context(), idempotency.Erasure{Actor: holdfast.Actor{By: "test", Reason: "a test"}})
		if err != nil || n != 3 || at != "" {
			t.Errorf("lost at %s: %d erased, %v; still to lose: %q", lost, n, err, at)
		}
	}
}
