// Package settle feeds the lines of a settlement file, in bare statements and with Holdfast's
// business rows. A batch of lines becomes rows, each line once even if the file is fed again.
package settle

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/adapters/holdfastsql"
	"github.com/holdfast-go/holdfast/bench/internal/sqlengine"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/idempotency/businessrow"
)

// Lines is the number of lines in one transaction.
const Lines = 1000

// Line is one line of the file.
type Line struct {
	No       string `db:"no"`
	Merchant string `db:"merchant"`
	Cents    int64  `db:"cents"`
}

// Feed stores lines and returns how many were new.
type Feed func(ctx context.Context, lines []Line) (fresh int, err error)

// Tables creates the tables of the lines.
func Tables(ctx context.Context, e *sqlengine.Engine) error {
	table := map[string]string{
		sqlengine.Postgres: `(no text PRIMARY KEY, merchant text NOT NULL, cents bigint NOT NULL)`,
		sqlengine.SQLite:   `(no TEXT NOT NULL PRIMARY KEY, merchant TEXT NOT NULL, cents INTEGER NOT NULL)`,
	}[e.Name]
	if table == "" {
		table = `(no VARBINARY(64) NOT NULL PRIMARY KEY, merchant VARCHAR(64) NOT NULL, cents BIGINT NOT NULL) ENGINE=InnoDB`
	}
	return e.Exec(ctx, `CREATE TABLE settlements `+table, `CREATE TABLE bare_settlements `+table)
}

// Ours is Holdfast's batch; observe is nil while time is measured.
func Ours(ctx context.Context, e *sqlengine.Engine, observe holdfast.Observer) (Feed, error) {
	db, err := holdfastsql.Open(ctx, e.SQL, holdfast.Options{SingleOwner: true, Observers: []holdfast.Observer{observe}})
	if err != nil {
		return nil, err
	}
	table, err := businessrow.New[Line](ctx, db, holdfast.TableSpec{Table: "settlements", Key: []string{"no"}},
		businessrow.Options{Compare: []string{"merchant", "cents"}})
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, lines []Line) (fresh int, err error) {
		err = db.InTx(ctx, func(ctx context.Context, tx *sql.Tx) error {
			fresh = 0
			verdicts, err := table.ClaimAllTx(ctx, tx, lines)
			for _, v := range verdicts {
				if v.Err != nil {
					return v.Err
				}
				if v.Outcome == idempotency.Executed {
					fresh++
				}
			}
			return err
		})
		return fresh, err
	}, nil
}

// Bare is the minimum that finds out which lines are new: one insert of all lines that skips
// existing ones, and then a read of those, to compare them.
func Bare(e *sqlengine.Engine) Feed {
	insert, read := bareTexts(e.Name, Lines)
	return func(ctx context.Context, lines []Line) (fresh int, err error) {
		if len(lines) != Lines {
			return 0, fmt.Errorf("%d lines", len(lines))
		}
		tx, err := e.SQL.BeginTx(ctx, nil)
		if err != nil {
			return 0, err
		}
		if fresh, err = bareFeed(ctx, tx, insert, read, lines); err != nil {
			return 0, errors.Join(err, tx.Rollback())
		}
		return fresh, tx.Commit()
	}
}

func bareFeed(ctx context.Context, tx *sql.Tx, insert, read string, lines []Line) (int, error) {
	args := make([]any, 0, 3*len(lines))
	numbers := make([]any, 0, len(lines))
	byNo := make(map[string]Line, len(lines))
	for _, l := range lines {
		args = append(args, l.No, l.Merchant, l.Cents)
		numbers = append(numbers, l.No)
		byNo[l.No] = l
	}
	r, err := tx.ExecContext(ctx, insert, args...)
	if err != nil {
		return 0, err
	}
	n, err := r.RowsAffected()
	if err != nil || int(n) == len(lines) {
		return int(n), err
	}
	rows, err := tx.QueryContext(ctx, read, numbers...)
	if err != nil {
		return 0, err
	}
	defer rows.Close()
	for rows.Next() {
		var l Line
		if err := rows.Scan(&l.No, &l.Merchant, &l.Cents); err != nil {
			return 0, err
		}
		if byNo[l.No] != l {
			return 0, fmt.Errorf("line %s is another one", l.No)
		}
	}
	return int(n), rows.Err()
}

func bareTexts(engine string, n int) (insert, read string) {
	var values, marks strings.Builder
	for i := range n {
		if i > 0 {
			values.WriteString(", ")
			marks.WriteString(", ")
		}
		if engine == sqlengine.Postgres {
			fmt.Fprintf(&values, "($%d, $%d, $%d)", 3*i+1, 3*i+2, 3*i+3)
			fmt.Fprintf(&marks, "$%d", i+1)
			continue
		}
		values.WriteString("(?, ?, ?)")
		marks.WriteString("?")
	}
	conflict := ` ON CONFLICT (no) DO NOTHING`
	if engine == sqlengine.MySQL || engine == sqlengine.MariaDB {
		conflict = ` ON DUPLICATE KEY UPDATE no = bare_settlements.no`
	}
	return `INSERT INTO bare_settlements (no, merchant, cents) VALUES ` + values.String() + conflict,
		`SELECT no, merchant, cents FROM bare_settlements WHERE no IN (` + marks.String() + `)`
}
