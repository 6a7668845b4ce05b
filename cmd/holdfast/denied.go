package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/dialect"
	"github.com/holdfast-go/holdfast/migrations"
)

const (
	// maxLacks is how many tables an error lists.
	maxLacks = 3
	// deniedTimeout bounds the question what an account lacks.
	deniedTimeout = 5 * time.Second
)

// roleOf returns the role that an account needs for a command.
func roleOf(cmd *cobra.Command) migrations.Role {
	name := strings.TrimPrefix(cmd.CommandPath(), "holdfast ")
	switch name {
	case "lock", "elect", "once":
		return migrations.App
	case "reap":
		if history := cmd.Flags().Lookup("history"); history != nil && history.Changed {
			return migrations.Reader
		}
		return migrations.Reaper
	case "locks release", "ops resolve", "ops resume", "ops cancel", "ops erase", "ops confirm", "after-restore":
		return migrations.Operator
	case "prove", "bench":
		return migrations.Migrator
	}
	if strings.HasPrefix(name, "migrate") {
		return migrations.Migrator
	}
	return migrations.Reader
}

// denied adds to an error which grants the account lacks for cmd, if it lacks any.
func (f *flags) denied(cmd *cobra.Command, db *holdfast.DB[*sql.Tx], err error) error {
	if db == nil || !errors.Is(err, holdfast.ErrDenied) || strings.Contains(err.Error(), "migrate grants --role") {
		return err // the reaper says itself what it lacks
	}
	role := roleOf(cmd)
	remedy := fmt.Sprintf("holdfast migrate grants --engine %s --role %s --to ACCOUNT", db.Engine(), role)
	if f.schema != "" {
		remedy += " --schema " + f.schema
	}
	ctx, cancel := core.CleanupWithin(cmd.Context(), deniedTimeout)
	defer cancel()
	lacks := f.lacks(ctx, db, role, err)
	if lacks == "" {
		return fmt.Errorf("%w; what the role %s needs: %s", err, role, remedy)
	}
	return fmt.Errorf("%w; the account lacks, for the role %s, %s: %s prints the grants", err, role, lacks, remedy)
}

// deniedOn does the same for a command that works on the pool.
func (f *flags) deniedOn(cmd *cobra.Command, pool *sql.DB, err error) error {
	db, opened := openBare(cmd, pool, f.options())
	if opened != nil {
		return err
	}
	return f.denied(cmd, db, err)
}

// lacks lists the rights that the account lacks: on the tables that err names, or else on the first ones.
func (*flags) lacks(ctx context.Context, db *holdfast.DB[*sql.Tx], role migrations.Role, err error) string {
	a := access.Of(db)
	if a.Dialect.Privileges.Held == nil {
		return ""
	}
	held, names, asked := a.Dialect.HeldOn(ctx, a.Pool, a.Table)
	if asked != nil {
		return ""
	}
	all := a.Dialect.Missing(dialect.Role(role), held, names)
	named := slices.DeleteFunc(slices.Clone(all), func(lack string) bool {
		table := lack[strings.LastIndex(lack, " on ")+len(" on "):]
		return !regexp.MustCompile(`\b` + regexp.QuoteMeta(table) + `\b`).MatchString(err.Error())
	})
	if len(named) > 0 {
		all = named
	}
	if n := len(all) - maxLacks; n > 0 {
		all = append(all[:maxLacks:maxLacks], fmt.Sprintf("and rights on %d more tables", n))
	}
	return strings.Join(all, "; ")
}
