package holdfastpgx

import (
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// errNotReplicated has no SQLSTATE, so a commit that ends with it is unknown.
var errNotReplicated = errors.New("the server stopped waiting for its synchronous standby: the commit stands there and may be lost in a failover")

const notReplicated = "holdfast: not replicated"

// WatchNotices makes a commit whose wait for the synchronous standby was
// cancelled an unknown one. PostgreSQL answers such a COMMIT with success and
// a warning, and the transaction was seen to be gone after a failover. Call it
// on the configuration before the pool is made:
//
//	config, err := pgxpool.ParseConfig(dsn)
//	holdfastpgx.WatchNotices(config.ConnConfig)
//	pool, err := pgxpool.NewWithConfig(ctx, config)
//
// It is needed with synchronous_standby_names only. An OnNotice that is set
// already goes on being called. A pool of database/sql has no such way.
func WatchNotices(config *pgx.ConnConfig) {
	before := config.OnNotice
	config.OnNotice = func(c *pgconn.PgConn, n *pgconn.Notice) {
		// The name of the server's routine, because messages are translated.
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
