package migrations

import (
	"cmp"
	"io"
	"strings"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/errcode"
)

// PrintRowSecurity writes the policies of PostgreSQL's row level security for Holdfast's tables: an account
// reads and writes the rows of one owner, the one in the setting Options.OwnerSetting (default:
// [holdfast.DefaultOwnerSetting]), and the database refuses those of any other. Programs open Holdfast
// with the same Options.OwnerSetting, or set it themselves. Without an owner in the setting, an account
// has the rows of the empty owner.
//
// The accounts everyOwner have the rows of every owner: those of the reaper, the operator and the reader, and
// of programs that complete staged operations or relay an outbox. Functions and triggers run as their
// owner, so do not name that one. Superusers and accounts with BYPASSRLS pass the policies.
//
// The owner of the tables applies the statements, once more after each change of everyOwner. They are
// one transaction. They are a fence against the mistakes of a program: who may send any SQL may also
// change the setting.
//
// Errors: [holdfast.ErrUnsupported] on other engines; [holdfast.ErrInvalid].
func PrintRowSecurity(w io.Writer, e holdfast.Engine, everyOwner []string, opts ...holdfast.Options) error {
	o, err := one(opts)
	if err != nil {
		return err
	}
	l, err := newLayout(e, o)
	if err != nil {
		return err
	}
	if l.dialect.RowSecurity == nil {
		return &holdfast.UnsupportedError{Engine: l.dialect.Name, Check: "row level security", What: "policies", Problem: "it has no row level security", Remedy: "give each owner a schema, or a database, with tables of its own"}
	}
	if o.Schema == "" {
		return errcode.Invalid("Options.Schema", "is missing: the policies name the schema, so say which one has the tables")
	}
	for _, account := range everyOwner {
		if account == "" || strings.ContainsRune(account, 0) {
			return errcode.Invalid("everyOwner", "the name of an account is missing")
		}
	}
	tables := make([]string, len(sharded))
	for i, name := range sharded {
		tables[i] = l.table(name)
	}
	list := l.dialect.RowSecurity(cmp.Or(o.OwnerSetting, holdfast.DefaultOwnerSetting), tables, everyOwner)
	_, err = io.WriteString(w, strings.Join(list, ";\n")+";\n")
	return err
}
