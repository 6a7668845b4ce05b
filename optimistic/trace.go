package optimistic

import (
	"errors"

	"github.com/holdfast-go/holdfast/internal/trace"
	"github.com/holdfast-go/holdfast/optimistic/internal/work"
)

// outcome names this package's errors.
func outcome(err error) string {
	if errors.Is(err, ErrDuplicate) {
		return trace.Duplicate
	}
	return work.Outcome(err)
}
