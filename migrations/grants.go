package migrations

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/dialect"
	"github.com/holdfast-go/holdfast/internal/errcode"
)

// Role is what an account of the database is for.
type Role string

// The roles.
const (
	// App is a program that runs operations, holds locks, writes registers, outboxes and limits.
	App = Role(dialect.RoleApp)
	// Reaper clears what has expired.
	Reaper = Role(dialect.RoleReaper)
	// Operator resolves and erases operations, and releases locks by force.
	Operator = Role(dialect.RoleOperator)
	// Reader lists and shows, and runs the doctor.
	Reader = Role(dialect.RoleReader)
	// Migrator makes, changes and drops the tables.
	Migrator = Role(dialect.RoleMigrator)
)

// PrintGrants writes the GRANT statements for an account in a role: on each table the least that the
// statements of the role need. An account may have several roles. It must exist; on MySQL, MariaDB and
// TiDB it is user@host, or user for any host. On PostgreSQL Options.Schema is required. The tables must
// exist, but for [Migrator]. The grants are for Holdfast's tables alone: the program's own are not among
// them. PrintGrants needs no database.
//
// Errors: [holdfast.ErrUnsupported] on SQLite, which has no accounts, and Vitess, whose router takes no
// GRANT; [holdfast.ErrInvalid].
func PrintGrants(w io.Writer, e holdfast.Engine, role Role, account string, opts ...holdfast.Options) error {
	o, err := one(opts)
	if err != nil {
		return err
	}
	l, err := newLayout(e, o)
	if err != nil {
		return err
	}
	switch p := &l.dialect.Privileges; {
	case p.None != "":
		return &holdfast.UnsupportedError{Engine: l.dialect.Name, Check: "grants", What: "grants", Problem: p.None, Remedy: "restrict access there"}
	case !slices.Contains(dialect.Roles, dialect.Role(role)):
		return errcode.Invalid("role", fmt.Sprintf("%q: use one of %q", role, dialect.Roles))
	case account == "" || strings.ContainsRune(account, 0):
		return errcode.Invalid("account", "is missing: say which account gets the grants")
	case p.NeedsSchema && o.Schema == "":
		return errcode.Invalid("Options.Schema", "is missing: the grants name the schema, so say which one has the tables")
	}
	_, err = io.WriteString(w, strings.Join(l.dialect.Grants(dialect.Role(role), l.dialect.Ident(l.schema), l.table, account), ";\n")+";\n")
	return err
}
