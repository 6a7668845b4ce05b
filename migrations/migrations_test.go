package migrations_test

import (
	"errors"
	"io/fs"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/migrations"
)

var engines = []holdfast.Engine{holdfast.PostgreSQL, holdfast.MySQL, holdfast.MariaDB, holdfast.SQLite}

func TestFSHoldsAllFilesOfEachEngine(t *testing.T) {
	t.Parallel()
	for _, e := range engines {
		files, err := migrations.FS(e)
		if err != nil {
			t.Fatal(err)
		}
		if err := fstest.TestFS(files, "0001_init.up.sql", "0001_init.down.sql"); err != nil {
			t.Errorf("%s: %v", e, err)
		}
		ups, _ := fs.Glob(files, "*.up.sql")
		downs, _ := fs.Glob(files, "*.down.sql")
		if len(ups) != migrations.Version || len(downs) != migrations.Version {
			t.Errorf("%s: %v and %v for version %d", e, ups, downs, migrations.Version)
		}
	}
}

func TestNamesAreQuotedAndShortEnough(t *testing.T) {
	t.Parallel()
	prefix := strings.Repeat("p", 32)
	for _, e := range engines {
		quote, limit := `"`, 63
		if e == holdfast.MySQL || e == holdfast.MariaDB {
			quote, limit = "`", 64
		}
		schema := `S ` + quote + `; DROP {prefix}`
		text := printed(t, e, holdfast.Options{Prefix: prefix, Schema: schema})
		want := quote + `S ` + quote + quote + `; DROP {prefix}` + quote + `.` + quote + prefix + `records` + quote
		if e != holdfast.SQLite && !strings.Contains(text, want) {
			t.Errorf("%s: %s is not in %s", e, want, text)
		}
		if strings.Contains(text, "{schema}") || strings.Contains(text, "holdfast_") {
			t.Errorf("%s: not rendered: %s", e, text)
		}
		for _, name := range regexp.MustCompile(quote+`p+\w+`+quote).FindAllString(text, -1) {
			if len(name)-2 > limit {
				t.Errorf("%s: the name %s is too long", e, name)
			}
		}
	}
}

func TestNamesAreRefusedAsHoldfastDoes(t *testing.T) {
	t.Parallel()
	for _, opt := range []holdfast.Options{
		{Prefix: "1a"},
		{Prefix: "a-b"},
		{Prefix: "é"},
		{Prefix: strings.Repeat("p", 33)},
		{Prefix: `a"b`},
		{Schema: "a\x00b"},
		{Schema: "\xff"},
		{Schema: strings.Repeat("s", 256)},
	} {
		for _, e := range engines {
			if _, err := migrations.FS(e, opt); !errors.Is(err, holdfast.ErrInvalid) {
				t.Errorf("%s: got %v", e, err)
			}
		}
	}
	if _, err := migrations.FS("oracle"); !errors.Is(err, holdfast.ErrInvalid) {
		t.Errorf("got %v", err)
	}
	if _, err := migrations.FS(holdfast.SQLite, holdfast.Options{Prefix: holdfast.NoPrefix}); err != nil {
		t.Errorf("no prefix: %v", err)
	}
}

func TestNoDriverIsLinked(t *testing.T) {
	t.Parallel()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", ".").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, driver := range []string{"jackc/pgx", "go-sql-driver", "modernc.org", "lib/pq"} {
		if strings.Contains(string(out), driver) {
			t.Errorf("%s is linked", driver)
		}
	}
}

func printed(t *testing.T, e holdfast.Engine, opts ...holdfast.Options) string {
	t.Helper()
	var b strings.Builder
	if err := migrations.Print(&b, e, opts...); err != nil {
		t.Fatal(err)
	}
	return b.String()
}
