package businessrow

import (
	"database/sql/driver"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/internal/rowmap"
)

// kept knows which values the compared columns store unchanged, so that a claim reads its row back
// only for values that are finer, or longer, than those that were read back before.
type kept struct {
	columns []column
	finest  []atomic.Int64 // by column: the finest value that was read back; -1 for none
}

// column is a compared column whose type does not keep every value.
type column struct {
	field rowmap.Fields // of this column alone
	kind  columnKind
}

type columnKind int

const (
	other columnKind = iota // read back each time
	instant
	decimal
	text
	double
	boolean
)

var columnKinds = map[string]columnKind{
	"timestamp": instant, "timestamptz": instant, "datetime": instant, "numeric": decimal, "decimal": decimal,
	"varchar": text, "varbinary": text, "float8": double, "double": double, "bool": boolean, "boolean": boolean,
}

func newKept(table *rowmap.Table, compare rowmap.Fields) (k kept, err error) {
	for i, name := range compare.Names() {
		c, err := table.Column("Options.Compare", name)
		if err != nil {
			return k, err
		}
		if kind := strings.ToLower(c.Type); !slices.Contains(keepers, kind) {
			k.columns = append(k.columns, column{compare[i : i+1], columnKinds[kind]})
		}
	}
	k.finest = make([]atomic.Int64, len(k.columns))
	for i := range k.finest {
		k.finest[i].Store(-1)
	}
	return k, nil
}

// surely reports whether the columns keep the values of row.
func (k *kept) surely(row reflect.Value, forms rowmap.Forms) bool {
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
		return int64(len(v)), c.kind == text
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
