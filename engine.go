package holdfast

import (
	"context"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/dialect"
	"github.com/holdfast-go/holdfast/internal/dialect/mariadb"
	"github.com/holdfast-go/holdfast/internal/dialect/mysql"
	"github.com/holdfast-go/holdfast/internal/dialect/postgres"
	"github.com/holdfast-go/holdfast/internal/dialect/sqlite"
	"github.com/holdfast-go/holdfast/internal/dialect/tidb"
	"github.com/holdfast-go/holdfast/internal/dialect/vitess"
)

// Engine names a database engine.
type Engine string

// The engines that Holdfast works with.
const (
	PostgreSQL Engine = "postgres"
	MySQL      Engine = "mysql"
	MariaDB    Engine = "mariadb"
	TiDB       Engine = "tidb"
	Vitess     Engine = "vitess"
	SQLite     Engine = "sqlite"
)

// Capabilities describes the differences between engines that callers may need.
type Capabilities struct {
	// RowLocks: SELECT ... FOR UPDATE locks rows.
	RowLocks bool
	// TransactionalDDL: DDL rolls back with its transaction. If false, DDL in a function first
	// commits the open transaction.
	TransactionalDDL bool
	// DetectsInProgress: a wait for another session's uncommitted claim can be distinguished
	// from other waits, so "in progress" is known at once. If false, a busy database also
	// counts as in progress.
	DetectsInProgress bool
	// Triggers: Enforce of packages optimistic and fence works.
	Triggers bool
	// SharedGuards: transactions that guard leases of one shared lock run side by side. If false,
	// one waits for the other.
	SharedGuards bool
	// NamesBlockers: the server tells who blocks a session that waits for a lock, so that the errors of a
	// wait that is over can name those sessions.
	NamesBlockers bool
	// LockTimeouts: TxOptions.LockTimeout and a claim's wait end waits for locks. If false, only
	// the server's own setting does.
	LockTimeouts bool
	// LockTimeoutUnit is the unit to which lock timeouts are rounded up.
	LockTimeoutUnit time.Duration
	// MultiPrimary: the server is a node of a Galera cluster, or of a MySQL group with several
	// primaries, and other nodes may accept writes too (see [Options].SingleWriter). Row locks
	// do not reach other nodes, and Holdfast refuses them. A transaction may be rolled back
	// (1213, 3101) at any statement and at COMMIT. Each node has its own clock.
	MultiPrimary bool
}

func dialects() []dialect.Dialect {
	return []dialect.Dialect{postgres.Dialect, mariadb.Dialect, tidb.Dialect, vitess.Dialect, mysql.Dialect, sqlite.Dialect}
}

func findDialect(e Engine) (*dialect.Dialect, error) {
	for _, d := range dialects() {
		if d.Name == string(e) {
			return &d, nil
		}
	}
	return nil, &InputError{Field: "Engine", Problem: fmt.Sprintf("%q is not one of postgres, mysql, mariadb, tidb, vitess, sqlite", e)}
}

// detect asks the server for its engine and version. SQLite has no version(), and the other
// engines have no sqlite_version().
func detect(ctx context.Context, q core.Querier) (Engine, string, error) {
	var version string
	_, err := core.QueryRow(ctx, q, []any{&version}, `SELECT version()`)
	if err != nil {
		if ctx.Err() != nil {
			return "", "", fmt.Errorf("holdfast: asking the database for its version: %w", err)
		}
		if _, e := core.QueryRow(ctx, q, []any{&version}, `SELECT sqlite_version()`); e != nil {
			return "", "", fmt.Errorf("holdfast: asking the database for its version: %w", err)
		}
		return SQLite, version, nil
	}
	e, err := engineOf(version)
	return e, version, err
}

// engineOf returns the engine whose queries fit a server with this version text. The facts
// then identify the product.
func engineOf(version string) (Engine, error) {
	if other, ok := dialect.LookAlikeIn(version); ok {
		return "", refusedEngine(other)
	}
	for _, d := range dialects() {
		if banner := d.Admission.Banner; banner != nil && banner(version) {
			return Engine(d.Name), nil
		}
	}
	return "", refusedEngine(dialect.Identity{Product: fmt.Sprintf("%.60q", version), Standing: dialect.Unfit, Why: "Holdfast does not work with this engine"})
}

func refusedEngine(is dialect.Identity) error {
	return &UnsupportedError{Engine: is.Product, Check: "engine", What: "engine", Problem: is.Why, Remedy: "see the table of engines in docs/reference/environments.md"}
}
