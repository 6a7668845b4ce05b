package holdfastpgx

import (
	"context"
	"database/sql/driver"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/stdhandle"
)

// Connector wraps a connector of pgx's package stdlib for a pool of database/sql, which package
// holdfastsql or holdfastsqlx opens:
//
//	pool := sql.OpenDB(holdfastpgx.Connector(stdlib.GetConnector(*config)))
//
// Holdfast then sends BEGIN with its claim, and its record with COMMIT. Everything else is passed to the
// driver as it is. Programs that need the driver's own connection, in [database/sql.Conn.Raw], call
// its method Unwrap() driver.Conn.
func Connector(c driver.Connector) driver.Connector { return stdhandle.NativeConnector(c, native{}) }

// native implements stdhandle.Native.
type native struct{}

func (native) BeginWith(ctx, life context.Context, c driver.Conn, opts core.TxOptions, first core.Bound) (driver.Tx, core.Reply, error) {
	conn := c.(*stdlib.Conn).Conn() //nolint:forcetypeassert // Pipes has looked
	_ = replicated(conn)            // a commit of the program's left it
	tx, answer, err := beginWith(ctx, conn, opts, first)
	return std{tx, life}, answer, err
}

func (native) CommitWith(ctx context.Context, c driver.Conn, tx driver.Tx, last core.Bound) (core.Reply, error) {
	return commitWith(ctx, c.(*stdlib.Conn).Conn(), tx.(std).Tx, last) //nolint:forcetypeassert // BeginWith has made it
}

func (native) Pipes(c driver.Conn) bool {
	_, ok := c.(*stdlib.Conn)
	return ok
}

// std is a transaction as package stdlib has it: COMMIT ends with the context of its BEGIN.
type std struct {
	pgx.Tx

	life context.Context
}

// Commit implements driver.Tx.
func (t std) Commit() error {
	if err := t.Tx.Commit(t.life); err != nil {
		return err
	}
	return replicated(t.Conn())
}

// Rollback implements driver.Tx.
func (t std) Rollback() error {
	ctx, cancel := core.Cleanup(t.life)
	defer cancel()
	return t.Tx.Rollback(ctx)
}
