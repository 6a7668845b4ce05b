package holdfastsql

import (
	"database/sql/driver"

	"github.com/holdfast-go/holdfast/internal/stdhandle"
)

// Connector wraps a driver's connector for a pool that Holdfast and the program share:
//
//	pool := sql.OpenDB(holdfastsql.Connector(connector))
//
// Holdfast then takes fewer round trips. On MySQL and MariaDB a session keeps the setting that protects
// a transaction of Holdfast's from one of them to the next, and a transaction begins with its first
// statement; after an error that has ended the transaction (1213), the program's further statements
// in it fail with [holdfast.ErrTxLost]. On MySQL, MariaDB and SQLite each connection keeps all of
// Holdfast's statements prepared. The session is put back as it was before another user gets it from
// the pool, and set again after a function of Holdfast's has sent another statement than a query or a
// write of rows.
//
// Everything else is passed to the driver as it is. Programs that need the driver's own connection, in
// [database/sql.Conn.Raw], call its method Unwrap() driver.Conn.
//
// On a Galera node, Vitess and TiDB nothing is kept.
func Connector(c driver.Connector) driver.Connector { return stdhandle.Connector(c) }
