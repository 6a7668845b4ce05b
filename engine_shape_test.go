package holdfast_test

import (
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/adapters/holdfastsql"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
	"github.com/holdfast-go/holdfast/migrations"
)

var update = flag.Bool("update", false, "write the golden files")

// TestShape checks that the migrations create tables with the shapes in the golden files. `go
// test . -run TestShape -update` writes the files.
func TestShape(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, e dbtest.Engine) {
		pool := dbtest.OpenSQL(t, dbtest.DSN(t, e))
		db, err := holdfastsql.Open(t.Context(), pool, holdfast.Options{SingleOwner: true})
		if err != nil {
			t.Fatal(err)
		}
		if err := migrations.Up(t.Context(), pool); err != nil {
			t.Fatal(err)
		}
		lines, err := db.Shape(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for i, line := range lines {
			if f := strings.Fields(line); f[1] == "kind" {
				lines[i] = strings.Join(f[:3], " ") // without its owner
			}
		}
		file := "internal/dialect/" + string(e.Like()) + "/shape.txt"
		got := strings.Join(lines, "\n") + "\n"
		if *update {
			if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if got != string(want) {
			t.Errorf("the migrations make another shape than %s has:\n%s", file, got)
		}
	})
}
