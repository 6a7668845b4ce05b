package prove

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/dialect"
)

const (
	// writes is the number of new connections that write. looks is how many other new
	// connections read each write.
	writes = 8
	looks  = 2
)

// fresh opens a new connection, in a new pool.
func (r *run) fresh(ctx context.Context) (conn *sql.Conn, done func(), err error) {
	pool, err := r.o.Pool(nil)
	if err != nil {
		return nil, nil, err
	}
	if conn, err = pool.Conn(ctx); err != nil {
		_ = pool.Close()
		return nil, nil, err
	}
	return conn, func() { _, _ = conn.Close(), pool.Close() }, nil
}

// oneDatabase writes through one new connection after the other. It reads each write at once
// through other connections, old and new.
func oneDatabase(ctx context.Context, t *trial) error {
	counter, err := t.newRow(ctx)
	if err != nil {
		return t.apart(err)
	}
	old, done, err := t.fresh(ctx)
	if err != nil {
		return err
	}
	defer done()
	server := t.server(ctx, old)
	maps.Copy(t.report.Facts, server)
	for n := int64(1); n <= writes; n++ {
		if err := t.onFresh(ctx, server, func(conn *sql.Conn) error {
			if err := t.exec(ctx, conn, `UPDATE {rows} SET n = n + 1 WHERE k = $1`, counter); err != nil {
				return err
			}
			return t.sees(ctx, conn, "the connection that wrote it", counter, n)
		}); err != nil {
			return err
		}
		for range looks {
			if err := t.onFresh(ctx, server, func(conn *sql.Conn) error {
				return t.sees(ctx, conn, "a new connection", counter, n)
			}); err != nil {
				return err
			}
		}
		if err := t.sees(ctx, old, "an older connection", counter, n); err != nil {
			return err
		}
	}
	return nil
}

// onFresh runs f on a new connection, which must lead to the known server.
func (t *trial) onFresh(ctx context.Context, server map[string]string, f func(conn *sql.Conn) error) error {
	conn, done, err := t.fresh(ctx)
	if err != nil {
		return err
	}
	defer done()
	t.attempts.Add(1)
	if err := f(conn); err != nil {
		return t.apart(err)
	}
	if t.db.Capabilities().MultiPrimary {
		return nil
	}
	for name, value := range t.server(ctx, conn) {
		if was := server[name]; was != "" && was != value {
			return brokenf("two connections of this address lead to two servers (%s: %s and %s), or the server was restarted meanwhile: connect to the one primary", name, was, value)
		}
	}
	return nil
}

// sees reads the counter, which must be n.
func (t *trial) sees(ctx context.Context, q runner, who string, counter, n int64) error {
	switch got, err := t.number(ctx, q, `SELECT n FROM {rows} WHERE k = $1`, counter); {
	case err != nil:
		return t.apart(err)
	case got == -1:
		return brokenf("%s does not see a row that was committed: a replica or a second writer is behind this address; connect to the one primary", who)
	case got != n:
		return brokenf("%s sees write %d after write %d was committed: a replica or a second writer is behind this address; connect to the one primary", who, got, n)
	}
	return nil
}

// apart turns an error that shows a second database behind the address into a failed check.
func (t *trial) apart(err error) error {
	switch t.dialect.Classify(err) {
	case dialect.NoTable:
		return brokenf("a connection does not see tables that were committed (%v): a replica or a second writer is behind this address; connect to the one primary", err)
	case dialect.ReadOnly:
		return brokenf("a connection takes no writes (%v): a replica is behind this address; connect to the one primary", err)
	}
	return err
}

// server returns facts that distinguish the server behind q from other servers.
func (r *run) server(ctx context.Context, q runner) map[string]string {
	facts := map[string]string{}
	for _, f := range r.dialect.Prove.Server {
		var value string
		if err := q.(rowQuerier).QueryRowContext(ctx, f.Query).Scan(&value); err == nil { //nolint:forcetypeassert // each runner is one
			facts[f.Name] = value
		}
	}
	return facts
}

type rowQuerier interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// isolation checks that a session, with the pool's own settings, does not see uncommitted
// changes of another session.
func isolation(ctx context.Context, t *trial) error {
	clients, err := t.racing(ctx)
	if err != nil {
		return err
	}
	row, err := t.newRow(ctx)
	if err != nil {
		return err
	}
	writer, err := clients[0].pool.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = writer.Rollback() }()
	if err := t.exec(ctx, writer, `UPDATE {rows} SET n = 1 WHERE k = $1`, row); err != nil {
		return err
	}
	if err := t.clean(ctx, "a statement", clients[1].pool, row); err != nil {
		return err
	}
	reader, err := clients[1].pool.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = reader.Rollback() }()
	if err := t.clean(ctx, "a transaction", reader, row); err != nil {
		return err
	}
	return errors.Join(reader.Rollback(), writer.Rollback())
}

func (t *trial) clean(ctx context.Context, who string, q runner, row int64) error {
	t.attempts.Add(1)
	n, err := t.number(ctx, q, `SELECT n FROM {rows} WHERE k = $1`, row)
	if err == nil && n != 0 {
		return brokenf("%s sees what another session has not committed: let sessions begin at READ COMMITTED or above", who)
	}
	return err
}

// uncommittedResult requests a key whose result is stored but not committed.
func uncommittedResult(ctx context.Context, t *trial) error {
	clients, err := t.racing(ctx)
	if err != nil {
		return err
	}
	a, b := clients[0], clients[1]
	k := t.ids.Add(1)
	tx, err := a.pool.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	if err := t.doTx(ctx, a, tx, k); err != nil {
		return err
	}
	o := op(k)
	o.Wait = holdfast.NoWait
	t.attempts.Add(1)
	if outcome, err := t.do(ctx, b, o, k); err == nil {
		return brokenf("a key was answered with %v while the transaction that claimed it was not committed", outcome)
	} else if !inProgress(err) {
		return fmt.Errorf("asking for a key that is claimed: %w", err)
	}
	if err := tx.Rollback(); err != nil {
		return err
	}
	return t.executedOnce(ctx, b, k)
}
