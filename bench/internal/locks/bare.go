package locks

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast-go/holdfast/bench/internal/sqlengine"
)

// dialect is the minimal SQL for a lock in a table: one statement that inserts the row, or
// takes it over if it has expired, and one that releases it.
type dialect struct {
	table        string
	take         string // name, attempt, TTL in µs
	remove, free string // name, attempt
	anchor, make string // name: lock a row, create it
}

const (
	pgNow     = `(date_part('epoch', clock_timestamp()) * 1000000)::bigint`
	mysqlNow  = `CAST(UNIX_TIMESTAMP(NOW(6)) * 1000000 AS SIGNED)`
	sqliteNow = `CAST(unixepoch('subsec') * 1000000 AS INTEGER)`
)

var dialects = map[string]dialect{
	sqlengine.Postgres: {
		table: `CREATE TABLE bare_locks (name bytea PRIMARY KEY, attempt bytea, token bigint NOT NULL, expires_at bigint NOT NULL)`,
		take: `INSERT INTO bare_locks AS l (name, attempt, token, expires_at) VALUES ($1, $2, 1, ` + pgNow + ` + $3::bigint)
ON CONFLICT (name) DO UPDATE SET attempt = EXCLUDED.attempt, token = l.token + 1, expires_at = EXCLUDED.expires_at
WHERE l.expires_at <= ` + pgNow + ` RETURNING token`,
		remove: `DELETE FROM bare_locks WHERE name = $1 AND attempt = $2`,
		free:   `UPDATE bare_locks SET attempt = NULL, expires_at = 0 WHERE name = $1 AND attempt = $2`,
		anchor: `SELECT 1 FROM bare_anchors WHERE name = $1 FOR UPDATE`,
		make:   `INSERT INTO bare_anchors (name) VALUES ($1) ON CONFLICT (name) DO NOTHING`,
	},
	sqlengine.MySQL: {
		table: `CREATE TABLE bare_locks (name VARBINARY(255) PRIMARY KEY, attempt BINARY(16), token BIGINT NOT NULL, expires_at BIGINT NOT NULL) ENGINE=InnoDB`,
		take: `INSERT INTO bare_locks (name, attempt, token, expires_at) VALUES (?, ?, 1, ` + mysqlNow + ` + ?)
ON DUPLICATE KEY UPDATE attempt = IF(expires_at <= ` + mysqlNow + `, VALUES(attempt), attempt),
token = IF(attempt <=> VALUES(attempt), token + 1, token), expires_at = IF(attempt <=> VALUES(attempt), VALUES(expires_at), expires_at)`,
		remove: `DELETE FROM bare_locks WHERE name = ? AND attempt = ?`,
		free:   `UPDATE bare_locks SET attempt = NULL, expires_at = 0 WHERE name = ? AND attempt = ?`,
		anchor: `SELECT 1 FROM bare_anchors WHERE name = ? FOR UPDATE`,
		make:   `INSERT INTO bare_anchors (name) VALUES (?) ON DUPLICATE KEY UPDATE name = name`,
	},
	sqlengine.SQLite: {
		table: `CREATE TABLE bare_locks (name BLOB PRIMARY KEY, attempt BLOB, token INTEGER NOT NULL, expires_at INTEGER NOT NULL)`,
		take: `INSERT INTO bare_locks (name, attempt, token, expires_at) VALUES (?, ?, 1, ` + sqliteNow + ` + ?)
ON CONFLICT (name) DO UPDATE SET attempt = excluded.attempt, token = token + 1, expires_at = excluded.expires_at
WHERE expires_at <= ` + sqliteNow + ` RETURNING token`,
		remove: `DELETE FROM bare_locks WHERE name = ? AND attempt = ?`,
		free:   `UPDATE bare_locks SET attempt = NULL, expires_at = 0 WHERE name = ? AND attempt = ?`,
	},
}

func dialectOf(engine string) dialect {
	if engine == sqlengine.MariaDB {
		engine = sqlengine.MySQL
	}
	return dialects[engine]
}

// Tables creates the tables of the bare statements.
func Tables(ctx context.Context, e *sqlengine.Engine) error {
	name := map[string]string{sqlengine.Postgres: "bytea", sqlengine.SQLite: "BLOB"}[e.Name]
	if name == "" {
		name = "VARBINARY(255)"
	}
	if e.Name == sqlengine.Postgres {
		if err := e.Exec(ctx, standInTable...); err != nil {
			return err
		}
	}
	return e.Exec(ctx, dialectOf(e.Name).table, `CREATE TABLE bare_anchors (name `+name+` PRIMARY KEY)`)
}

// ttl is the TTL in microseconds, as a parameter.
var ttl = TTL.Microseconds()

// barePgx runs the bare statements on the native pool, which prepares them once.
func barePgx(keeps bool, poll Poll) func(context.Context, *World) (*Lock, error) {
	return func(_ context.Context, w *World) (*Lock, error) {
		d, pool := dialectOf(w.Engine.Name), w.Engine.Pgx
		give := d.give(keeps)
		return polled(poll, func(ctx context.Context, key, id []byte) (bool, error) {
			var token int64
			err := pool.QueryRow(ctx, d.take, key, id, ttl).Scan(&token)
			if errors.Is(err, pgx.ErrNoRows) {
				return false, nil
			}
			return err == nil, err
		}, func(ctx context.Context, key, id []byte) error {
			tag, err := pool.Exec(ctx, give, key, id)
			return one(tag.RowsAffected(), err)
		}), nil
	}
}

func (d dialect) give(keeps bool) string {
	if keeps {
		return d.free
	}
	return d.remove
}

// bareSQL runs the bare statements through database/sql, prepared or not.
func bareSQL(prepared, keeps bool, poll Poll) func(context.Context, *World) (*Lock, error) {
	return bareOn(func(w *World) *sql.DB { return w.Engine.SQL }, prepared, keeps, poll)
}

func bareOn(on func(*World) *sql.DB, prepared, keeps bool, poll Poll) func(context.Context, *World) (*Lock, error) {
	return func(ctx context.Context, w *World) (*Lock, error) {
		d, pool := dialectOf(w.Engine.Name), on(w)
		take, closeTake, err := statement(ctx, pool, d.take, prepared)
		if err != nil {
			return nil, err
		}
		free, closeFree, err := statement(ctx, pool, d.give(keeps), prepared)
		if err != nil {
			return nil, errors.Join(err, closeTake())
		}
		returns := w.Engine.Name != sqlengine.MySQL && w.Engine.Name != sqlengine.MariaDB
		l := polled(poll, func(ctx context.Context, key, id []byte) (bool, error) {
			if !returns {
				r, err := take.exec(ctx, key, id, ttl)
				if victim(err) {
					return false, nil
				}
				if err != nil {
					return false, err
				}
				n, err := r.RowsAffected()
				return n > 0, err
			}
			var token int64
			err := take.row(ctx, key, id, ttl).Scan(&token)
			if errors.Is(err, sql.ErrNoRows) {
				return false, nil
			}
			return err == nil, err
		}, func(ctx context.Context, key, id []byte) error {
			r, err := free.exec(ctx, key, id)
			for victim(err) {
				r, err = free.exec(ctx, key, id)
			}
			if err != nil {
				return err
			}
			return one(r.RowsAffected())
		})
		l.Close = func(context.Context) error { return errors.Join(closeTake(), closeFree()) }
		return l, nil
	}
}

// victim reports whether InnoDB rolled the statement back to end a deadlock. Polling a key
// whose row is deleted and inserted again causes such deadlocks.
func victim(err error) bool {
	var refused *mysql.MySQLError
	return errors.As(err, &refused) && refused.Number == 1213
}

// stmt is a statement of database/sql, prepared or not.
type stmt struct {
	exec func(ctx context.Context, args ...any) (sql.Result, error)
	row  func(ctx context.Context, args ...any) *sql.Row
}

func statement(ctx context.Context, pool *sql.DB, text string, prepared bool) (stmt, func() error, error) {
	if !prepared {
		return stmt{
			exec: func(ctx context.Context, args ...any) (sql.Result, error) {
				return pool.ExecContext(ctx, text, args...)
			},
			row: func(ctx context.Context, args ...any) *sql.Row { return pool.QueryRowContext(ctx, text, args...) },
		}, func() error { return nil }, nil
	}
	p, err := pool.PrepareContext(ctx, text)
	if err != nil {
		return stmt{}, nil, err
	}
	return stmt{exec: p.ExecContext, row: p.QueryRowContext}, p.Close, nil
}

func one(n int64, err error) error {
	if err == nil && n != 1 {
		return fmt.Errorf("the lock was not there: %d rows", n)
	}
	return err
}

// How losers poll. never is for floors that run without contention.
var (
	never    = Poll{time.Hour, time.Hour}
	pollFast = Poll{time.Millisecond, 3 * time.Millisecond}
	pollSlow = Poll{5 * time.Millisecond, 15 * time.Millisecond}
)
