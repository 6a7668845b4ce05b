package optimistic

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/dialect"
)

// ProcedureOptions configure [Table.ProcedureSQL]. The zero value of each field is its default.
type ProcedureOptions struct {
	// Name is the name of the procedure, in the schema of the table. A procedure of this name is
	// replaced. Default: update_ and the name of the table.
	Name string
	// Columns are the columns that the procedure sets. Default: those of R but the key and the
	// version.
	Columns []string
	// Roles are the roles (PostgreSQL) or the accounts, as name or name@host (MySQL, MariaDB),
	// that may update the table through the procedure alone. They may also read it, and insert.
	Roles []string
}

// ProcedureSQL returns the statements that make a procedure the only way to update the table, for
// an administrator or for a migration of the program's own. It changes nothing itself.
//
//	SELECT update_orders(42, 7, 'paid')  -- PostgreSQL: a function, which returns the new version
//	CALL update_orders(42, 7, 'paid')    -- MySQL, MariaDB
//
// The parameters are the columns of the key, the version that was read, for a UUID the new
// version, and Columns, in this order. On PostgreSQL they have the names of their columns; the new
// version of a UUID has new_ before it. The procedure increases the version by one. If the row
// does not have the version, or does not exist, it fails with the error of a trigger of
// [Table.Enforce], which [AsConflict] makes an [ErrConflict].
//
// The procedure runs with the rights of the user who runs the statements, who needs SELECT and
// UPDATE on the table, and may be replaced or dropped by that user alone. On PostgreSQL its
// search_path is fixed. The statements then leave each role SELECT and INSERT on the table: an
// INSERT cannot change a row without the privileges UPDATE and DELETE, so the roles can neither
// upsert nor REPLACE. They revoke what PUBLIC and the roles were granted on the table. They cannot
// revoke the rest: the rights of the table's owner and of superusers, of roles that a role is a
// member of, and, on MySQL and MariaDB, privileges on single columns, on the database or on all of
// them.
//
// Errors: [ErrNotEnforced] ([*EnforceError]) on an engine without procedures, such as SQLite, which
// has no users either; [holdfast.ErrInvalid]; the error of ctx; the driver's.
func (t *Table[R, Tx]) ProcedureSQL(ctx context.Context, o ProcedureOptions) ([]string, error) {
	d := t.work.Access.Dialect
	if d.Enforce.Procedure == nil || !d.Capabilities.Triggers {
		return nil, &EnforceError{Table: t.spec.Table, Trigger: "none", Problem: string(t.work.DB.Engine()) + " has no procedures: call Enforce, which refuses updates that leave the version unchanged, where the engine has triggers"}
	}
	if o.Columns == nil {
		o.Columns = t.values.Names()
	}
	fields, err := t.values.Pick("ProcedureOptions.Columns", o.Columns)
	if err != nil {
		return nil, err
	}
	p := dialect.Procedure{Schema: t.table.Schema, Table: t.spec.Table, Name: cmp.Or(o.Name, "update_"+t.spec.Table), UUID: t.version.uuid, Roles: o.Roles}
	if err := t.work.Access.Catalog.Check("ProcedureOptions.Name", p.Name); err != nil {
		return nil, err
	}
	for _, role := range o.Roles {
		if err := core.CheckName("ProcedureOptions.Roles", role, false); err != nil {
			return nil, err
		}
	}
	names := fields.Names()
	if p.UUID && slices.Contains(append(names, t.spec.Key...), "new_"+t.column) {
		return nil, invalid("ProcedureOptions.Columns", fmt.Sprintf("column %q has the name of the parameter for the new version", "new_"+t.column))
	}
	types, err := t.types(ctx)
	if err != nil {
		return nil, err
	}
	typed := func(names ...string) (all []dialect.ProcedureColumn) {
		for _, name := range names {
			all = append(all, dialect.ProcedureColumn{Name: name, Type: types[name]})
		}
		return all
	}
	p.Key, p.Set, p.Version = typed(t.spec.Key...), typed(names...), typed(t.column)[0]
	return d.Enforce.Procedure(p), nil
}

// types reads the types of the columns, where the engine's procedures need them.
func (t *Table[R, Tx]) types(ctx context.Context) (map[string]string, error) {
	d := t.work.Access.Dialect
	if d.Enforce.Types == "" {
		return nil, nil
	}
	rows, err := d.Compile("enforce.types", d.Enforce.Types).Query(ctx, t.work.Access.Pool, t.table.Schema, t.spec.Table)
	if err != nil {
		return nil, fmt.Errorf("optimistic: table %s: reading its columns: %w", t.spec.Table, err)
	}
	list, err := core.Collect(rows, func(row core.Row) (c dialect.ProcedureColumn, err error) {
		err = row.Scan(&c.Name, &c.Type)
		return c, err
	})
	if err != nil {
		return nil, fmt.Errorf("optimistic: table %s: reading its columns: %w", t.spec.Table, err)
	}
	types := map[string]string{}
	for _, c := range list {
		types[c.Name] = c.Type
	}
	return types, nil
}
