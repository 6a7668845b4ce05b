package doctor

import (
	"context"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/core"
)

// Block is a session that waits for a lock, and one that has it. A session that waits for several
// others has a Block for each.
type Block struct {
	// Waiter is the id of the session that waits, Waited how long it has waited.
	Waiter string
	Waited time.Duration
	// Blocker is the session that has the lock. It may wait itself, for a session of another Block.
	Blocker holdfast.Blocker
}

// maxBlocks is the maximum number of rows that Blocked reads.
const maxBlocks = 1000

// Blocked returns which sessions of the current database wait for whom at this moment, for locks of rows and, on
// PostgreSQL, of running operations: those who have waited longest come first, at most a thousand.
// A lease that is held blocks no session: see [github.com/holdfast-go/holdfast/sqllock.Locker.List].
// On PostgreSQL a role sees of other roles' sessions only their numbers and users, and with pg_monitor all. MySQL wants SELECT on
// performance_schema, and MariaDB PROCESS. Both count Waited in seconds.
//
// Errors: [holdfast.ErrUnsupported] on SQLite, TiDB and Vitess, which do not tell; the driver's.
func Blocked[Tx any](ctx context.Context, db *holdfast.DB[Tx]) ([]Block, error) {
	a := access.Of(db)
	query := a.Dialect.Doctor.Blocked
	if query == "" {
		return nil, &holdfast.UnsupportedError{Engine: db.Product(), Check: "blocked", What: "who blocks whom", Problem: "the engine does not tell"}
	}
	rows, err := a.Pool.Query(ctx, query, maxBlocks)
	if err != nil {
		return nil, fmt.Errorf("doctor: reading who waits for whom (the role needs %s): %w", a.Dialect.Doctor.BlockedNeeds, err)
	}
	return core.Collect(rows, func(row core.Row) (b Block, err error) {
		var waited int64
		by, err := core.ScanBlocker(row, &b.Waiter, &waited)
		b.Blocker = holdfast.Blocker(by)
		b.Waited = time.Duration(waited) * time.Microsecond
		return b, err
	})
}
