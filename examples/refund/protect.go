package main

import (
	"context"
	"slices"
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

// perClick lists those that take the client's own key instead of the refund's number. They are for
// the storm, whose clients generate a key for each click, and not on the page.
var perClick = []protection{withIntentGuard, withKeyPerClick}

// findProtection finds a protection by its name. The error is for the person who typed it.
func findProtection(name string) (protection, error) {
	for _, p := range slices.Concat(protections, perClick) {
		if p.name == name {
			return p, nil
		}
	}
	return protection{}, usagef("there is no protection %.40q: choose one of %s", name, protectionNames())
}

func protectionNames() string {
	var names []string
	for _, p := range slices.Concat(protections, perClick) {
		names = append(names, p.name)
	}
	return strings.Join(names, ", ")
}
