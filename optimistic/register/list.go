package register

import (
	"bytes"
	"context"
	"fmt"
	"iter"

	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/options"
)

const (
	listPage     = 100  // values that List reads with one statement
	revisionPage = 1000 // names that WatchPrefix reads with one statement
)

// ListOptions configure [Register.List]. The zero value of each field is its default.
type ListOptions struct {
	// After is the entry that the list continues after, by its Name. Default: from the first one.
	After Entry
}

// List iterates over the names of the owner that begin with prefix and have a value, in the order
// of their bytes. The prefix "" selects all names.
//
//	for entry, err := range values.List(ctx, "limits/") {
//		if err != nil {
//			return err
//		}
//		...
//	}
//
// It reads 100 entries with each statement, and none while the loop's body runs. Each statement
// reads what is committed then, so the list as a whole is no snapshot: of two names that change in
// one transaction, it may have the new value of one and the old value of the other.
//
// Errors: it ends at the first one. [holdfast.ErrInvalid], the error of ctx, the driver's.
func (r *Register[Tx]) List(ctx context.Context, prefix string, opts ...ListOptions) iter.Seq2[Entry, error] {
	o, err := options.One(opts)
	if err == nil {
		err = r.checkPrefix(prefix)
	}
	return core.Pages(err, o.After, listPage, func(after Entry) ([]Entry, error) {
		from := []byte(prefix)
		if after.Name >= prefix && after.Name != "" {
			from = append([]byte(after.Name), 0)
		}
		return r.page(ctx, from, behind(prefix))
	})
}

// page reads entries from a name on.
func (r *Register[Tx]) page(ctx context.Context, from, before []byte) ([]Entry, error) {
	rows, err := r.list.Query(ctx, r.work.Access.Pool, r.owner.ID, from, before, listPage)
	if err != nil {
		return nil, err
	}
	return core.Collect(rows, func(row core.Row) (e Entry, err error) {
		var name []byte
		err = row.Scan(&name, &e.Revision, &e.Value)
		e.Name, e.Value = string(name), notNil(e.Value)
		return e, err
	})
}

// behind returns the least name that sorts after all names with prefix.
func behind(prefix string) []byte {
	if p := core.Behind([]byte(prefix)); p != nil {
		return p
	}
	return bytes.Repeat([]byte{0xff}, MaxName+1) // no name is longer than MaxName
}

func (r *Register[Tx]) checkPrefix(prefix string) error {
	if len(prefix) > MaxName {
		return invalid("prefix", fmt.Sprintf("has %d bytes, and a name has up to %d", len(prefix), MaxName))
	}
	return r.owner.Err
}
