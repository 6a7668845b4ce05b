package migrations

import (
	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/dialect"
	"github.com/holdfast-go/holdfast/internal/dialect/mariadb"
	"github.com/holdfast-go/holdfast/internal/dialect/mysql"
	"github.com/holdfast-go/holdfast/internal/dialect/postgres"
	"github.com/holdfast-go/holdfast/internal/dialect/sqlite"
)

// layout says where the tables are: an engine, a prefix and a schema.
type layout struct {
	dialect        dialect.Dialect
	prefix, schema string
}

// newLayout applies the options to the default, and checks the names.
func newLayout(e holdfast.Engine, opts []Option) (*layout, error) {
	l := &layout{prefix: holdfast.DefaultPrefix}
	for _, o := range opts {
		o(l)
	}
	if err := holdfast.CheckNames(e, l.prefix, l.schema); err != nil {
		return nil, err
	}
	if e == holdfast.SQLite && l.schema == "" {
		// A bare name may be found in an attached database, and dropped there.
		l.schema = "main"
	}
	for _, d := range []dialect.Dialect{postgres.Dialect, mysql.Dialect, mariadb.Dialect, sqlite.Dialect} {
		if d.Name == string(e) {
			l.dialect = d
		}
	}
	return l, nil
}

// qualifier is the quoted schema with its dot, or nothing.
func (l *layout) qualifier() string {
	if l.schema == "" {
		return ""
	}
	return l.dialect.Ident(l.schema) + "."
}

// table is the qualified, quoted name of a table.
func (l *layout) table(name string) string {
	return l.qualifier() + l.dialect.Ident(l.prefix+name)
}
