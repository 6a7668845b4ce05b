package holdfastgorm

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"gorm.io/gorm"
	"gorm.io/gorm/schema"

	"github.com/holdfast-go/holdfast"
)

// parse reads a model as db does.
func parse(db *gorm.DB, model any) (*schema.Schema, error) {
	stmt := &gorm.Statement{DB: db}
	if err := stmt.Parse(model); err != nil {
		return nil, &holdfast.InputError{Field: "model", Problem: fmt.Sprintf("GORM cannot read %T: %v", model, err)}
	}
	return stmt.Schema, nil
}

// fieldsOf returns the mapping of db's models, for holdfast.Options.
func fieldsOf(db *gorm.DB) func(row reflect.Type) ([]holdfast.Field, error) {
	var mu sync.Mutex
	return func(row reflect.Type) (list []holdfast.Field, err error) {
		mu.Lock()
		defer mu.Unlock()
		s, err := parse(db, reflect.New(row).Interface())
		if err != nil {
			return nil, err
		}
		for _, name := range s.DBNames {
			f := s.FieldsByDBName[name]
			refuse := func(problem string) error {
				return &holdfast.InputError{Field: "R", Problem: fmt.Sprintf("field %s of %v %s", f.Name, row, problem)}
			}
			fill := fillOf(db, f)
			switch {
			case !f.Readable && !f.Creatable && !f.Updatable:
				continue
			case !f.Readable || !f.Creatable || !f.Updatable:
				return nil, refuse("may be read or written in part (tags -> and <-), and Holdfast would leave its column out: give it no such tag, or take a struct of its own for Holdfast")
			case f.HasDefaultValue && f.DefaultValueInterface == nil && fill == nil && !f.PrimaryKey && !f.AutoIncrement && (f.FieldType.Kind() != reflect.Pointer || !strings.EqualFold(f.DefaultValue, "null")):
				return nil, refuse("has a default that the database makes, and Holdfast would store its zero value: fill it in the program, or make it a pointer if the default is NULL")
			case fill != nil && slices.Min(f.StructField.Index) < 0:
				return nil, refuse("is filled before a write, in a struct that is embedded by a pointer, which a copy of the row shares: embed it by value")
			case f.Serializer != nil:
				return nil, refuse("has a GORM serializer, and Holdfast would store another value: make it a type with Scan and Value")
			}
			list = append(list, holdfast.Field{Column: name, Index: indexOf(f), Generated: f.AutoIncrement, Fill: fill})
		}
		return list, nil
	}
}

// indexOf returns the index of a field. GORM's is negative at an embedded pointer.
func indexOf(f *schema.Field) []int {
	index := make([]int, len(f.StructField.Index))
	for i, n := range f.StructField.Index {
		if n < 0 {
			n = -n - 1
		}
		index[i] = n
	}
	return index
}

// Spec returns the table of a model and its primary key, for the packages that take rows as structs.
// key names other columns of a unique key instead.
//
// Errors: [holdfast.ErrInvalid].
func Spec[R any](db *gorm.DB, key ...string) (holdfast.TableSpec, error) {
	s, err := parse(db, new(R))
	if err != nil {
		return holdfast.TableSpec{}, err
	}
	if len(key) == 0 {
		key = s.PrimaryFieldDBNames
	}
	spec := holdfast.TableSpec{Table: s.Table, Key: key}
	if of, table, found := strings.Cut(s.Table, "."); found {
		spec.Schema, spec.Table = of, table
	}
	return spec, nil
}

// fillOf returns what sets a field that GORM fills on its own: with its default if it is zero, or with the time, that
// of the creation if it is zero, and that of the update always with an update.
func fillOf(db *gorm.DB, f *schema.Field) func(ctx context.Context, row reflect.Value, update bool) error {
	kind := max(f.AutoCreateTime, f.AutoUpdateTime)
	switch {
	case kind > 0:
	case f.DefaultValueInterface != nil:
		return func(ctx context.Context, row reflect.Value, update bool) error {
			if _, zero := f.ValueOf(ctx, row); zero && !update {
				return f.Set(ctx, row, f.DefaultValueInterface)
			}
			return nil
		}
	default:
		return nil
	}
	return func(ctx context.Context, row reflect.Value, update bool) error {
		if _, zero := f.ValueOf(ctx, row); zero || update && f.AutoUpdateTime > 0 {
			return f.Set(ctx, row, stamped(f, kind, db.NowFunc()))
		}
		return nil
	}
}

func stamped(f *schema.Field, kind schema.TimeType, now time.Time) any {
	if f.DataType == schema.Time || f.GORMDataType == schema.Time {
		return now
	}
	switch kind {
	case schema.UnixNanosecond:
		return now.UnixNano()
	case schema.UnixMillisecond:
		return now.UnixMilli()
	}
	return now.Unix()
}

// Key is a string whose column compares byte for byte: VARBINARY on MySQL and MariaDB, where the
// collation that AutoMigrate leaves to the database takes "A" for "a", and text on other engines. The
// tag size bounds it (default: 255 bytes).
type Key string

// GormDataType implements schema.GormDataTypeInterface.
func (Key) GormDataType() string { return string(schema.String) }

// GormDBDataType implements migrator.GormDataTypeInterface.
func (Key) GormDBDataType(db *gorm.DB, f *schema.Field) string {
	size := f.Size
	if size <= 0 {
		size = 255
	}
	switch db.Name() {
	case "mysql":
		return fmt.Sprintf("VARBINARY(%d)", size)
	case "postgres":
		return `text COLLATE "C"`
	}
	return "text"
}
