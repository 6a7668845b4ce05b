package migrations_test

import (
	"testing"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/adapters/holdfastsql"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
	"github.com/holdfast-go/holdfast/migrations"
)

// TestUpUnderSettings migrates up, twice, opens and migrates down in sessions whose settings change what a
// CREATE makes, or how a statement is read.
func TestUpUnderSettings(t *testing.T) {
	t.Parallel()
	innodb := []string{
		"default_storage_engine=MyISAM", "sql_mode=%27ANSI%27", "sql_mode=%27%27", "sql_mode=%27NO_BACKSLASH_ESCAPES,NO_ZERO_DATE%27", "character_set_server=latin1&collation_server=latin1_bin",
		"innodb_strict_mode=0", "explicit_defaults_for_timestamp=0", "foreign_key_checks=0",
	}
	params := map[dbtest.Engine][]string{
		dbtest.MySQL:   append([]string{"sql_safe_updates=1", "sql_require_primary_key=1", "sql_generate_invisible_primary_key=1", "default_collation_for_utf8mb4=%27utf8mb4_general_ci%27"}, innodb...),
		dbtest.MariaDB: append([]string{"default_storage_engine=Aria"}, innodb...),
		dbtest.Postgres: {
			"default_transaction_isolation=serializable", "standard_conforming_strings=off", "check_function_bodies=off", "quote_all_identifiers=on", "default_toast_compression=lz4",
			"escape_string_warning=on&backslash_quote=off", "DateStyle=German",
		},
		dbtest.SQLite: {"_pragma=foreign_keys(1)", "_pragma=legacy_alter_table(1)", "_pragma=encoding('UTF-16')", "_pragma=recursive_triggers(1)"},
	}
	dbtest.Each(t, func(t *testing.T, e dbtest.Engine) {
		for _, param := range params[e] {
			t.Run(param, func(t *testing.T) {
				url := dbtest.DSN(t, e)
				pool := dbtest.OpenSQL(t, dbtest.With(url, param))
				for range 2 {
					if err := migrations.Up(t.Context(), pool); err != nil {
						t.Fatal(err)
					}
				}
				if _, err := holdfastsql.Open(t.Context(), dbtest.OpenSQL(t, url), holdfast.Options{SingleOwner: true}); err != nil {
					t.Errorf("a session without the setting: %v", err)
				}
				if err := migrations.Down(t.Context(), pool); err != nil {
					t.Error(err)
				}
			})
		}
	})
}
