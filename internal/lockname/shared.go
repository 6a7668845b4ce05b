package lockname

import (
	"context"
	"slices"
	"strconv"
	"strings"

	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/dialect"
)

var kinds = []Kind{Lease, Fair, Semaphore, Row}

// String names the kind as users know it.
func (k Kind) String() string {
	switch k {
	case Lease:
		return "lease"
	case Fair:
		return "fair lock"
	case Semaphore:
		return "semaphore"
	case Row:
		return "row-lock key"
	}
	return "kind " + strconv.QuoteRune(rune(k))
}

// Shared is a key under which locks of several kinds have rows. Locks of different
// kinds do not exclude each other, so this is mostly a mistake.
type Shared struct {
	Owner, Key string
	Kinds      []Kind
}

// SharedOf returns those of an owner's keys, at most 256, that locks of several kinds use. It
// reads their rows by the primary key. A row that the reaper has deleted is not seen.
func SharedOf(ctx context.Context, q core.Querier, d *dialect.Dialect, table, owner string, keys []string) ([]Shared, error) {
	if len(keys) == 0 {
		return nil, nil
	}
	args := []any{owner}
	for _, key := range core.Pad(keys) {
		for _, k := range kinds {
			args = append(args, append([]byte{byte(k)}, key...))
		}
	}
	rows, err := d.Compile("locks.shared", strings.NewReplacer("{locks}", table, "{names}", dialect.Params(len(args)-1)).Replace(dialect.NamedLocks)).Query(ctx, q, args...)
	if err != nil {
		return nil, err
	}
	names, err := core.Collect(rows, core.Value[[]byte])
	if err != nil {
		return nil, err
	}
	found := map[string][]Kind{}
	for _, name := range names {
		key := string(name[1:])
		found[key] = append(found[key], Kind(name[0]))
	}
	var shared []Shared
	for _, key := range keys {
		if used := found[key]; len(used) > 1 {
			slices.SortFunc(used, func(x, y Kind) int { return slices.Index(kinds, x) - slices.Index(kinds, y) })
			shared = append(shared, Shared{owner, key, used})
			delete(found, key) // a key may be given twice
		}
	}
	return shared, nil
}

// SharedKeys returns up to limit keys that locks of several kinds use. It reads the
// whole table.
func SharedKeys(ctx context.Context, q core.Querier, d *dialect.Dialect, table string, limit int) ([]Shared, error) {
	text := strings.NewReplacer("{locks}", table, "{limit}", strconv.Itoa(limit)).Replace(dialect.SharedLocks)
	rows, err := d.Compile("locks.shared_keys", text).Query(ctx, q)
	if err != nil {
		return nil, err
	}
	found, err := core.Collect(rows, func(row core.Row) (n Name, err error) {
		var key []byte
		err = row.Scan(&n.Owner, &key)
		n.row = string(Lease) + string(key)
		return n, err
	})
	if err != nil {
		return nil, err
	}
	var all []Shared
	for owner, names := range ByOwner(found, func(n Name) Name { return n }) {
		keys := make([]string, len(names))
		for i, n := range names {
			keys[i] = n.Key()
		}
		shared, err := SharedOf(ctx, q, d, table, owner, keys)
		if err != nil {
			return nil, err
		}
		all = append(all, shared...)
	}
	return all, nil
}
