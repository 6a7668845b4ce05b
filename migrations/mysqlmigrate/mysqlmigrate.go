// Package mysqlmigrate applies Holdfast's migrations to MySQL and MariaDB.
//
// DDL commits by itself on these engines, so a process that dies on the way
// leaves a file half done (Version says dirty): the next Up or Down repeats it.
// The pool needs no multiStatements. One of its connections is used, and
// closed at the end rather than given back.
//
// The package links no driver: the pool is of the driver that you chose.
package mysqlmigrate

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
	return apply.Up(ctx, holdfast.MySQL, pool, opts)
}

// Down drops Holdfast's tables and deletes every record in them, so that keys
// which were used can be used again. It is for tests and for removal.
func Down(ctx context.Context, pool *sql.DB, opts ...migrations.Option) error {
	return apply.Down(ctx, holdfast.MySQL, pool, opts)
}

// Version reads how far the migrations got, 0 for not at all. Dirty means that
// one is under way, or was cut off: Up and Down then repeat it.
func Version(ctx context.Context, pool *sql.DB, opts ...migrations.Option) (version int, dirty bool, err error) {
	return apply.Version(ctx, holdfast.MySQL, pool, opts)
}
