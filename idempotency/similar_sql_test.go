package idempotency

import (
	"testing"

	"github.com/holdfast-go/holdfast/internal/dialect"
	compiled "github.com/holdfast-go/holdfast/internal/test/statements"
)

func TestEachStatementOfSimilarNamesTheOwner(t *testing.T) {
	t.Parallel()
	compiled.NameTheOwner(t, 5, func(d *dialect.Dialect) any { return compileSimilar(d, compiled.Table) })
}
