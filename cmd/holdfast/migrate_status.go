package main

import (
	"database/sql"
	"fmt"
	"io/fs"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/adapters/holdfastsql"
	"github.com/holdfast-go/holdfast/internal/dialect"
	"github.com/holdfast-go/holdfast/migrations"
)

// The states of a migration.
const (
	stateApplied = "applied"
	statePending = "pending"
	// stateDirty: it was cut off, or runs now.
	stateDirty = "dirty"
)

// migrated is what migrate status says, in JSON.
type migrated struct {
	Version    int         `json:"version"`
	Latest     int         `json:"latest"`
	Dirty      bool        `json:"dirty"`
	Migrations []migration `json:"migrations"`
}

type migration struct {
	Version int    `json:"version"`
	Name    string `json:"name"`
	State   string `json:"state"`
}

func newMigrateStatus(f *flags) *cobra.Command {
	return &cobra.Command{
		Use: "status", Short: "List the migrations and whether each is applied, pending or dirty", Args: noArgs,
		Long: "List the migrations and whether each is applied, pending or dirty, which is cut off or running. The\n" +
			"exit status is 0 when all are applied, and 4 when not. Tables of a newer build than this one are 0.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			pool, err := f.open()
			if err != nil {
				return err
			}
			defer func() { _ = pool.Close() }()
			out, err := f.migrated(cmd, pool)
			if err != nil {
				return f.deniedOn(cmd, pool, err)
			}
			return f.status(cmd, out)
		},
	}
}

// migrated compares the migrations of this build with what is applied.
func (f *flags) migrated(cmd *cobra.Command, pool *sql.DB) (*migrated, error) {
	version, dirty, err := migrations.Applied(cmd.Context(), pool, f.options())
	if err != nil {
		return nil, err
	}
	engine, err := f.engine(cmd, pool)
	if err != nil {
		return nil, err
	}
	files, err := migrations.FS(engine, f.options())
	if err != nil {
		return nil, err
	}
	names, err := fs.Glob(files, "*.up.sql")
	if err != nil {
		return nil, err
	}
	out := &migrated{Version: version, Latest: migrations.Version, Dirty: dirty, Migrations: []migration{}}
	for _, file := range names { // in order: 0001_init.up.sql
		number, name, _ := strings.Cut(strings.TrimSuffix(file, ".up.sql"), "_")
		n, err := strconv.Atoi(number)
		if err != nil {
			return nil, fmt.Errorf("the migration %q has no number: %w", file, err)
		}
		m := migration{n, name, stateApplied}
		switch {
		case n > version:
			m.State = statePending
		case n == version && dirty:
			m.State = stateDirty
		}
		out.Migrations = append(out.Migrations, m)
	}
	return out, nil
}

// openBare opens a database that may have no tables yet.
func openBare(cmd *cobra.Command, pool *sql.DB, o holdfast.Options) (*holdfast.DB[*sql.Tx], error) {
	return holdfastsql.Open(dialect.Without(cmd.Context(), dialect.RuleTables, dialect.RuleUntested), pool, o)
}

func (f *flags) engine(cmd *cobra.Command, pool *sql.DB) (holdfast.Engine, error) {
	db, err := openBare(cmd, pool, f.options())
	if err != nil {
		return "", err
	}
	return db.Engine(), nil
}

func (f *flags) status(cmd *cobra.Command, out *migrated) error {
	rows, left := [][]string{}, 0
	for _, m := range out.Migrations {
		rows = append(rows, []string{strconv.Itoa(m.Version), m.Name, m.State})
		if m.State != stateApplied {
			left++
		}
	}
	said := fmt.Sprintf("version %d of %d\n", out.Version, out.Latest)
	if out.Version > out.Latest {
		said = fmt.Sprintf("version %d, of a newer build than this one, which knows %d\n", out.Version, out.Latest)
	}
	if err := f.answer(cmd, out, f.table(cmd, "no migrations", "VERSION NAME STATE", rows)+said); err != nil {
		return err
	}
	switch {
	case out.Dirty:
		return pendingError{"a migration was cut off, or runs now: run holdfast migrate up again"}
	case left > 0:
		return pendingError{fmt.Sprintf("%d of %d migrations are not applied: run holdfast migrate up", left, len(out.Migrations))}
	}
	return nil
}
