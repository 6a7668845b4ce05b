package main

import (
	"context"
	"strings"
)

// strategy makes a refund, or finds the one that was made.
type strategy func(ctx context.Context, req Request) (refund Refund, replayed bool, err error)

// protection is a strategy with its description. Each has its own file.
type protection struct {
	name string
	says string // one sentence, for the page
	safe bool   // a storm fails when it lets a duplicate through
	// open returns holdfast.ErrUnsupported if the engine cannot support the protection.
	open func(ctx context.Context, s *service) (strategy, error)
}

// protections lists all protections, the default first.
var protections = []protection{withIdempotency, withBusinessRow, withLease, withRowLock, withOptimistic, withNone}

// findProtection finds a protection by its name. The error is for the person who typed it.
func findProtection(name string) (protection, error) {
	for _, p := range protections {
		if p.name == name {
			return p, nil
		}
	}
	return protection{}, usagef("there is no protection %.40q: choose one of %s", name, protectionNames())
}

func protectionNames() string {
	names := make([]string, len(protections))
	for i, p := range protections {
		names[i] = p.name
	}
	return strings.Join(names, ", ")
}
