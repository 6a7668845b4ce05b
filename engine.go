package holdfast

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/dialect"
	"github.com/holdfast-go/holdfast/internal/dialect/mariadb"
	"github.com/holdfast-go/holdfast/internal/dialect/mysql"
	"github.com/holdfast-go/holdfast/internal/dialect/postgres"
	"github.com/holdfast-go/holdfast/internal/dialect/sqlite"
)

// Engine names a database engine.
type Engine string

// The engines that Holdfast works with.
const (
	PostgreSQL Engine = "postgres"
	MySQL      Engine = "mysql"
	MariaDB    Engine = "mariadb"
	SQLite     Engine = "sqlite"
)

// Capabilities are the ways of an engine that a caller may have to know.
type Capabilities struct {
	// RowLocks: SELECT ... FOR UPDATE locks rows.
	RowLocks bool
	// TransactionalDDL: DDL rolls back with its transaction. Where it is
	// false, DDL in a function commits the transaction before it.
	TransactionalDDL bool
	// SeesClaims: a claim of another session that is not yet committed can be
	// told from other waits, so that "in progress" is known at once. Where it
	// is false, a busy database is answered as in progress.
	SeesClaims bool
	// LockTimeoutUnit is what a lock timeout is rounded up to.
	LockTimeoutUnit time.Duration
	// MultiPrimary: this is a node of a Galera cluster, and other nodes may take
	// writes too (see [WithSingleWriter]). Row locks end at their node, and are
	// refused; a transaction may be rolled back (1213) at any statement and at
	// COMMIT; each node has a clock of its own.
	MultiPrimary bool
}

func dialects() []dialect.Dialect {
	return []dialect.Dialect{postgres.Dialect, mysql.Dialect, mariadb.Dialect, sqlite.Dialect}
}

func findDialect(e Engine) (*dialect.Dialect, error) {
	for _, d := range dialects() {
		if d.Name == string(e) {
			return &d, nil
		}
	}
	return nil, &InputError{"Engine", fmt.Sprintf("%q is not one of postgres, mysql, mariadb, sqlite", e)}
}

// detect asks the server what it is. SQLite has no version(), the others no
// sqlite_version(); the relatives of PostgreSQL and MySQL name themselves.
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

func engineOf(version string) (Engine, error) {
	for _, other := range []struct{ mark, name string }{
		{"CockroachDB", "CockroachDB"}, {"TiDB", "TiDB"}, {"-YB-", "YugabyteDB"}, {"Redshift", "Redshift"},
	} {
		if strings.Contains(version, other.mark) {
			return "", &UnsupportedError{
				other.name, "engine",
				"its locks were not tested with Holdfast; see the engines table in the README",
			}
		}
	}
	switch {
	case strings.HasPrefix(version, "PostgreSQL "):
		return PostgreSQL, nil
	case strings.Contains(version, "MariaDB"):
		return MariaDB, nil
	case version != "" && version[0] >= '5' && version[0] <= '9' || strings.HasPrefix(version, "1"):
		return MySQL, nil
	}
	return "", &UnsupportedError{fmt.Sprintf("%.60q", version), "engine", "this version is none that Holdfast knows; name the engine with WithEngine if it is one of them"}
}
