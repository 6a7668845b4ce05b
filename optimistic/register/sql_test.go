package register

import (
	"testing"

	"github.com/holdfast-go/holdfast/internal/dialect"
	compiled "github.com/holdfast-go/holdfast/internal/test/statements"
)

func TestEachStatementNamesTheOwner(t *testing.T) {
	t.Parallel()
	compiled.NameTheOwner(t, 10, func(d *dialect.Dialect) any { return compile(d, compiled.Table) })
}
