package holdfastpgx

import (
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// errNotReplicated has no SQLSTATE, so a commit that ends with it counts as unknown.
var errNotReplicated = errors.New("the server stopped waiting for its synchronous standby: the commit stands there and may be lost in a failover")

const notReplicated = "holdfast: not replicated"

// WatchNotices makes Holdfast treat a commit, also that of a single statement, as unknown if its
// wait for the synchronous standby was cancelled. PostgreSQL answers such a COMMIT with success and a warning, but the
// transaction can be gone after a failover, as tests have shown. Call WatchNotices on the
// configuration before creating the pool:
//
//	config, err := pgxpool.ParseConfig(dsn)
//	holdfastpgx.WatchNotices(config.ConnConfig)
//	pool, err := pgxpool.NewWithConfig(ctx, config)
//
// It is needed only with synchronous_standby_names. An OnNotice that is already set is still
// called. In a pool of database/sql, with [Connector], only transactions whose BEGIN goes with a
// statement are watched: those of Do, not the single statements, fair locks and transactions with Options.OwnerSetting.
func WatchNotices(config *pgx.ConnConfig) {
	before := config.OnNotice
	config.OnNotice = func(c *pgconn.PgConn, n *pgconn.Notice) {
		// Compare the server's routine, because messages are translated.
		if n.Routine == "SyncRepWaitForLSN" {
			c.CustomData()[notReplicated] = true
		}
		if before != nil {
			before(c, n)
		}
	}
}

// replicated takes the mark that a notice left on the connection.
func replicated(c *pgx.Conn) error {
	data := c.PgConn().CustomData()
	if data[notReplicated] == nil {
		return nil
	}
	delete(data, notReplicated)
	return errNotReplicated
}
