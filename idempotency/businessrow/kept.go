package businessrow

import (
	"database/sql/driver"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/holdfast-go/holdfast/internal/rowmap"
)

// kept knows which values the columns store unchanged, so that a claim reads its row back only if it must:
// for a value of the key that its column may change, and for a compared one that is finer, or longer, than
// those that were read back before.
type kept struct {
	key     []column
	columns []column       // that are compared
	finest  []atomic.Int64 // by column: the finest value that was read back; -1 for none
}

// column is a column whose type does not keep every value.
type column struct {
	field  rowmap.Fields // of this column alone
	kind   columnKind
	length int // declared
}

type columnKind int

const (
	other columnKind = iota // read back each time
	instant
	decimal
	varying
	double
	boolean
)

var columnKinds = map[string]columnKind{
	"timestamp": instant, "timestamptz": instant, "datetime": instant, "numeric": decimal, "decimal": decimal,
	"varchar": varying, "varbinary": varying, "float8": double, "double": double, "bool": boolean, "boolean": boolean,
}

func newKept(table *rowmap.Table, key, compare rowmap.Fields) (k kept, err error) {
	if k.key, err = columnsOf(table, "TableSpec.Key", key); err != nil {
		return k, err
	}
	if k.columns, err = columnsOf(table, "Options.Compare", compare); err != nil {
		return k, err
	}
	k.finest = make([]atomic.Int64, len(k.columns))
	for i := range k.finest {
		k.finest[i].Store(-1)
	}
	return k, nil
}

// columnsOf returns those of fields whose type does not keep every value.
func columnsOf(table *rowmap.Table, argument string, fields rowmap.Fields) (columns []column, err error) {
	for i, name := range fields.Names() {
		c, err := table.Column(argument, name)
		if err != nil {
			return nil, err
		}
		if kind := strings.ToLower(c.Type); !slices.Contains(keepers, kind) {
			columns = append(columns, column{fields[i : i+1], columnKinds[kind], c.Length})
		}
	}
	return columns, nil
}

// surely reports whether the columns keep the values of row.
func (k *kept) surely(row reflect.Value, forms rowmap.Forms) bool {
	for _, c := range k.key {
		if !c.fits(row, forms) {
			return false
		}
	}
	for i, c := range k.columns {
		if fine, known := c.fineness(row, forms); !known || fine > k.finest[i].Load() {
			return false
		}
	}
	return true
}

// saw notes that the columns have kept the values of row.
func (k *kept) saw(row reflect.Value, forms rowmap.Forms) {
	for i, c := range k.columns {
		if fine, known := c.fineness(row, forms); known && fine > k.finest[i].Load() {
			k.finest[i].Store(fine) // a lower one of another call only costs a read
		}
	}
}

// fits reports whether the column surely keeps the value of row: a text of ASCII, which no character set of
// a column changes, within the declared length.
func (c column) fits(row reflect.Value, forms rowmap.Forms) bool {
	v, err := driver.DefaultParameterConverter.ConvertValue(c.field.Values(row, forms)[0])
	text, is := v.(string)
	return err == nil && is && c.kind == varying && len(text) <= c.length && strings.IndexFunc(text, func(r rune) bool { return r >= utf8.RuneSelf }) < 0
}

// fineness returns a number for the value of row: if the column keeps it, it keeps all values with that
// number or less. known is false if there is no such number.
func (c column) fineness(row reflect.Value, forms rowmap.Forms) (fine int64, known bool) {
	v, err := driver.DefaultParameterConverter.ConvertValue(c.field.Values(row, forms)[0])
	if err != nil {
		return 0, false
	}
	if b, is := v.([]byte); is && b != nil {
		v = string(b)
	}
	switch v := v.(type) {
	case nil:
		return 0, true
	case bool:
		return 0, c.kind == boolean
	case int64:
		return 0, c.kind == decimal
	case float64:
		return 0, c.kind == double
	case time.Time:
		digits := strings.TrimRight(v.Format(".000000000"), "0")
		return int64(len(digits)), c.kind == instant
	case string:
		if c.kind == decimal {
			_, fraction, _ := strings.Cut(v, ".")
			return int64(len(fraction)), hasEqual(c.field[0].Field.Type)
		}
		return int64(len(v)), c.kind == varying
	}
	return 0, false
}

// hasEqual reports whether equal compares values of t as numbers. It compares others by their text, and
// 12.5 may come back as 12.50.
func hasEqual(t reflect.Type) bool {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	m, has := t.MethodByName("Equal")
	return has && m.Type.NumIn() == 2 && m.Type.In(1) == t
}
