// Package sqlitemigrate applies Holdfast's migrations to SQLite.
//
// Each file is one transaction: it stands whole or not at all.
//
// The package links no driver: the pool is of the driver that you chose.
package sqlitemigrate

import (
	"context"
	"database/sql"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/migrations"
	"github.com/holdfast-go/holdfast/migrations/internal/apply"
)

// Up applies what is missing. Any number of processes may call it at the same
// moment, at every start: they take turns, for a minute at most. It leaves the
// tables of a newer build as they are, and the pool open.
func Up(ctx context.Context, pool *sql.DB, opts ...migrations.Option) error {
	return apply.Up(ctx, holdfast.SQLite, pool, opts)
}

// Down drops Holdfast's tables and deletes every record in them, so that keys
// which were used can be used again. It is for tests and for removal.
func Down(ctx context.Context, pool *sql.DB, opts ...migrations.Option) error {
	return apply.Down(ctx, holdfast.SQLite, pool, opts)
}

// Version reads how far the migrations got, 0 for not at all. Dirty means that
// one is under way, or was cut off: Up and Down then repeat it.
func Version(ctx context.Context, pool *sql.DB, opts ...migrations.Option) (version int, dirty bool, err error) {
	return apply.Version(ctx, holdfast.SQLite, pool, opts)
}
