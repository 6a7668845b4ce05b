package optimistic

import (
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"

	"github.com/google/uuid"

	"github.com/holdfast-go/holdfast/internal/dialect"
	"github.com/holdfast-go/holdfast/internal/rowmap"
)

// version is one version of a row: a number above zero, or the text of a UUID.
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

// counter reads and increments the versions of a table, in the column and in the struct.
type counter struct {
	name   string // table and column, for errors
	index  []int  // index of the struct's field
	uuid   bool
	binary bool  // the column takes a UUID's 16 bytes
	last   int64 // the last number that both column and field can hold
}

// newCounter refuses columns and fields that cannot hold a version.
func newCounter(typeOf func(string) dialect.VersionType, table string, c rowmap.Column, row reflect.Type, f rowmap.Field) (*counter, error) {
	v := &counter{name: table + "." + c.Name, index: f.Index}
	refuse := func(problem string) (*counter, error) {
		return nil, invalid("Options.Version", "column "+v.name+" "+problem)
	}
	for n := range f.Index[1:] { // a copy of the row shares what a pointer leads to
		if in := row.FieldByIndex(f.Index[:n+1]); in.Type.Kind() == reflect.Pointer {
			return refuse("is in a struct that " + row.String() + " embeds by a pointer, so that a version which was not committed would be in the caller's row: embed it by value")
		}
	}
	typ := strings.ToLower(c.Type)
	switch column := typeOf(typ); {
	case strings.Contains(typ, "date") || strings.Contains(typ, "time"):
		return refuse("is a " + typ + ": two writes within one tick of the clock get the same timestamp, and the second overwrites the first unnoticed: use BIGINT, or a UUID")
	case column.Last > 0:
		if v.last = min(column.Last, lastOf(f.Field.Type)); v.last <= 0 {
			return refuse(fmt.Sprintf("is an integer, and the struct's field is a %v: make it an int64", f.Field.Type))
		}
	case column.Text || column.Bytes:
		v.uuid, v.binary = true, column.Bytes
		if k := f.Field.Type; k.Kind() != reflect.String && !reflect.TypeFor[[16]byte]().ConvertibleTo(k) {
			return refuse(fmt.Sprintf("is a %s and would hold a UUID, and the struct's field is a %v: make it a string or a [16]byte", typ, k))
		}
	default:
		return refuse("is a " + typ + ", which is no integer and holds no UUID: use BIGINT")
	}
	if !c.NotNull {
		return refuse("allows NULL, and a version NULL equals no version: declare it NOT NULL (with DEFAULT 1 if the table has rows)")
	}
	return v, nil
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

// of returns a row's version. It refuses a version that no row can have.
func (v *counter) of(row reflect.Value) (version, error) {
	f := row.FieldByIndex(v.index)
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
		return version{}, invalid(v.name, "the row's version is not above zero: give the row as it was read; a version column that is added to a table with rows needs DEFAULT 1")
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

// first returns the version of a new row: the one that it has, or the first version.
func (v *counter) first(row reflect.Value) (version, error) {
	if !row.FieldByIndex(v.index).IsZero() {
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

// bind returns a version in the form that the column takes.
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
	f := row.FieldByIndex(v.index)
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

// reading scans a version in any form in which a driver returns it.
type reading struct {
	counter *counter
	version version
}

// Scan implements sql.Scanner.
func (r *reading) Scan(src any) (err error) {
	switch s := src.(type) {
	case int64:
		return r.number(s, nil)
	case uint64: // go-sql-driver, of an UNSIGNED column that it reads as text
		return r.text(strconv.FormatUint(s, 10))
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
