package operators //nolint:testpackage // it compiles the statements for each dialect

import (
	"testing"

	"github.com/holdfast-go/holdfast/internal/dialect"
	compiled "github.com/holdfast-go/holdfast/internal/test/statements"
)

func TestEachStatementNamesTheOwner(t *testing.T) {
	t.Parallel()
	compiled.NameTheOwner(t, 16, func(d *dialect.Dialect) any { return compile(d, compiled.Table) },
		"proposals.list", "restore.most", "restore.locks", "restore.tickets", "restore.waiters", "restore.pending", "restore.park")
}
