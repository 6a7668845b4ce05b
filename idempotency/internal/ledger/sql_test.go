package ledger

import (
	"testing"

	"github.com/holdfast-go/holdfast/internal/dialect"
	"github.com/holdfast-go/holdfast/internal/test/statements"
)

func TestEachStatementNamesTheOwner(t *testing.T) {
	t.Parallel()
	statements.NameTheOwner(t, 52, func(d *dialect.Dialect) any { return compile(d, statements.Table) },
		"staged.due", "staged.step.find", "lists.list", "lists.recordList", "lists.namespaces", "lists.recordNamespaces")
}
