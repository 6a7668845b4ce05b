package migrations

import (
	"embed"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"testing/fstest"

	"github.com/holdfast-go/holdfast"
)

// Version is the version of the tables that this build creates.
const Version = 1

//go:embed postgres/*.sql mysql/*.sql sqlite/*.sql
var templates embed.FS

// Option changes where the tables are.
type Option func(*layout)

// WithPrefix begins the names of the tables, as [holdfast.WithPrefix] does.
func WithPrefix(prefix string) Option { return func(l *layout) { l.prefix = prefix } }

// WithSchema puts the tables into a schema that exists (on MySQL and MariaDB a
// database, on SQLite an attached one), as [holdfast.WithSchema] does.
func WithSchema(schema string) Option { return func(l *layout) { l.schema = schema } }

// FS holds the migrations of an engine for a prefix and a schema, named as
// golang-migrate names them: 0001_init.up.sql, 0001_init.down.sql.
func FS(e holdfast.Engine, opts ...Option) (fs.FS, error) {
	l, err := newLayout(e, opts)
	if err != nil {
		return nil, err
	}
	dir := string(e)
	if e == holdfast.MariaDB {
		dir = string(holdfast.MySQL)
	}
	files, err := templates.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	render := strings.NewReplacer("{schema}", l.qualifier(), "{prefix}", l.prefix)
	out := fstest.MapFS{}
	for _, f := range files {
		text, err := templates.ReadFile(dir + "/" + f.Name())
		if err != nil {
			return nil, err
		}
		out[f.Name()] = &fstest.MapFile{Data: []byte(render.Replace(string(text))), Mode: 0o444}
	}
	return out, nil
}

// Print writes the SQL of all up migrations, in order.
func Print(w io.Writer, e holdfast.Engine, opts ...Option) error {
	files, err := FS(e, opts...)
	if err != nil {
		return err
	}
	names, err := fs.Glob(files, "*.up.sql")
	if err != nil {
		return err
	}
	for i, name := range names {
		text, err := fs.ReadFile(files, name)
		if err != nil {
			return err
		}
		between := ""
		if i > 0 {
			between = "\n"
		}
		if _, err := fmt.Fprintf(w, "%s%s", between, text); err != nil {
			return err
		}
	}
	return nil
}
