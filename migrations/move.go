package migrations

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/core"
)

// generated are the columns that the engine computes, where the files have them: no INSERT may name one.
var generated = []string{"records.due_at"}

// PrintOwnerMove writes the statements that move the rows of one owner to another database with
// Holdfast's tables, of the same engine or, from MySQL, of Vitess or TiDB: first the read that returns
// 0 when the owner has no live lease and no operation in progress, then the read, the insert and the
// delete of each table, and the read and the raise of the floor of fencing tokens. Each has its
// parameters in the driver's form; the reads and deletes have one, the owner. The order and what else
// there is to do: docs/howto/scale-out.md. The rows of package audit stay where they are: they are links
// of a chain.
//
// Errors: [holdfast.ErrInvalid].
func PrintOwnerMove(w io.Writer, e holdfast.Engine, opts ...holdfast.Options) error {
	o, err := one(opts)
	if err != nil {
		return err
	}
	l, err := newLayout(e, o)
	if err != nil {
		return err
	}
	var b strings.Builder
	add := func(comment string, texts ...string) {
		fmt.Fprintf(&b, "-- %s\n", comment)
		for _, text := range texts {
			text = strings.NewReplacer("{now}", l.dialect.Now, "{floor}", l.table("floor")).Replace(text)
			b.WriteString(core.Compile("move", text, l.dialect.QuestionMarks).Text + ";\n")
		}
		b.WriteByte('\n')
	}
	live := func(table, holds, until string) string {
		return `(SELECT COUNT(*) FROM ` + l.table(table) + ` WHERE owner = $0` + holds + ` AND ` + until + ` > {now})`
	}
	add("wait at the source until it returns 0", `SELECT `+live("locks", ` AND attempt IS NOT NULL`, "expires_at")+` + `+live("tickets", ``, "expires_at")+
		` + `+live("staged", ` AND attempt IS NOT NULL`, "due_at")+` + `+live("outbox", ` AND attempt IS NOT NULL`, "due_at"))
	for _, table := range sharded {
		columns, name := l.copied(table), l.table(table)
		params := make([]string, len(columns))
		for i := range params {
			params[i] = fmt.Sprint("$", i+1)
		}
		list := strings.Join(l.dialect.Idents(columns), ", ")
		add(l.prefix+table+": read at the source, insert at the target, delete at the source when no client asks there",
			`SELECT `+list+` FROM `+name+` WHERE owner = $0`,
			`INSERT INTO `+name+` (`+list+`) VALUES (`+strings.Join(params, ", ")+`)`,
			`DELETE FROM `+name+` WHERE owner = $0`)
	}
	add("the floor of fencing tokens: read at the source, raise at the target, on each shard", l.dialect.Sweep.Locks.Floor, l.dialect.Sweep.Locks.Raise)
	_, err = io.WriteString(w, strings.TrimSuffix(b.String(), "\n"))
	return err
}

// copied lists the columns of a table that a copy of its rows names.
func (l *layout) copied(table string) (columns []string) {
	for line := range strings.SplitSeq(l.dialect.Admission.Golden, "\n") {
		f := strings.Fields(line)
		if len(f) > 3 && f[0] == table && f[1] == "column" && !slices.Contains(generated, table+"."+f[2]) {
			columns = append(columns, f[2])
		}
	}
	return columns
}
