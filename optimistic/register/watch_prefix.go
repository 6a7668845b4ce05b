package register

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/dialect"
	"github.com/holdfast-go/holdfast/internal/options"
)

// changedBatch is how many values WatchPrefix reads with one statement.
const changedBatch = 64

// WatchPrefixOptions configure [Register.WatchPrefix]. The zero value of each field is its
// default.
type WatchPrefixOptions struct {
	// Known has the revisions of the names that the caller knows already, such as those that
	// [Register.List] returned. A name of it is yielded only if its revision is another.
	// Default: none, so that each existing value is yielded at once.
	Known map[string]int64
	// Interval is as in [WatchOptions].
	Interval time.Duration
}

// WatchPrefix reads the names of the owner that begin with prefix again and again, and yields each
// one whose revision has changed, in the order of the names' bytes. A deletion is yielded as an
// Entry whose Value is nil. The prefix "" selects all names.
//
//	for entry, err := range values.WatchPrefix(ctx, "limits/") {
//		if err != nil {
//			return err
//		}
//		...
//	}
//
// What is yielded of a name is its latest state, not each change between two reads. Revisions of a
// name only rise; a name that was created and deleted between two reads is not yielded. No change
// is lost, however long a watch was away: there is no history that could be compacted, because
// each name keeps its last revision for ever. Names do not change together: of two
// names that a transaction changes, one may be yielded a read later than the other.
//
// Each Interval it reads the names and revisions of the prefix by the primary key, 1,000 with each
// statement, deleted names included, and then the values that are new, 64 with each statement. So
// it is for some thousand names, not for millions. It holds the names and revisions in memory.
// Between two reads it holds no connection, and it does not read while the loop's body runs.
//
// Errors: those of [Register.Watch].
func (r *Register[Tx]) WatchPrefix(ctx context.Context, prefix string, opts ...WatchPrefixOptions) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		o, err := options.One(opts)
		each := WatchOptions{Interval: o.Interval}
		if err == nil {
			err = each.check()
		}
		if err == nil {
			err = r.checkPrefix(prefix)
		}
		for _, revision := range o.Known {
			if err == nil && revision < 0 {
				err = invalid("WatchPrefixOptions.Known", fmt.Sprintf("%d is negative: give revisions that were read", revision))
			}
		}
		if err != nil {
			yield(Entry{}, err)
			return
		}
		w := prefixWatch[Tx]{register: r, prefix: prefix, known: maps.Clone(o.Known)}
		if w.known == nil {
			w.known = map[string]int64{}
		}
		if err := r.watch(ctx, each.Interval, func() (bool, error) { return w.round(ctx, yield) }); err != nil {
			yield(Entry{}, err)
		}
	}
}

// prefixWatch is one call of WatchPrefix. known has the revision of each name that has a value.
type prefixWatch[Tx any] struct {
	register *Register[Tx]
	prefix   string
	known    map[string]int64
}

// round yields what has changed. It returns false if the loop has ended.
func (w prefixWatch[Tx]) round(ctx context.Context, yield func(Entry, error) bool) (goes bool, err error) {
	changed, err := w.changed(ctx)
	if err != nil {
		return true, err
	}
	for names := range slices.Chunk(changed, changedBatch) {
		entries, err := w.register.entries(ctx, names)
		if err != nil {
			return true, err
		}
		for _, e := range entries {
			revision, had := w.known[e.Name]
			if e.Value == nil {
				delete(w.known, e.Name)
			} else {
				w.known[e.Name] = e.Revision
			}
			if revision == e.Revision || !had && e.Value == nil {
				continue // it was deleted before it was ever seen
			}
			if !yield(e, nil) {
				return false, nil
			}
		}
	}
	return true, nil
}

// changed returns the names whose revision is not the known one.
func (w prefixWatch[Tx]) changed(ctx context.Context) (changed []string, err error) {
	r := w.register
	for from, before := []byte(w.prefix), behind(w.prefix); ; {
		rows, err := r.revisions.Query(ctx, r.work.Access.Pool, r.owner.ID, from, before, revisionPage)
		if err != nil {
			return nil, err
		}
		n := 0
		_, err = core.Collect(rows, func(row core.Row) (_ struct{}, err error) {
			var name []byte
			var revision int64
			var deleted int
			err = row.Scan(&name, &revision, &deleted)
			was, had := w.known[string(name)]
			if err == nil && was != revision && (had || deleted == 0) {
				changed = append(changed, string(name))
			}
			n, from = n+1, append(slices.Clone(name), 0)
			return struct{}{}, err
		})
		if err != nil || n < revisionPage {
			return changed, err
		}
	}
}

// entries reads names, which must not be none.
func (r *Register[Tx]) entries(ctx context.Context, names []string) ([]Entry, error) {
	args := []any{r.owner.ID}
	for _, name := range core.Pad(names) {
		args = append(args, []byte(name))
	}
	some := r.work.Access.Dialect.Compile("register.some", strings.Replace(r.some, "{names}", dialect.Params(len(args)-1), 1))
	rows, err := some.Query(ctx, r.work.Access.Pool, args...)
	if err != nil {
		return nil, err
	}
	return core.Collect(rows, func(row core.Row) (e Entry, err error) {
		var name []byte
		var deleted int
		err = row.Scan(&name, &e.Revision, &deleted, &e.Value)
		if e.Name = string(name); deleted == 0 {
			e.Value = notNil(e.Value)
		}
		return e, err
	})
}
