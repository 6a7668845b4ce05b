package keeper

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/dialect"
	"github.com/holdfast-go/holdfast/internal/dialect/lockstmt"
	"github.com/holdfast-go/holdfast/internal/lockname"
)

// announceBound is how long one try to write a row waits for SQLite's only writer. Its waits get
// longer and longer, and a process that hands a lock over among its calls writes all the time: of
// longer tries, some took a second.
const announceBound = 5 * time.Millisecond

// Announcement says how many calls wait for a lock. A watch announces itself as none.
type Announcement struct {
	Name    lockname.Name
	Waiting int
}

// Announce writes the rows of a waiter, which are of one owner, so that a release of these locks
// notifies this process.
func (s *Statements) Announce(ctx context.Context, waiter AttemptID, rows []Announcement) error {
	d := &s.Dialect.Leases
	args := []any{rows[0].Name.Owner, waiter[:], s.Holder, lockstmt.WaiterLife.Microseconds()}
	texts := make([]string, len(rows))
	for i, r := range rows {
		n := len(args) - 1 // without the owner
		args = append(args, r.Name.Row(), int64(r.Waiting))
		texts[i] = strings.NewReplacer("{name}", "$"+strconv.Itoa(n+1), "{count}", "$"+strconv.Itoa(n+2)).Replace(d.AnnounceRow)
	}
	stmt := s.Compile("announce", strings.ReplaceAll(d.Announce, "{rows}", strings.Join(texts, ", ")))
	for {
		err := s.OnConn(ctx, func(q core.Querier) error {
			return d.TakeBound.During(ctx, q, announceBound, func() error {
				_, err := stmt.Exec(ctx, q, args...)
				return err
			})
		})
		if d.TakeBound.Before == nil || s.Dialect.Classify(err) != dialect.Busy || ctx.Err() != nil {
			return err
		}
	}
}
