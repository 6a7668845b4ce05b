package fairlock

import (
	"fmt"

	"github.com/holdfast-go/holdfast/sqllock/internal/keeper"
)

var (
	// ErrNested means that a call would have waited for a lock that the lease of the
	// call's context holds.
	ErrNested = keeper.ErrNested

	// ErrCapacity means that a semaphore is in use with another number of permits.
	ErrCapacity = keeper.ErrCapacity
)

// NestedError says which lease a call would have waited for.
// errors.Is(err, ErrNested) holds.
type NestedError struct {
	Key   string
	Token int64
}

func (e *NestedError) Error() string {
	return fmt.Sprintf("fairlock: the context that asks for lock %.40q has it already, with token %d, and would wait for itself: release that lease first, or ask in a context that does not come from it", e.Key, e.Token)
}

// Is reports whether target is ErrNested.
func (e *NestedError) Is(target error) bool { return target == ErrNested }

// CapacityError says with how many permits other calls use a semaphore's key now.
// errors.Is(err, ErrCapacity) holds.
type CapacityError struct {
	Key             string
	Permits, Others int
}

func (e *CapacityError) Error() string {
	return fmt.Sprintf("fairlock: semaphore %.40q is asked for with %d permits and in use with %d: name the same number everywhere, or wait until none of the others is left", e.Key, e.Permits, e.Others)
}

// Is reports whether target is ErrCapacity.
func (e *CapacityError) Is(target error) bool { return target == ErrCapacity }
