package reaper

import (
	"context"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/dialect"
)

// lockPage is the maximum number of lock rows, due or not, that one read covers. No index shows
// which rows are due.
const lockPage = 5000

// locks is the task on the rows of locks. A key's fencing tokens must rise even after its row
// was deleted. So the token of a new row exceeds the floor, and the floor is raised to a
// batch's tokens before the batch is deleted.
type locks struct {
	at, floorAt                           string
	grace                                 int64 // µs
	total, page, list, rest, floor, raise core.Stmt
	write                                 listStmt
}

func newLocks(table, floor string, grace time.Duration, d *dialect.Dialect) *locks {
	sql := &d.Sweep.Locks
	text := strings.NewReplacer("{locks}", table, "{floor}", floor).Replace
	compile := func(name, s string) core.Stmt { return d.Compile("sweep.locks."+name, text(s)) }
	return &locks{
		at: table, floorAt: floor, grace: grace.Microseconds(),
		total: compile("count", sql.Count),
		page:  compile("page", sql.Page), list: compile("find", sql.Find), rest: compile("find", sql.Rest),
		floor: compile("floor", sql.Floor), raise: compile("raise", sql.Raise),
		write: listStmt{dialect: d, name: "sweep.locks.write", text: text(sql.Write), group: sql.Group},
	}
}

func (t *locks) name() string  { return "locks" }
func (t *locks) table() string { return t.at }

func (t *locks) count(ctx context.Context, q core.Querier, cutoff int64) (rows, oldest int64, err error) {
	_, err = t.total.QueryRow(ctx, q, []any{&rows, &oldest}, cutoff-t.grace)
	return rows, oldest, err
}

// find reads one page. Perhaps none of its rows is due.
func (t *locks) find(ctx context.Context, q core.Querier, cutoff int64, after *row, limit int) (found []row, next *row, err error) {
	if after == nil {
		after = &row{key: []byte{}}
	}
	end := row{}
	more, err := t.page.QueryRow(ctx, q, []any{&end.owner, &end.key}, after.owner, after.key, lockPage-1)
	if err != nil {
		return nil, nil, err
	}
	stmt, args := t.rest, []any{cutoff - t.grace, after.owner, after.key, limit}
	if more {
		stmt, args = t.list, append(args, end.owner, end.key)
	}
	rows, err := stmt.Query(ctx, q, args...)
	if err != nil {
		return nil, nil, err
	}
	found, err = scan(rows, func(f *row) []any { return []any{&f.owner, &f.key, &f.expired, &f.token} })
	if next = following(found, limit); next == nil && more {
		next = &end
	}
	return found, next, err
}

// prepare raises the floor in its own transaction. An insert that has read the lower floor
// holds a share lock on it until it commits, so the raise waits for that insert. A later insert
// reads the raised floor. The delete begins after the raise. Raising the floor in the delete's
// transaction would be as safe, but every insert of a new key would wait until the batch is
// deleted. On MariaDB, where the insert does not wait, it would fail.
func (t *locks) prepare(p *pass, found []row) error {
	most := greatest(found)
	if p.floor >= most {
		return nil
	}
	var floor int64
	err := p.again(p.ctx, func() error {
		return p.transact(p.ctx, func(ctx context.Context, q core.Querier) error {
			raised, err := t.raise.Exec(ctx, q, most)
			if err != nil || raised.Affected > 0 {
				floor = most
				return err
			}
			there, err := t.floor.QueryRow(ctx, q, []any{&floor}) // the floor is as high or higher
			if err == nil && !there {
				err = &holdfast.SchemaError{Table: t.floorAt}
			}
			return err
		})
	})
	if err == nil {
		p.floor = floor
	}
	return err
}

func (t *locks) clear(ctx context.Context, q core.Querier, cutoff int64, found []row) (int64, error) {
	return t.write.exec(ctx, q, found, cutoff-t.grace, greatest(found))
}

func greatest(found []row) int64 {
	most := found[0].token
	for _, f := range found {
		most = max(most, f.token)
	}
	return most
}
