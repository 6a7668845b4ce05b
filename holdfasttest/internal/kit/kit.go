// Package kit lets holdfasttest's packages make a kit on any handle, which its API does not show.
package kit

import (
	"database/sql"

	"github.com/holdfast-go/holdfast"
)

// TB is holdfasttest.TB.
type TB interface {
	Helper()
	Cleanup(f func())
	Fatalf(format string, args ...any)
	TempDir() string
}

var open func(kit any, tb TB, pool *sql.DB, handle any, opts []holdfast.Options)

// Register is for package holdfasttest.
func Register(f func(kit any, tb TB, pool *sql.DB, handle any, opts []holdfast.Options)) struct{} {
	open = f
	return struct{}{}
}

// Open makes kit, a new *holdfasttest.Kit, a kit on pool and on handle, its core.Adapter.
func Open(kit any, tb TB, pool *sql.DB, handle any, opts []holdfast.Options) {
	tb.Helper()
	open(kit, tb, pool, handle, opts)
}
