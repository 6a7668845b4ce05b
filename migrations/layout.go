package migrations

import (
	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/dialect"
	"github.com/holdfast-go/holdfast/internal/dialect/mariadb"
	"github.com/holdfast-go/holdfast/internal/dialect/mysql"
	"github.com/holdfast-go/holdfast/internal/dialect/postgres"
	"github.com/holdfast-go/holdfast/internal/dialect/sqlite"
	"github.com/holdfast-go/holdfast/internal/dialect/tidb"
	"github.com/holdfast-go/holdfast/internal/dialect/vitess"
)

// layout says where the tables are: engine, prefix and schema.
type layout struct {
	dialect        dialect.Dialect
	prefix, schema string
	multiPrimary   bool // other nodes write to the same tables
}

// newLayout checks the names and applies the defaults.
func newLayout(e holdfast.Engine, o holdfast.Options) (*layout, error) {
	l := &layout{}
	var err error
	if l.prefix, l.schema, err = o.Names(e); err != nil {
		return nil, err
	}
	if e == holdfast.SQLite && l.schema == "" {
		// An unqualified name could match, and drop, a table of an attached database.
		l.schema = "main"
	}
	for _, d := range []dialect.Dialect{postgres.Dialect, mysql.Dialect, mariadb.Dialect, tidb.Dialect, vitess.Dialect, sqlite.Dialect} {
		if d.Name == string(e) {
			l.dialect = d
		}
	}
	return l, nil
}

// qualifier returns the quoted schema with its dot, or "".
func (l *layout) qualifier() string {
	if l.schema == "" {
		return ""
	}
	return l.dialect.Ident(l.schema) + "."
}

// table returns the qualified, quoted name of a table.
func (l *layout) table(name string) string {
	return l.qualifier() + l.dialect.Ident(l.prefix+name)
}
