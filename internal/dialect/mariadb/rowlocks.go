package mariadb

import (
	"strconv"
	"time"

	"github.com/holdfast-go/holdfast/internal/dialect"
)

// rowLocks returns MySQL's SQL with two differences: MariaDB bounds a single statement by SET
// STATEMENT, and its NOWAIT fails with a lock wait timeout, which ends the transaction if
// innodb_rollback_on_timeout is on.
func rowLocks(l dialect.RowLocks) dialect.RowLocks {
	l.Make = bounded(time.Second) + l.Make
	l.MakeBound = dialect.Setting{}
	l.Select = func(bound time.Duration) string { return bounded(bound) + `SELECT` }
	l.TryClause = ` FOR UPDATE SKIP LOCKED`
	l.Left = dialect.LeftWaits
	return l
}

// bounded bounds the statement behind it, which is exact to the microsecond.
func bounded(d time.Duration) string {
	return `SET STATEMENT max_statement_time = ` + strconv.FormatFloat(max(d, time.Millisecond).Seconds(), 'f', 6, 64) +
		`, innodb_lock_wait_timeout = 3600 FOR `
}
