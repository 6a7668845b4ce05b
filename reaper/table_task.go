package reaper

import (
	"context"
	"slices"
	"strconv"
	"strings"

	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/dialect"
)

const (
	// tablePage is how many rows one read of a Scan goes through at most.
	tablePage = 5000
	// tableBatch is the longest list of keys. MariaDB turns one of a thousand
	// into a join.
	tableBatch = 512
	// earliest is when a row can have expired, in µs: 2000-01-01. A zero is often
	// meant as never, and with a wrong unit every time is near 1970.
	earliest = 946_684_800_000_000

	// What stands for the lists of a batch, whose length differs: no name of the
	// user's has a NUL in it, though it may have {tuples}.
	listOfFirsts = "\x00firsts"
	listOfTuples = "\x00tuples"
)

// table is the task on a table of the user's own.
type table struct {
	spec    TableSpec
	at      string
	dialect *dialect.Dialect
	key     []keyColumn
	expiry  *dialect.Expiry
	scale   int64 // µs in one of what the column counts

	total, early core.Stmt
	// The first page and those behind another one; without Scan only the lists.
	pages, lists [2]core.Stmt
	write        string
}

// keyColumn is a column of the key: how it is read and how its value is sent.
type keyColumn struct{ name, kind, read, bind string }

func (t *table) name() string {
	if t.spec.Schema != "" {
		return t.spec.Schema + "." + t.spec.Table
	}
	return t.spec.Table
}

func (t *table) table() string { return t.at }

func (t *table) prepare(*pass, []row) error { return nil }

// most is the longest batch.
func (t *table) most() int { return tableBatch }

// compare is a condition on the expiry.
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

// compile writes the statements. Their first parameters are the same: when rows
// are due, the earliest expiry there is, and the conditions' values.
func (t *table) compile(index string) {
	d := t.dialect
	expires := d.Ident(t.spec.Expires)
	due := t.compare("<=", "$1") + ` AND ` + t.compare(">=", "$2") + t.conds(3)
	next := 3 + len(t.spec.Where)
	inner := append(slices.Clone(t.spec.Key), t.spec.Expires) // what a page has to have
	for _, c := range t.spec.Where {
		inner = append(inner, c.column)
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

// conds are the user's own, with the parameters from $first on.
func (t *table) conds(first int) string {
	var b strings.Builder
	for i, c := range t.spec.Where {
		b.WriteString(` AND ` + t.dialect.Ident(c.column) + ` ` + c.operator + ` $` + strconv.Itoa(first+i))
	}
	return b.String()
}

// exactly compares without what serves the index.
func (t *table) exactly(op, p string) string {
	return strings.NewReplacer("{c}", t.dialect.Ident(t.spec.Expires), "{p}", p).Replace(t.expiry.Left + ` ` + op + ` ` + t.expiry.Right)
}

// behind is the condition on keys that come after that of the parameters from
// $first on. Each column is bounded by itself, as indexes want it.
func (t *table) behind(first int) string {
	text := ""
	for i, k := range slices.Backward(t.key) {
		p := strings.ReplaceAll(k.bind, "{p}", "$"+strconv.Itoa(first+i))
		if text == "" {
			text = k.name + ` > ` + p
		} else {
			text = k.name + ` >= ` + p + ` AND (` + k.name + ` > ` + p + ` OR ` + text + `)`
		}
	}
	return text
}

func (t *table) same() string {
	parts := make([]string, len(t.key))
	for i, k := range t.key {
		parts[i] = `doomed.` + k.name + ` = picked.` + k.name
	}
	return strings.Join(parts, " AND ")
}

// args are the parameters that all statements begin with.
func (t *table) args(cutoff int64) []any {
	args := []any{t.whole(cutoff - t.spec.Grace.Microseconds()), t.whole(earliest)}
	for _, c := range t.spec.Where {
		args = append(args, c.value)
	}
	return args
}

// whole is how many whole ones of what the column counts have passed.
func (t *table) whole(micros int64) int64 {
	n := micros / t.scale
	if micros%t.scale < 0 {
		n--
	}
	return n
}

// plausible refuses a table with times before 2000, where that costs little.
func (t *table) plausible(ctx context.Context, q core.Querier) error {
	if t.spec.Scan {
		return nil
	}
	var one int
	early, err := t.early.QueryRow(ctx, q, []any{&one}, t.args(earliest)[1:]...)
	if err == nil && early {
		err = invalid("TableSpec.Expires", "there are times before 2000, which are never due: is TableSpec.Unit right? Where such a number is meant as never, use NULL, or add a condition that leaves it out")
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

// page is the last row of the page that begins behind after; nil is the table's end.
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

// dest makes places for the key's values; settle puts the values there instead.
func (t *table) dest(f *row) []any {
	f.values = make([]any, len(t.key))
	for i, k := range t.key {
		switch k.kind {
		case "integer":
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
		case *string:
			f.values[i] = *v
		case *[]byte:
			f.values[i] = append([]byte{}, *v...) // an empty one is not NULL
		}
	}
}

// clear writes a list as long as a power of two, as listStmt does. The order of
// the keys is the engine's to know.
func (t *table) clear(ctx context.Context, q core.Querier, cutoff int64, found []row) (int64, error) {
	args := t.args(cutoff)
	n := listLength(len(found))
	firsts, tuples := make([]string, n), make([]string, n)
	for i := range n {
		one := make([]string, len(t.key))
		for j, k := range t.key {
			args = append(args, found[min(i, len(found)-1)].values[j])
			one[j] = strings.ReplaceAll(k.bind, "{p}", "$"+strconv.Itoa(len(args)))
		}
		firsts[i], tuples[i] = one[0], "("+strings.Join(one, ", ")+")"
	}
	text := strings.NewReplacer(listOfFirsts, strings.Join(firsts, ", "), listOfTuples, strings.Join(tuples, ", ")).Replace(t.write)
	r, err := t.dialect.Compile("sweep.table.write", text).Exec(ctx, q, args...)
	return r.Affected, err
}
