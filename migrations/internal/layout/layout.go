// Package layout says where Holdfast's tables are.
package layout

import (
	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/dialect"
	"github.com/holdfast-go/holdfast/internal/dialect/mariadb"
	"github.com/holdfast-go/holdfast/internal/dialect/mysql"
	"github.com/holdfast-go/holdfast/internal/dialect/postgres"
	"github.com/holdfast-go/holdfast/internal/dialect/sqlite"
)

// Layout is an engine, a prefix and a schema.
type Layout struct {
	Dialect        dialect.Dialect
	Prefix, Schema string
}

// New applies the options to the default, and checks the names.
func New[O ~func(*Layout)](e holdfast.Engine, opts []O) (*Layout, error) {
	l := &Layout{Prefix: holdfast.DefaultPrefix}
	for _, o := range opts {
		o(l)
	}
	if err := holdfast.CheckNames(e, l.Prefix, l.Schema); err != nil {
		return nil, err
	}
	if e == holdfast.SQLite && l.Schema == "" {
		// A bare name may be found in an attached database, and dropped there.
		l.Schema = "main"
	}
	for _, d := range []dialect.Dialect{postgres.Dialect, mysql.Dialect, mariadb.Dialect, sqlite.Dialect} {
		if d.Name == string(e) {
			l.Dialect = d
		}
	}
	return l, nil
}

// Qualifier is the quoted schema with its dot, or nothing.
func (l *Layout) Qualifier() string {
	if l.Schema == "" {
		return ""
	}
	return l.Dialect.Ident(l.Schema) + "."
}

// Table is the qualified, quoted name of a table.
func (l *Layout) Table(name string) string {
	return l.Qualifier() + l.Dialect.Ident(l.Prefix+name)
}
