package mariadb

import (
	"strconv"
	"time"

	"github.com/holdfast-go/holdfast/internal/dialect"
)

// rowLocks are MySQL's, but MariaDB bounds single statements in a way of its
// own, and its NOWAIT is a lock wait timeout, which innodb_rollback_on_timeout
// turns into the end of the transaction.
func rowLocks(l dialect.RowLocks) dialect.RowLocks {
	bounded := func(d time.Duration) string {
		return `SET STATEMENT max_statement_time = ` + strconv.FormatFloat(max(d, time.Millisecond).Seconds(), 'f', 6, 64) +
			`, innodb_lock_wait_timeout = 3600 FOR `
	}
	l.Make = bounded(time.Second) + l.Make
	l.MakeBound = dialect.Setting{}
	l.Select = func(bound time.Duration) string { return bounded(bound) + `SELECT` }
	l.TryClause = ` FOR UPDATE SKIP LOCKED`
	l.Left = dialect.LeftWaits
	return l
}
