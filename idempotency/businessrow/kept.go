package businessrow

import (
	"cmp"
	"database/sql/driver"
	"math"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/holdfast-go/holdfast/internal/rowmap"
)

// kept knows which values the columns store unchanged, so that a claim reads its row back only if it must:
// for a value that its column may change, and for a compared one that is finer, or larger, than those that
// were read back before.
type kept struct {
	key     []column
	columns []column        // that are compared
	finest  []atomicMeasure // by column: what was read back
}

// column says which values a column keeps.
type column struct {
	field  rowmap.Fields // of this column alone
	kind   columnKind
	most   int64   // of a number without a fraction; bytes of a text
	narrow bool    // its character set may lack what is not ASCII
	null   bool    // it may be NULL; a column that may not can get another value for it
	makes  bool    // for 0 it may get another value: AUTO_INCREMENT
	keeps  measure // surely
}

type columnKind int

const (
	other columnKind = iota // read back each time
	instant
	decimal
	whole
	signed
	text
	double
	boolean
	bytes
	uuid
)

// columnKinds lists the types whose columns keep some values. A session that is not strict lets MySQL and
// MariaDB change what they cannot hold.
var columnKinds = map[string]columnKind{
	"timestamp": instant, "timestamptz": instant, "datetime": instant, "numeric": decimal, "decimal": decimal,
	"varchar": text, "varbinary": text, "text": text, "blob": text, "float8": double, "double": double, "bool": boolean, "boolean": boolean,
	"tinyint": whole, "smallint": whole, "mediumint": whole, "int": whole, "bigint": whole,
	"int2": signed, "int4": signed, "int8": signed, "integer": signed, "bytea": bytes, "uuid": uuid,
}

// largest is what a column holds, signed or not where it may be either, and the bytes of a text without a length.
var largest = map[string]int64{
	"tinyint": math.MaxInt8, "smallint": math.MaxInt16, "mediumint": 1<<23 - 1, "int": math.MaxInt32, "bigint": math.MaxInt64,
	"int2": math.MaxInt16, "int4": math.MaxInt32, "int8": math.MaxInt64, "integer": math.MaxInt64,
	"text": math.MaxUint16, "blob": math.MaxUint16,
}

// measure says how much of a column a value takes: if the column keeps it, it keeps all values that take no
// more of anything.
type measure struct {
	fraction, size int64
	negative       bool
}

func (m measure) within(most measure) bool {
	return m.fraction <= most.fraction && m.size <= most.size && (most.negative || !m.negative)
}

// atomicMeasure is the union of the measures that a column has kept. What is lost between two calls only
// costs a read.
type atomicMeasure struct{ p atomic.Pointer[measure] }

func (a *atomicMeasure) add(m measure) {
	if was := *a.p.Load(); !m.within(was) {
		a.p.Store(&measure{max(m.fraction, was.fraction), max(m.size, was.size), m.negative || was.negative})
	}
}

func newKept(table *rowmap.Table, key, compare rowmap.Fields) (k kept, err error) {
	if k.key, err = columnsOf(table, "TableSpec.Key", key); err != nil {
		return k, err
	}
	if k.columns, err = columnsOf(table, "Options.Compare", compare); err != nil {
		return k, err
	}
	for i := range k.key {
		k.key[i].makes = true
	}
	k.finest = make([]atomicMeasure, len(k.columns))
	for i, c := range k.columns {
		k.finest[i].p.Store(&c.keeps)
	}
	return k, nil
}

// canonical is the form that a column for UUIDs gives back.
var canonical = regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)

// columnsOf returns what the columns of fields keep.
func columnsOf(table *rowmap.Table, argument string, fields rowmap.Fields) (columns []column, err error) {
	for i, name := range fields.Names() {
		c, err := table.Column(argument, name)
		if err != nil {
			return nil, err
		}
		typ := strings.ToLower(c.Type)
		col := column{field: fields[i : i+1], kind: columnKinds[typ], most: largest[typ], null: !c.NotNull, keeps: measure{fraction: -1}}
		switch col.kind {
		case text:
			col.most = cmp.Or(int64(c.Length), col.most)
			col.narrow = strings.Contains(c.Collation, "_") && !strings.HasPrefix(c.Collation, "utf8mb4_") // its name begins with the set's
			fallthrough
		case whole:
			col.keeps = measure{size: col.most}
		case signed:
			col.keeps = measure{size: col.most, negative: true}
		case bytes, uuid:
			col.keeps = measure{}
		}
		columns = append(columns, col)
	}
	return columns, nil
}

// surely reports whether the columns keep the values of row.
func (k *kept) surely(row reflect.Value, forms rowmap.Forms) bool {
	for _, c := range k.key {
		if m, known := c.measure(row, forms); !known || !m.within(c.keeps) {
			return false
		}
	}
	for i, c := range k.columns {
		if m, known := c.measure(row, forms); !known || !m.within(*k.finest[i].p.Load()) {
			return false
		}
	}
	return true
}

// saw notes that the columns have kept the values of row.
func (k *kept) saw(row reflect.Value, forms rowmap.Forms) {
	for i, c := range k.columns {
		if m, known := c.measure(row, forms); known {
			k.finest[i].add(m)
		}
	}
}

// measure returns how much the value of row takes. known is false if that does not say whether it is kept.
func (c column) measure(row reflect.Value, forms rowmap.Forms) (m measure, known bool) {
	v, err := driver.DefaultParameterConverter.ConvertValue(c.field.Values(row, forms)[0])
	if err != nil {
		return m, false
	}
	if b, is := v.([]byte); is && b != nil {
		if len(b) == 0 || c.kind == bytes { // SQLite's driver gives no bytes back as NULL
			return m, len(b) > 0
		}
		v = string(b)
	}
	switch v := v.(type) {
	case nil:
		return m, c.null
	case bool:
		return m, c.kind == boolean
	case int64:
		return c.number(v)
	case float64: // a column may be declared with a number of digits
		m, _ = decimals(strconv.FormatFloat(v, 'f', -1, 64))
		return m, c.kind == double
	case time.Time:
		// A column without a zone may store what the clock shows, in any.
		digits := strings.TrimRight(v.Format(".000000000"), "0")
		return measure{int64(len(digits)), int64(v.Year()), v.Unix() <= 0}, c.kind == instant && v.Location() == time.UTC
	case string:
		return c.text(v)
	}
	return m, false
}

func (c column) number(v int64) (m measure, known bool) {
	m.negative = v < 0
	switch c.kind {
	case whole, signed:
		m.size = max(v, -v-1)
		return m, m.size <= c.most && (v != 0 || !c.makes)
	case decimal:
		m.size = int64(len(strings.TrimPrefix(strconv.FormatInt(v, 10), "-")))
		return m, true
	}
	return m, false
}

func (c column) text(v string) (m measure, known bool) {
	switch c.kind {
	case decimal:
		m, known = decimals(v)
		return m, known && hasEqual(c.field[0].Field.Type)
	case uuid:
		return m, canonical.MatchString(v)
	}
	m.size = int64(len(v))
	ascii := strings.IndexFunc(v, func(r rune) bool { return r >= utf8.RuneSelf }) < 0
	return m, c.kind == text && (ascii || !c.narrow)
}

// decimals measures a number by its digits.
func decimals(v string) (m measure, known bool) {
	digits, fraction, _ := strings.Cut(v, ".")
	return measure{int64(len(fraction)), int64(len(digits)), strings.HasPrefix(v, "-")}, !strings.ContainsAny(v, "eE")
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
