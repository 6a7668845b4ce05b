package idempotency

import (
	"testing"

	"github.com/holdfast-go/holdfast/internal/dialect"
	compiled "github.com/holdfast-go/holdfast/internal/test/statements"
)

func TestEachStatementOfAnIntentNamesTheOwner(t *testing.T) {
	t.Parallel()
	compiled.NameTheOwner(t, 5, func(d *dialect.Dialect) any { return compileIntents(d, compiled.Table) })
}
