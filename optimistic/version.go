package optimistic

import (
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"

	"github.com/google/uuid"
	"github.com/jmoiron/sqlx/reflectx"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/rowmap"
)

// version is one version of a row: a number above zero, or a UUID's text.
type version struct {
	n  int64
	id string
}

func (v version) String() string {
	if v.id != "" {
		return v.id
	}
	return strconv.FormatInt(v.n, 10)
}

// counter is how a table's versions are kept, in the column and in the struct.
type counter struct {
	name   string // of table and column, for errors
	index  []int  // of the struct's field
	uuid   bool
	binary bool  // the column takes a UUID's 16 bytes
	last   int64 // the last number that both column and field can hold
}

// newCounter refuses columns and fields that cannot keep a version.
func newCounter(engine holdfast.Engine, table string, c rowmap.Column, f *reflectx.FieldInfo) (*counter, error) {
	v := &counter{name: table + "." + c.Name, index: f.Index}
	refuse := func(problem string) (*counter, error) {
		return nil, invalid("TableSpec.Version", "column "+v.name+" "+problem)
	}
	typ := strings.ToLower(c.Type)
	switch last, text, binary := columnType(engine, typ); {
	case strings.Contains(typ, "date") || strings.Contains(typ, "time"):
		return refuse("is a " + typ + ": two writes within one tick of the clock get the same timestamp, and the second overwrites the first unseen: use BIGINT, or a UUID")
	case last > 0:
		if v.last = min(last, lastOf(f.Field.Type)); v.last <= 0 {
			return refuse(fmt.Sprintf("is an integer, and the struct's field is a %v: make it an int64", f.Field.Type))
		}
	case text || binary:
		v.uuid, v.binary = true, binary
		if k := f.Field.Type; k.Kind() != reflect.String && !reflect.TypeFor[[16]byte]().ConvertibleTo(k) {
			return refuse(fmt.Sprintf("is a %s and would hold a UUID, and the struct's field is a %v: make it a string or a [16]byte", typ, k))
		}
	default:
		return refuse("is a " + typ + ", which is no integer and holds no UUID: use BIGINT")
	}
	if !c.NotNull {
		return refuse("allows NULL, and a version NULL equals no version: declare it NOT NULL (for rows that are there: DEFAULT 1)")
	}
	return v, nil
}

// columnType gives an integer column's largest signed value, or says that the
// column takes a UUID as text or as bytes. An unsigned column is taken for a
// signed one: a type that ends early is refused loudly long before it clamps.
func columnType(engine holdfast.Engine, typ string) (last int64, text, binary bool) {
	if engine == holdfast.SQLite { // see https://www.sqlite.org/datatype3.html
		switch {
		case strings.Contains(typ, "int"):
			return math.MaxInt64, false, false
		case strings.Contains(typ, "char"), strings.Contains(typ, "text"):
			return 0, true, false
		}
		return 0, false, strings.Contains(typ, "blob")
	}
	switch typ {
	case "tinyint":
		return math.MaxInt8, false, false
	case "smallint", "int2":
		return math.MaxInt16, false, false
	case "mediumint":
		return 1<<23 - 1, false, false
	case "int", "int4":
		return math.MaxInt32, false, false
	case "bigint", "int8":
		return math.MaxInt64, false, false
	case "uuid", "char", "varchar", "bpchar", "text":
		return 0, true, false
	case "binary", "varbinary", "bytea":
		return 0, false, true
	}
	return 0, false, false
}

// lastOf is the largest version that an integer type can hold, 0 for other types.
func lastOf(t reflect.Type) int64 {
	switch t.Kind() {
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return math.MaxInt64 >> (64 - t.Bits())
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return math.MaxInt64 >> max(63-t.Bits(), 0)
	}
	return 0
}

// of reads a row's version and refuses one that the row cannot have been read with.
func (v *counter) of(row reflect.Value) (version, error) {
	f := reflectx.FieldByIndexesReadOnly(row, v.index)
	if v.uuid {
		text := f.String()
		if f.Kind() == reflect.Array {
			text = uuid.UUID(f.Convert(reflect.TypeFor[[16]byte]()).Interface().([16]byte)).String() //nolint:forcetypeassert // it was converted
		}
		if text == "" || text == uuid.Nil.String() {
			return version{}, invalid(v.name, "the row has no version: give the row as it was read")
		}
		return parseUUID(v.name, text)
	}
	n := int64(-1)
	if f.CanInt() {
		n = f.Int()
	} else if u := f.Uint(); u <= math.MaxInt64 {
		n = int64(u)
	}
	if n <= 0 {
		return version{}, invalid(v.name, "the row's version is not above zero: give the row as it was read; where a version column was added to rows that were there, it needs DEFAULT 1")
	}
	return version{n: n}, nil
}

func parseUUID(name, text string) (version, error) {
	id, err := uuid.Parse(text)
	if err != nil || id.String() != text {
		return version{}, invalid(name, "the version is not a UUID in its usual form (36 characters, lower case)")
	}
	return version{id: text}, nil
}

// first is the version of a new row: the one it was given, or the beginning.
func (v *counter) first(row reflect.Value) (version, error) {
	if !reflectx.FieldByIndexesReadOnly(row, v.index).IsZero() {
		return v.of(row)
	}
	return v.after(version{})
}

func (v *counter) after(now version) (version, error) {
	if v.uuid {
		id, err := uuid.NewRandom()
		return version{id: id.String()}, err
	}
	if now.n >= v.last {
		return version{}, invalid(v.name, fmt.Sprintf("version %d is the last that its type can hold: use BIGINT and int64", now.n))
	}
	return version{n: now.n + 1}, nil
}

// bind is a version as the column takes it.
func (v *counter) bind(now version) any {
	switch {
	case v.binary:
		id := uuid.MustParse(now.id)
		return id[:]
	case v.uuid:
		return now.id
	}
	return now.n
}

// put writes a version into the struct of a row.
func (v *counter) put(row reflect.Value, now version) {
	f := reflectx.FieldByIndexes(row, v.index)
	switch {
	case f.Kind() == reflect.String:
		f.SetString(now.id)
	case f.Kind() == reflect.Array:
		f.Set(reflect.ValueOf([16]byte(uuid.MustParse(now.id))).Convert(f.Type()))
	case f.CanInt():
		f.SetInt(now.n)
	default:
		f.SetUint(uint64(now.n)) //nolint:gosec // it is not negative
	}
}

// reading takes a version from the database, in whatever form the driver has it.
type reading struct {
	counter *counter
	version version
}

// Scan implements sql.Scanner.
func (r *reading) Scan(src any) (err error) {
	switch s := src.(type) {
	case int64:
		return r.number(s, nil)
	case []byte:
		if r.counter.binary {
			id, err := uuid.FromBytes(s)
			r.version = version{id: id.String()}
			return err
		}
		return r.text(string(s))
	case string:
		return r.text(s)
	}
	if src == nil {
		return fmt.Errorf("optimistic: %s: the row's version is NULL, which equals no version: give it one, and declare the column NOT NULL", r.counter.name)
	}
	return fmt.Errorf("optimistic: %s: a version cannot be read from %T", r.counter.name, src)
}

func (r *reading) text(s string) (err error) {
	if r.counter.uuid {
		r.version, err = parseUUID(r.counter.name, s)
		return err
	}
	return r.number(strconv.ParseInt(s, 10, 64))
}

func (r *reading) number(n int64, err error) error {
	if err == nil && (n < 0 || n > r.counter.last) {
		err = fmt.Errorf("optimistic: %s: version %d is out of range", r.counter.name, n)
	}
	r.version = version{n: n}
	return err
}
