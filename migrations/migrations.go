package migrations

import (
	"embed"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"testing/fstest"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/options"
)

// Version is the version of the tables that this build creates.
const Version = 1

//go:embed postgres/*.sql mysql/*.sql sqlite/*.sql
var templates embed.FS

// FS returns the migrations of an engine for a prefix and a schema. The files have
// golang-migrate's names: 0001_init.up.sql, 0001_init.down.sql.
func FS(e holdfast.Engine, opts ...holdfast.Options) (fs.FS, error) {
	o, err := one(opts)
	if err != nil {
		return nil, err
	}
	return files(e, o)
}

func one(opts []holdfast.Options) (holdfast.Options, error) {
	return options.One(opts)
}

func files(e holdfast.Engine, o holdfast.Options) (fs.FS, error) {
	l, err := newLayout(e, o)
	if err != nil {
		return nil, err
	}
	dir := engines[string(e)].files
	entries, err := templates.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	sets := ""
	if l.dialect.Audit.SetsSession {
		sets = " DEFAULT (CURRENT_USER())"
	}
	render := strings.NewReplacer("{schema}", l.qualifier(), "{prefix}", l.prefix, "{session_user}", sets)
	out := fstest.MapFS{}
	for _, f := range entries {
		text, err := templates.ReadFile(dir + "/" + f.Name())
		if err != nil {
			return nil, err
		}
		out[f.Name()] = &fstest.MapFile{Data: []byte(render.Replace(string(text))), Mode: 0o444}
	}
	return out, nil
}

// Print writes the SQL of all up migrations, in order.
func Print(w io.Writer, e holdfast.Engine, opts ...holdfast.Options) error {
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
