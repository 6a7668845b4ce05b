package migrations_test

import (
	"context"
	"crypto/rand"
	"errors"
	"regexp"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
	"github.com/holdfast-go/holdfast/migrations"
)

// TestMigratorGrants applies and drops the migrations as an account with the grants of the migrator, which
// may make no other table.
func TestMigratorGrants(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, e dbtest.Engine) {
		if e == dbtest.SQLite {
			return // it has no accounts
		}
		dbtest.Needs(t, e, dbtest.Users)
		url := dbtest.DSN(t, e)
		admin := dbtest.OpenSQL(t, url)
		account := "hf_" + strings.ToLower(rand.Text()[:12])
		schema := scan[string](t, admin, map[bool]string{true: `SELECT current_schema()`, false: `SELECT DATABASE()`}[e == dbtest.Postgres])
		exec := func(q string) {
			t.Helper()
			if _, err := admin.ExecContext(context.WithoutCancel(t.Context()), q); err != nil {
				t.Errorf("%s: %v", q, err)
			}
		}
		t.Cleanup(func() {
			if e == dbtest.Postgres {
				exec(`DROP OWNED BY ` + account)
			}
			exec(`DROP USER ` + account)
		})
		exec(`CREATE USER ` + account + map[bool]string{true: ` PASSWORD 'x'`, false: ` IDENTIFIED BY 'x'`}[e == dbtest.Postgres])
		var grants strings.Builder
		must(t, migrations.PrintGrants(&grants, holdfast.Engine(e), migrations.Migrator, account, holdfast.Options{Schema: schema}))
		for q := range strings.SplitSeq(strings.TrimSuffix(grants.String(), ";\n"), ";\n") {
			exec(q)
		}
		scheme, rest, _ := strings.Cut(url, "://")
		pool := dbtest.OpenSQL(t, scheme+"://"+account+":x"+rest[strings.LastIndex(rest, "@"):])
		must(t, migrations.Up(t.Context(), pool))
		must(t, migrations.Up(t.Context(), pool)) // finds nothing to do
		if e != dbtest.Postgres {                 // whose role makes its own tables
			if _, err := pool.ExecContext(t.Context(), `CREATE TABLE other (a INT)`); err == nil {
				t.Error("the migrator makes any table")
			}
		}
		must(t, migrations.Down(t.Context(), pool))
		must(t, pool.Close())
	})
}

// TestPrintGrants checks what is printed, and what is refused.
func TestPrintGrants(t *testing.T) {
	t.Parallel()
	s := holdfast.Options{Schema: "shop"}
	for _, c := range []struct {
		engine holdfast.Engine
		role   migrations.Role
		want   []string
	}{
		{holdfast.PostgreSQL, migrations.App, []string{
			`GRANT USAGE ON SCHEMA "shop" TO "pay@%";`, `GRANT SELECT, UPDATE ("id") ON TABLE "shop"."holdfast_floor" TO "pay@%";`,
			`GRANT SELECT ON TABLE "shop"."holdfast_interventions" TO "pay@%";`,
		}},
		{holdfast.PostgreSQL, migrations.Reaper, []string{`GRANT SELECT, DELETE, UPDATE ("holder") ON TABLE "shop"."holdfast_locks" TO "pay@%";`}},
		{holdfast.PostgreSQL, migrations.Migrator, []string{`GRANT USAGE, CREATE ON SCHEMA "shop" TO "pay@%";`}},
		{holdfast.MySQL, migrations.App, []string{"GRANT SELECT ON `shop`.`holdfast_floor` TO `pay`@`%`;"}},
		{holdfast.MariaDB, migrations.Reaper, []string{"GRANT SELECT, UPDATE (`token`) ON `shop`.`holdfast_floor` TO `pay`@`%`;"}},
		// TiDB takes the grammar of MySQL. Before 8.5.6 it has no grants on columns; and it takes the name of a
		// table that is not there yet if CREATE is among the privileges.
		{holdfast.TiDB, migrations.Reaper, []string{
			"GRANT SELECT, UPDATE ON `shop`.`holdfast_floor` TO `pay`@`%`;", "GRANT SELECT, DELETE ON `shop`.`holdfast_locks` TO `pay`@`%`;",
		}},
		{holdfast.TiDB, migrations.Operator, []string{
			"GRANT SELECT, UPDATE ON `shop`.`holdfast_floor` TO `pay`@`%`;", "GRANT SELECT, INSERT ON `shop`.`holdfast_interventions` TO `pay`@`%`;",
		}},
		{holdfast.TiDB, migrations.Migrator, []string{"GRANT SELECT, INSERT, UPDATE, DELETE, CREATE, ALTER, INDEX, DROP ON `shop`.`holdfast_records` TO `pay`@`%`;"}},
	} {
		var b strings.Builder
		must(t, migrations.PrintGrants(&b, c.engine, c.role, "pay@%", s))
		for _, line := range c.want {
			if !strings.Contains(b.String(), line+"\n") {
				t.Errorf("%s, %s: no %s in\n%s", c.engine, c.role, line, b.String())
			}
		}
	}
	grammar := regexp.MustCompile("^GRANT (SELECT|INSERT|UPDATE|DELETE|CREATE|ALTER|INDEX|DROP)(, (INSERT|UPDATE|DELETE|CREATE|ALTER|INDEX|DROP))* ON `shop`\\.`holdfast_[a-z_]+` TO `pay`@`%`;$")
	for _, role := range []migrations.Role{migrations.App, migrations.Reaper, migrations.Operator, migrations.Reader, migrations.Migrator} {
		var b strings.Builder
		must(t, migrations.PrintGrants(&b, holdfast.TiDB, role, "pay@%", s))
		for line := range strings.Lines(b.String()) {
			if !grammar.MatchString(strings.TrimSpace(line)) {
				t.Errorf("TiDB, %s: %s", role, line)
			}
		}
	}
	var none strings.Builder
	for _, e := range []holdfast.Engine{holdfast.SQLite, holdfast.Vitess} {
		if err := migrations.PrintGrants(&none, e, migrations.App, "a", s); !errors.Is(err, holdfast.ErrUnsupported) || !strings.Contains(err.Error(), string(e)) {
			t.Errorf("%s: %v", e, err)
		}
	}
	if err := migrations.PrintGrants(&none, holdfast.Vitess, migrations.App, "a", s); err == nil || !strings.Contains(err.Error(), "--table-acl-config") || !strings.Contains(err.Error(), "docs/howto/privileges.md") {
		t.Errorf("vitess: %v", err)
	}
	for _, err := range []error{
		migrations.PrintGrants(&none, holdfast.PostgreSQL, migrations.App, "a"), migrations.PrintGrants(&none, holdfast.PostgreSQL, "owner", "a", s),
		migrations.PrintGrants(&none, holdfast.PostgreSQL, migrations.App, "", s), migrations.PrintGrants(&none, "oracle", migrations.App, "a", s),
	} {
		if !errors.Is(err, holdfast.ErrInvalid) {
			t.Errorf("got %v", err)
		}
	}
	if none.Len() > 0 {
		t.Errorf("printed %s", none.String())
	}
}
