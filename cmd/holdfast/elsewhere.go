package main

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"

	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/idempotency/operators"
	"github.com/holdfast-go/holdfast/sqllock"
)

const (
	// maxElsewhere is how many rows an empty list looks at to say where there are some.
	maxElsewhere = 1000
	// maxPlaces is how many places it names.
	maxPlaces = 3
)

// counts are how many there are in each place.
type counts map[string]int

// say returns "; 3 in "payments", 1 in "orders"", the most first. capped: there may be more.
func (c counts) say(of string) string {
	places := make([]string, 0, len(c))
	total := 0
	for place, n := range c {
		places, total = append(places, place), total+n
	}
	slices.SortFunc(places, func(a, b string) int { return cmp.Or(c[b]-c[a], strings.Compare(a, b)) })
	more := ""
	if n := len(places) - maxPlaces; n > 0 {
		places, more = places[:maxPlaces], fmt.Sprintf(", and in %d more", n)
	}
	said := make([]string, len(places))
	for i, p := range places {
		said[i] = fmt.Sprintf("%d %s %q", c[p], of, p)
	}
	if total >= maxElsewhere {
		more += fmt.Sprintf("; of the first %d", maxElsewhere)
	}
	return strings.Join(said, ", ") + more
}

// operationsElsewhere says in which namespaces there are operations in the filter's states. It is called
// for an empty list only, and reads a bounded number of rows.
func (o *opsFlags) operationsElsewhere(ctx context.Context, ops *operators.Operators[*sql.Tx], filter operators.Filter) (string, error) {
	found, err := ops.Namespaces(ctx, filter, maxElsewhere)
	if err != nil {
		return "", err
	}
	here := cmp.Or(o.namespace, idempotency.DefaultNamespace)
	none := fmt.Sprintf("none in the namespace %q", here)
	if n := found[here]; n > 0 {
		none = fmt.Sprintf("none of these in the namespace %q, which has %d others in such a state", here, n)
		delete(found, here)
	}
	if len(found) == 0 {
		return none, nil
	}
	return none + "; " + counts(found).say("in"), nil
}

// leasesElsewhere names the owners of leases that the flags left out.
func (l *listFlags) leasesElsewhere(ctx context.Context, locks *sqllock.Locker[*sql.Tx], o sqllock.ListOptions) (string, error) {
	if o.Prefix == "" && o.EveryOwner {
		return "no leases", nil
	}
	found, total := counts{}, 0
	for i, err := range locks.List(ctx, sqllock.ListOptions{Free: o.Free, EveryOwner: true}) {
		if err != nil {
			return "", err
		}
		found[i.Owner]++
		if total++; total == maxElsewhere {
			break
		}
	}
	none := "no leases that begin so"
	if !o.EveryOwner {
		none = fmt.Sprintf("no such leases of the owner %q", l.owner)
	}
	if len(found) == 0 {
		return none, nil
	}
	return none + "; " + found.say("of"), nil
}
