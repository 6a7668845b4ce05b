package limits

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/dialect"
	"github.com/holdfast-go/holdfast/internal/rowmap"
)

// Table is a table of the program's own, of which each row is a limit, such as an order with what was
// paid and what was refunded. The program inserts the rows, with 0 for what is used. Afterwards it may
// raise the limit with its own statement, and leaves the counters to this package.
//
// The limit and the counters are BIGINT NOT NULL, or smaller integers, and signed. A counter is at least as large as
// the limit's column, because MySQL and MariaDB without strict mode would cut it off. Add
// CHECK (reserved >= 0 AND captured >= 0 AND reserved + captured <= limit), with the table's own names,
// so that no other program can pass the limit.
type Table struct {
	// TableSpec names it. Its Key is the column that names the limit, such as order_no, and that of the owner, unless
	// the DB is SingleOwner: an integer, a UUID, or text or bytes that are compared exactly.
	holdfast.TableSpec
	// Owner is the one of these columns that holds the owner, such as merchant: required, unless the DB is
	// SingleOwner.
	Owner string
	// Limit, Reserved and Captured are the columns of the limit and of what is used, such as paid and
	// refunded. Without Reserved, amounts can only be taken at once, and nothing reserved counts: all programs that use
	// a row name the same columns, under one name, so add Reserved in a deployment of its own, before the first
	// reservation.
	Limit, Reserved, Captured string
	// Version, if given, is an integer column that goes up by one with every change, as package
	// optimistic needs it.
	Version string
}

// home is where the rows of limits are.
type home struct {
	own bool // in Holdfast's table
	row counterRow
	// The columns of the key of the program's own table. owner is nil if there is none.
	key, owner *column
}

func homeOf(ctx context.Context, c access.Catalog, owners core.Owners, spec *Table) (home, error) {
	if spec == nil {
		return home{own: true}, nil
	}
	if err := owners.Named("Table.Owner", spec.Owner != "", "name the column of the owner"); err != nil {
		return home{}, err
	}
	h, err := describe(ctx, c, spec)
	var in *holdfast.InputError
	if errors.As(err, &in) {
		return home{}, invalid(strings.Replace(in.Field, "TableSpec", "Table", 1), in.Problem)
	}
	return h, err
}

func describe(ctx context.Context, c access.Catalog, spec *Table) (h home, err error) {
	t, err := rowmap.Describe(ctx, c, spec.Schema, spec.Table)
	if err != nil {
		return home{}, err
	}
	key := slices.DeleteFunc(slices.Clone(spec.Key), func(name string) bool { return name == spec.Owner })
	switch {
	case spec.Owner != "" && len(key) == len(spec.Key):
		return home{}, invalid("Table.Owner", fmt.Sprintf("%q is not one of Table.Key", spec.Owner))
	case len(key) != 1:
		return home{}, invalid("Table.Key", fmt.Sprintf("%q is not the column that names the limit, and that of Table.Owner if there is one", spec.Key))
	}
	columns := []struct {
		field, name string
		optional    bool
		into        *string
	}{
		{"Limit", spec.Limit, false, &h.row.limit},
		{"Captured", spec.Captured, false, &h.row.captured},
		{"Reserved", spec.Reserved, true, &h.row.reserved},
		{"Version", spec.Version, true, &h.row.version},
		{"Owner", spec.Owner, true, &h.row.owner},
		{"Key", key[0], false, new(string)},
	}
	fields := map[string]string{}
	var limit int64 // the largest that fits
	for _, f := range columns {
		if f.name == "" && f.optional {
			continue
		}
		if other := fields[f.name]; other != "" {
			return home{}, invalid("Table."+f.field, fmt.Sprintf("column %q is also that of Table.%s", f.name, other))
		}
		fields[f.name] = f.field
		column, err := t.Column("Table."+f.field, f.name)
		if err != nil {
			return home{}, err
		}
		switch f.field {
		case "Limit":
			limit, err = number(c.Dialect, "Table.Limit", column, 0)
		case "Captured", "Reserved":
			_, err = number(c.Dialect, "Table."+f.field, column, limit)
		case "Version":
			_, err = number(c.Dialect, "Table.Version", column, 0)
		}
		if err != nil {
			return home{}, err
		}
		*f.into = c.Dialect.Ident(f.name)
	}
	h.row.table, h.row.key = t.Quoted, []string{c.Dialect.Ident(key[0])}
	err = h.keys(ctx, c.Dialect, t, spec.Owner, key[0])
	return h, err
}

// number refuses a column that does not hold whole numbers up to least. It returns the largest that fits.
func number(d *dialect.Dialect, field string, c rowmap.Column, least int64) (last int64, err error) {
	last = d.Rows.Version(strings.ToLower(c.Type)).Last
	switch {
	case last == 0:
		return 0, invalid(field, fmt.Sprintf("column %q is of type %s: use an integer of the currency's smallest unit, BIGINT", c.Name, c.Type))
	case !c.NotNull:
		return 0, invalid(field, fmt.Sprintf("column %q allows NULL, with which nothing would fit: declare it NOT NULL", c.Name))
	case last < least:
		return 0, invalid(field, fmt.Sprintf("column %q is of type %s, smaller than that of Table.Limit: declare it as large", c.Name, c.Type))
	}
	return last, nil
}

// keys checks the key of the table.
func (h *home) keys(ctx context.Context, d *dialect.Dialect, t *rowmap.Table, owner, limit string) error {
	names := []string{limit}
	if owner != "" {
		names = []string{owner, limit}
	}
	key, err := t.Key(ctx, names)
	if err != nil {
		return err
	}
	columns := make([]*column, len(key))
	for i, c := range key {
		if ok, why := d.Rows.Exact(c.Type, c.Collation); !ok {
			return invalid("TableSpec.Key", fmt.Sprintf("column %q: %s", c.Name, why))
		}
		typ := strings.ToLower(c.Type)
		v := d.Rows.Version(typ)
		columns[i] = &column{name: c.Name, uuid: typ == "uuid", number: v.Last > 0, bytes: v.Bytes && !v.Text, forms: t.Forms(key)}
		if v == (dialect.VersionType{}) {
			return invalid("TableSpec.Key", fmt.Sprintf("column %q is of type %s: use text, bytes, an integer or a UUID", c.Name, c.Type))
		}
	}
	h.key = columns[len(columns)-1]
	if len(columns) > 1 {
		h.owner = columns[0]
	}
	return nil
}

// find returns the values by which the row of a limit is found.
func (h *home) find(field, owner, limit string) (ofOwner, ofKey any, err error) {
	if h.owner != nil {
		if ofOwner, err = h.owner.value("owner", owner); err != nil {
			return nil, nil, err
		}
	}
	ofKey, err = h.key.value(field, limit)
	return ofOwner, ofKey, err
}

// column turns a text into a value of a column. Two texts must not be one value: the entries have the
// text.
type column struct {
	name                string
	number, uuid, bytes bool
	forms               rowmap.Forms
}

var uuidForm = regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)

func (c *column) value(field, text string) (any, error) {
	switch {
	case c.number:
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil || strconv.FormatInt(n, 10) != text {
			return nil, invalid(field, fmt.Sprintf("column %q holds integers: give one in decimal, without leading zeros", c.name))
		}
		return n, nil
	case c.uuid && !uuidForm.MatchString(text):
		return nil, invalid(field, fmt.Sprintf("column %q holds UUIDs: give one in lower case, with hyphens", c.name))
	case c.bytes:
		return c.forms.Of(c.name, []byte(text)), nil
	case !utf8.ValidString(text) || strings.ContainsRune(text, 0):
		return nil, invalid(field, fmt.Sprintf("column %q holds text: give UTF-8 without NUL bytes", c.name))
	}
	return c.forms.Of(c.name, text), nil
}
