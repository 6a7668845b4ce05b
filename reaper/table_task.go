package reaper

import (
	"context"
	"slices"
	"strconv"
	"strings"

	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/dialect"
	"github.com/holdfast-go/holdfast/internal/rowmap"
)

const (
	// tablePage is the maximum number of rows that one read of a Scan covers.
	tablePage = 5000
	// tableBatch is the maximum length of a list of keys. MariaDB turns a list of a thousand
	// keys into a join.
	tableBatch = 512
	// earliest is the earliest plausible expiry, in µs: 2000-01-01. A zero often means "never",
	// and with a wrong unit every time is near 1970.
	earliest = 946_684_800_000_000

	// Placeholders for the lists of a batch, whose lengths differ. The NUL keeps them apart
	// from the user's names, which may contain {tuples} but no NUL.
	listOfFirsts = "\x00firsts"
	listOfTuples = "\x00tuples"
)

// table is the task on one table of the program's own.
type table struct {
	spec    Table
	at      string
	dialect *dialect.Dialect
	found   *rowmap.Table
	key     []keyColumn
	expiry  *dialect.Expiry
	scale   int64 // µs per unit of the expiry column

	total, early core.Stmt
	// Index 0 is the first page, index 1 a later page. Without Scan only lists is used.
	pages, lists [2]core.Stmt
	write        string
}

// keyColumn is a column of the key, with the SQL that reads it and the SQL that binds its
// value.
type keyColumn struct{ name, kind, read, bind string }

func (t *table) name() string {
	if t.spec.Schema != "" {
		return t.spec.Schema + "." + t.spec.Table
	}
	return t.spec.Table
}

func (t *table) table() string { return t.at }

func (t *table) prepare(*pass, []row) error { return nil }

// most returns the maximum batch size.
func (t *table) most() int { return tableBatch }

// compare returns a condition on the expiry.
func (t *table) compare(op, p string) string {
	r := strings.NewReplacer("{c}", t.dialect.Ident(t.spec.Expires), "{p}", p)
	exact := t.exactly(op, p)
	switch {
	case t.expiry.Before == "":
	case op[0] == '<':
		return r.Replace(`{c} <= `+t.expiry.Before) + ` AND ` + exact
	default:
		return r.Replace(`{c} >= `+t.expiry.After) + ` AND ` + exact
	}
	return exact
}

// compile builds the statements. They share their first parameters: the cutoff, the earliest
// expiry, and the values of the conditions.
func (t *table) compile(index string) {
	d := t.dialect
	expires := d.Ident(t.spec.Expires)
	due := t.compare("<=", "$1") + ` AND ` + t.compare(">=", "$2") + t.conds(3)
	next := 3 + len(t.spec.Where)
	inner := append(slices.Clone(t.spec.Key), t.spec.Expires) // the columns that a page reads
	for _, c := range t.spec.Where {
		inner = append(inner, c.Column)
	}
	slices.Sort(inner)
	inner = d.Idents(slices.Compact(inner))
	names := make([]string, len(t.key))
	reads := make([]string, len(t.key))
	for i, k := range t.key {
		names[i], reads[i] = k.name, k.read
	}
	keys := strings.Join(names, ", ")
	read := strings.ReplaceAll(t.expiry.Read, "{c}", expires)
	columns := strings.Join(reads, ", ")
	compile := func(name, text string) core.Stmt { return d.Compile("sweep.table."+name, text) }

	t.total = compile("count", `SELECT COUNT(*), COALESCE(MIN(`+read+`), 0) FROM `+t.at+` WHERE `+due)
	t.early = compile("early", `SELECT 1 FROM `+t.at+` WHERE `+t.compare("<", "$1")+t.conds(2)+` LIMIT 1`)
	t.write = strings.NewReplacer("{table}", t.at, "{keys}", keys, "{first}", names[0], "{index}", d.Ident(index), "{due}", due, "{same}", t.same(),
		"{firsts}", listOfFirsts, "{tuples}", listOfTuples).Replace(d.Sweep.Table.Write)
	if t.spec.Scan {
		for i, behind := range []string{"", ` WHERE ` + t.behind(next)} {
			limit := `$` + strconv.Itoa(next+i*len(t.key))
			t.lists[i] = compile("find", `SELECT `+columns+`, `+read+` FROM (SELECT `+strings.Join(inner, ", ")+` FROM `+t.at+behind+
				` ORDER BY `+keys+` LIMIT `+strconv.Itoa(tablePage)+`) page WHERE `+due+` ORDER BY `+keys+` LIMIT `+limit)
		}
		t.pages[0] = compile("page", `SELECT `+columns+` FROM `+t.at+` ORDER BY `+keys+` LIMIT 1 OFFSET $1`)
		t.pages[1] = compile("page", `SELECT `+columns+` FROM `+t.at+` WHERE `+t.behind(2)+` ORDER BY `+keys+` LIMIT 1 OFFSET $1`)
		return
	}
	tail := ` ORDER BY ` + expires + `, ` + keys + ` LIMIT $`
	from := `SELECT ` + columns + `, ` + read + ` FROM ` + t.at + ` WHERE ` + due
	p := `$` + strconv.Itoa(next)
	behind := ` AND ` + t.compare(">=", p) + ` AND (` + t.exactly(">", p) + ` OR ` + t.behind(next+1) + `)`
	t.lists[0] = compile("find", from+tail+strconv.Itoa(next))
	t.lists[1] = compile("find", from+behind+tail+strconv.Itoa(next+1+len(t.key)))
}

// conds returns the user's conditions. Their parameters begin at $first.
func (t *table) conds(first int) string {
	list := make([]rowmap.Condition, len(t.spec.Where))
	for i, c := range t.spec.Where {
		list[i] = rowmap.Condition(c)
	}
	if text := t.found.Conditions(list, first); text != "" {
		return ` AND ` + text
	}
	return ""
}

// exactly returns the comparison without the part that makes the index usable.
func (t *table) exactly(op, p string) string {
	return strings.NewReplacer("{c}", t.dialect.Ident(t.spec.Expires), "{p}", p).Replace(t.expiry.Left + ` ` + op + ` ` + t.expiry.Right)
}

// behind returns the condition for keys after the key whose parameters begin at $first.
func (t *table) behind(first int) string {
	names := make([]string, len(t.key))
	for i, k := range t.key {
		names[i] = k.name
	}
	return rowmap.After(names, func(i int) string {
		return strings.ReplaceAll(t.key[i].bind, "{p}", "$"+strconv.Itoa(first+i))
	})
}

func (t *table) same() string {
	parts := make([]string, len(t.key))
	for i, k := range t.key {
		parts[i] = `doomed.` + k.name + ` = picked.` + k.name
	}
	return strings.Join(parts, " AND ")
}

// args returns the parameters that begin every statement.
func (t *table) args(cutoff int64) []any {
	args := []any{t.whole(cutoff - t.spec.Grace.Microseconds()), t.whole(earliest)}
	for _, c := range t.spec.Where {
		args = append(args, c.Value)
	}
	return args
}

// whole converts µs to units of the expiry column, rounded down.
func (t *table) whole(micros int64) int64 {
	n := micros / t.scale
	if micros%t.scale < 0 {
		n--
	}
	return n
}

// plausible refuses a table with expiries before 2000. With Scan it does not check, because the
// check would read the whole table.
func (t *table) plausible(ctx context.Context, q core.Querier) error {
	if t.spec.Scan {
		return nil
	}
	var one int
	early, err := t.early.QueryRow(ctx, q, []any{&one}, t.args(earliest)[1:]...)
	if err == nil && early {
		err = invalid("Table.Expires", "there are times before 2000, which are never due: is Table.Unit right? Where such a number is meant as never, use NULL, or add a condition that leaves it out")
	}
	return err
}

func (t *table) count(ctx context.Context, q core.Querier, cutoff int64) (rows, oldest int64, err error) {
	_, err = t.total.QueryRow(ctx, q, []any{&rows, &oldest}, t.args(cutoff)...)
	return rows, oldest * t.scale, err
}

func (t *table) find(ctx context.Context, q core.Querier, cutoff int64, after *row, limit int) (found []row, next *row, err error) {
	args, n := t.args(cutoff), 0
	var end *row
	if t.spec.Scan {
		if end, err = t.page(ctx, q, after); err != nil {
			return nil, nil, err
		}
	}
	if after != nil {
		if n = 1; !t.spec.Scan {
			args = append(args, after.expired/t.scale)
		}
		args = append(args, after.values...)
	}
	rows, err := t.lists[n].Query(ctx, q, append(args, limit)...)
	if err != nil {
		return nil, nil, err
	}
	found, err = scan(rows, func(f *row) []any { return append(t.dest(f), &f.expired) })
	for i := range found {
		found[i].expired *= t.scale
		t.settle(&found[i])
	}
	if next = following(found, limit); next == nil {
		next = end
	}
	return found, next, err
}

// page returns the last row of the page after after. It returns nil at the end of the table.
func (t *table) page(ctx context.Context, q core.Querier, after *row) (*row, error) {
	args, n := []any{tablePage - 1}, 0
	if after != nil {
		args, n = append(args, after.values...), 1
	}
	end := &row{}
	more, err := t.pages[n].QueryRow(ctx, q, t.dest(end), args...)
	if err != nil || !more {
		return nil, err
	}
	t.settle(end)
	return end, nil
}

// dest allocates scan targets for the key's values. settle replaces each target with its value, and
// nil bytes with empty ones, which are not NULL.
func (t *table) dest(f *row) []any {
	f.values = make([]any, len(t.key))
	for i, k := range t.key {
		switch k.kind {
		case "integer", "any":
			f.values[i] = new(any)
		case "text":
			f.values[i] = new(string)
		default:
			f.values[i] = new([]byte)
		}
	}
	return slices.Clone(f.values)
}

func (t *table) settle(f *row) {
	for i, v := range f.values {
		switch v := v.(type) {
		case *any:
			f.values[i] = *v
			if b, bytes := (*v).([]byte); bytes {
				f.values[i] = append([]byte{}, b...)
			}
		case *string:
			f.values[i] = *v
		case *[]byte:
			f.values[i] = append([]byte{}, *v...)
		}
	}
}

// clear deletes a batch. It pads the list of keys to a power of two, as listStmt does. The
// engine decides the order of the keys.
func (t *table) clear(ctx context.Context, q core.Querier, cutoff int64, found []row) (int64, error) {
	args := t.args(cutoff)
	found = core.Pad(found)
	firsts, tuples := make([]string, len(found)), make([]string, len(found))
	for i, f := range found {
		one := make([]string, len(t.key))
		for j, k := range t.key {
			args = append(args, f.values[j])
			one[j] = strings.ReplaceAll(k.bind, "{p}", "$"+strconv.Itoa(len(args)))
		}
		firsts[i], tuples[i] = one[0], "("+strings.Join(one, ", ")+")"
	}
	text := strings.NewReplacer(listOfFirsts, strings.Join(firsts, ", "), listOfTuples, strings.Join(tuples, ", ")).Replace(t.write)
	r, err := t.dialect.Compile("sweep.table.write", text).Exec(ctx, q, args...)
	return r.Affected, err
}
