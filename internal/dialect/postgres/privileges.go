package postgres

import (
	"context"
	"strings"

	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/dialect"
)

var privileges = dialect.Privileges{
	LockNeedsUpdate: true,
	NeedsSchema:     true,
	Account:         ident,
	Table:           "TABLE ",
	Usage:           func(schema, to string) []string { return []string{`GRANT USAGE ON SCHEMA ` + schema + ` TO ` + to} },
	// It owns the tables that it makes.
	Migrator: func(schema string, _ []string, to string) []string {
		return []string{`GRANT USAGE, CREATE ON SCHEMA ` + schema + ` TO ` + to}
	},
	Held: held,
}

// heldQuery returns one row per privilege: the table and the privilege. An owner is every role that may act as
// the owner of the table, and may do all with it.
const heldQuery = `SELECT c.relname::pg_catalog.text, p.name FROM pg_catalog.pg_class c
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
CROSS JOIN (VALUES ('SELECT'), ('INSERT'), ('UPDATE'), ('DELETE'), ('TRUNCATE'), ('TRIGGER')) p (name)
WHERE n.nspname = COALESCE(NULLIF($1::pg_catalog.text, ''), pg_catalog.current_schema()::pg_catalog.text) AND c.relkind IN ('r', 'p')
 AND c.relname = ANY (pg_catalog.string_to_array($2::pg_catalog.text, ',')) AND pg_catalog.has_table_privilege(c.oid, p.name)
UNION ALL SELECT c.relname::pg_catalog.text, p.name || ' SOME' FROM pg_catalog.pg_class c
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace CROSS JOIN (VALUES ('SELECT'), ('INSERT'), ('UPDATE')) p (name)
WHERE n.nspname = COALESCE(NULLIF($1::pg_catalog.text, ''), pg_catalog.current_schema()::pg_catalog.text) AND c.relkind IN ('r', 'p')
 AND c.relname = ANY (pg_catalog.string_to_array($2::pg_catalog.text, ',')) AND pg_catalog.has_any_column_privilege(c.oid, p.name)
UNION ALL SELECT c.relname::pg_catalog.text, 'ALTER and DROP as its owner' FROM pg_catalog.pg_class c
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = COALESCE(NULLIF($1::pg_catalog.text, ''), pg_catalog.current_schema()::pg_catalog.text) AND c.relkind IN ('r', 'p')
 AND c.relname = ANY (pg_catalog.string_to_array($2::pg_catalog.text, ',')) AND pg_catalog.pg_has_role(c.relowner, 'USAGE')
UNION ALL SELECT '', 'SUPERUSER' FROM pg_catalog.pg_roles r WHERE r.rolname = current_user AND r.rolsuper
UNION ALL SELECT '', 'BYPASSRLS' FROM pg_catalog.pg_roles r WHERE r.rolname = current_user AND r.rolbypassrls AND NOT r.rolsuper
UNION ALL SELECT '', 'CREATE on schema ' || n.nspname FROM pg_catalog.pg_namespace n
WHERE n.nspname = COALESCE(NULLIF($1::pg_catalog.text, ''), pg_catalog.current_schema()::pg_catalog.text) AND pg_catalog.has_schema_privilege(n.oid, 'CREATE')`

func held(ctx context.Context, q core.Querier, schema string, tables []string) (dialect.Held, error) {
	rows, err := (core.Stmt{Name: "privileges", Text: heldQuery}).Query(ctx, q, schema, strings.Join(tables, ","))
	if err != nil {
		return nil, err
	}
	all := dialect.Held{}
	_, err = core.Collect(rows, func(row core.Row) (struct{}, error) {
		var table, privilege string
		err := row.Scan(&table, &privilege)
		all.Add(table, privilege)
		return struct{}{}, err
	})
	return all, err
}
