package doctor

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/dialect"
)

// Size is the size of one of Holdfast's tables, as the engine estimates it.
type Size struct {
	// Table is the name without the prefix, such as "records".
	Table string
	// Rows is an estimate: PostgreSQL's of the last ANALYZE or autovacuum, MySQL's and MariaDB's of
	// their statistics, which MySQL may keep for a day.
	Rows int64
	// Bytes are those of the table with its indexes.
	Bytes int64
}

// Sizes returns the sizes of Holdfast's tables, the largest first. It reads the engine's statistics and
// no row.
//
// Errors: [holdfast.ErrUnsupported] on SQLite, TiDB and Vitess, which do not tell; the driver's.
func Sizes[Tx any](ctx context.Context, db *holdfast.DB[Tx]) ([]Size, error) {
	a := access.Of(db)
	query := a.Dialect.Doctor.Sizes
	if query == "" {
		return nil, &holdfast.UnsupportedError{Engine: db.Product(), Check: "sizes", What: "the size of a table", Problem: "the engine does not tell"}
	}
	args, names := []any{a.Catalog.Schema}, map[string]string{}
	places := make([]string, len(dialect.Tables))
	for i, table := range dialect.Tables {
		name := a.Table(table)
		name = strings.Trim(name[strings.LastIndexByte(name, '.')+1:], "`\"")
		names[name] = table
		args = append(args, name)
		places[i] = "$" + strconv.Itoa(i+2)
	}
	stmt := a.Dialect.Compile("sizes", strings.ReplaceAll(query, "{names}", strings.Join(places, ", ")))
	rows, err := stmt.Query(ctx, a.Pool, args...)
	if err != nil {
		return nil, fmt.Errorf("doctor: reading the sizes of the tables: %w", err)
	}
	return core.Collect(rows, func(row core.Row) (s Size, err error) {
		var name string
		err = row.Scan(&name, &s.Rows, &s.Bytes)
		s.Table = names[name]
		return s, err
	})
}
