package holdfast_test

import (
	"os/exec"
	"strings"
	"testing"
)

// TestProgramsLinkOnlyTheirOwnDriver: a user on one engine links neither the
// drivers of the others nor what only tests and tools need.
func TestProgramsLinkOnlyTheirOwnDriver(t *testing.T) {
	t.Parallel()
	const (
		pgx, mysql, sqlite = "github.com/jackc/pgx/", "github.com/go-sql-driver/", "modernc.org/"
		sqlx, migrate      = "github.com/jmoiron/sqlx", "github.com/golang-migrate/"
		docker             = "github.com/ory/dockertest"
	)
	for _, c := range []struct {
		packages  []string
		forbidden []string
	}{
		{[]string{"./adapters/holdfastsql", "./idempotency", "./optimistic", "./reaper", "./console"}, []string{pgx, mysql, sqlite, migrate, docker}},
		{[]string{"./migrations"}, []string{pgx, mysql, sqlite, docker}},
		{[]string{"./adapters/holdfastsqlx"}, []string{pgx, mysql, sqlite, migrate, docker}},
		{[]string{"./adapters/holdfastpgx", "./idempotency"}, []string{mysql, sqlite, migrate, docker}},
		{[]string{"."}, []string{pgx, mysql, sqlite, sqlx, migrate, docker}},
	} {
		out, err := exec.CommandContext(t.Context(), "go", append([]string{"list", "-deps"}, c.packages...)...).Output()
		if err != nil {
			t.Fatal(err)
		}
		for dep := range strings.Lines(string(out)) {
			for _, f := range c.forbidden {
				if strings.HasPrefix(dep, f) {
					t.Errorf("%v links %s", c.packages, strings.TrimSpace(dep))
				}
			}
		}
	}
}
