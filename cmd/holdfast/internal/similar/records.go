package similar

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/dialect"
	"github.com/holdfast-go/holdfast/internal/options"
)

// Defaults and bounds of Filter.
const (
	DefaultWindow  = 10 * time.Minute
	DefaultSince   = 30 * 24 * time.Hour
	DefaultMaxRows = 100_000 // rows
	DefaultLimit   = 100     // pairs

	maxRows  = 10_000_000
	maxLimit = 10_000

	pageRows = 1000 // rows that one statement reads
)

// Filter says which pairs to look for, and how much to read.
type Filter struct {
	// Namespace, Owner and Name select records; an empty Owner means all, and an empty Namespace the
	// default. Name is required for records.
	Namespace, Owner, Name string
	// Window is how close in time two are: 50 ms to 100 years. Default: 10 minutes.
	Window time.Duration
	// Since is how far to look back, by the database's clock: 50 ms to 100 years. Default: 30 days.
	Since time.Duration
	// MaxRows bounds the rows that are read, in the order of their keys: up to 10,000,000. Default:
	// 100,000. About 200 bytes are kept for each row that is young enough.
	MaxRows int
	// Limit bounds the pairs that are returned. Default: 100, at most 10,000.
	Limit int
}

// Pairs is what was found.
type Pairs struct {
	// Pairs are two in a row that are alike and close in time, the latest first.
	Pairs []Pair
	// Found counts the pairs, Rows the rows that were read. Complete reports that MaxRows left none
	// out.
	Found, Rows int
	Complete    bool
}

// Pair is two operations, or rows, that are alike.
type Pair struct {
	// Owner is that of operations. By has the values of the columns that rows have in common.
	Owner         string
	By            []string
	First, Second Occurrence
	// Apart is the time between the two.
	Apart time.Duration
}

// Occurrence is one of a Pair.
type Occurrence struct {
	// Key is the key of the operation, or the row's, with the values of its columns joined as
	// idempotency.KeyOf does.
	Key        string
	At         time.Time
	BusinessID string
}

// compile compiles the statement that reads the records of one owner, or of every owner, page by
// page in the order of their keys. Parameters: the owner ($0) and key_hash to continue after, limit.
func compile(d *dialect.Dialect, table func(string) string, every bool) core.Stmt {
	after := `owner = $0 AND key_hash > $1`
	if every {
		after = d.Compare([]string{"owner", "key_hash"}, ">", "$0", "$1")
	}
	return d.Compile("records.alike", d.Names(table).Replace(`SELECT owner, key_hash, namespace, operation, op_key, fingerprint_version, fingerprint, state, created_at, COALESCE(business_id, ''), {now}
FROM {records} WHERE `+after+` ORDER BY owner, key_hash LIMIT $2`))
}

// Records finds operations that were executed under different keys for the same request (by its
// fingerprint) and are close in time: what idempotency.Similar would have asked about, if it were made
// of the whole request. It reads records of Do in pages of a thousand, without a lock. Staged
// operations, rejections, and records without a fingerprint are left out.
//
// Errors: [holdfast.ErrInvalid], [holdfast.ErrSchema], [holdfast.ErrRetry], errors of the driver.
func Records(ctx context.Context, db *holdfast.DB[*sql.Tx], a Filter) (Pairs, error) {
	a.Namespace = cmp.Or(a.Namespace, idempotency.DefaultNamespace)
	if err := cmp.Or(core.CheckName("Filter.Namespace", a.Namespace, false), core.CheckName("Filter.Owner", a.Owner, true), core.CheckName("Filter.Name", a.Name, false), a.withDefaults()); err != nil {
		return Pairs{}, err
	}
	access := access.Of(db)
	page := compile(access.Dialect, access.Table, a.Owner == "")
	f := finder{Filter: a, groups: map[string][]item{}}
	owner, after := a.Owner, []byte{}
	err := f.read(ctx, db.Retryable, func(limit int) (n int, err error) {
		rows, err := page.Query(ctx, access.Pool, owner, after, limit)
		if err != nil {
			if access.Dialect.Classify(err) == dialect.NoTable {
				err = &holdfast.SchemaError{Table: access.Table("records"), Err: err}
			}
			return 0, err
		}
		_, err = core.Collect(rows, func(row core.Row) (none struct{}, err error) {
			var namespace, operation, businessID string
			var version, state int
			var at, now int64
			var key, fingerprint []byte
			if err := row.Scan(&owner, &after, &namespace, &operation, &key, &version, &fingerprint, &state, &at, &businessID, &now); err != nil {
				return none, err
			}
			n++
			if namespace == a.Namespace && operation == a.Name && fingerprint != nil && (state == succeeded || state == tombstone) {
				by := fmt.Sprintf("%d/%d/%s/%x", version, len(owner), owner, fingerprint)
				f.add(by, owner, nil, Occurrence{Key: string(key), BusinessID: businessID}, at, now)
			}
			return none, nil
		})
		return n, err
	})
	return f.pairs(), err
}

// The states of a record that was executed.
const (
	succeeded = 2
	tombstone = 4
)

func (a *Filter) withDefaults() error {
	a.Window, a.Since = cmp.Or(a.Window, DefaultWindow), cmp.Or(a.Since, DefaultSince)
	a.MaxRows, a.Limit = cmp.Or(a.MaxRows, DefaultMaxRows), cmp.Or(a.Limit, DefaultLimit)
	life := options.Life.Or("the default")
	return cmp.Or(
		life.Check("Filter.Window", a.Window),
		life.Check("Filter.Since", a.Since),
		options.Rows.Or("the default").UpTo(maxRows).Check("Filter.MaxRows", int64(a.MaxRows)),
		options.Many.UpTo(maxLimit).Of("pairs").Check("Filter.Limit", int64(a.Limit)),
	)
}

// finder groups rows by what makes them alike.
type finder struct {
	Filter

	groups   map[string][]item
	rows     int
	complete bool
}

type item struct {
	owner string
	by    []string
	one   Occurrence
	at    int64
}

// read calls page until it returns less than a page, or MaxRows were read. A page that fails with an error
// that retryable accepts, such as that of a statement which a migration outdates, goes on after the last
// row that it read.
func (f *finder) read(ctx context.Context, retryable func(error) bool, page func(limit int) (n int, err error)) error {
	for f.rows < f.MaxRows && !f.complete {
		exhausted, err := core.Retry(ctx, core.DefaultAttempts, retryable, func(int) error {
			limit := min(pageRows, f.MaxRows-f.rows)
			n, err := page(limit)
			f.rows += n
			f.complete = err == nil && n < limit
			return err
		})
		if exhausted {
			return &holdfast.RetryError{Attempts: core.DefaultAttempts, Err: err}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// add keeps a row that is young enough. at and now are in µs.
func (f *finder) add(group, owner string, by []string, one Occurrence, at, now int64) {
	if at >= now-f.Since.Microseconds() {
		one.At = time.UnixMicro(at).UTC()
		f.groups[group] = append(f.groups[group], item{owner, by, one, at})
	}
}

func (f *finder) pairs() Pairs {
	found := Pairs{Pairs: []Pair{}, Rows: f.rows, Complete: f.complete}
	for _, g := range f.groups {
		slices.SortFunc(g, func(a, b item) int { return cmp.Or(cmp.Compare(a.at, b.at), strings.Compare(a.one.Key, b.one.Key)) })
		for i := 1; i < len(g); i++ {
			if apart := time.Duration(g[i].at-g[i-1].at) * time.Microsecond; apart <= f.Window {
				found.Pairs = append(found.Pairs, Pair{Owner: g[i].owner, By: g[i].by, First: g[i-1].one, Second: g[i].one, Apart: apart})
			}
		}
	}
	slices.SortFunc(found.Pairs, func(a, b Pair) int {
		return cmp.Or(b.Second.At.Compare(a.Second.At), strings.Compare(a.Owner, b.Owner), strings.Compare(a.Second.Key, b.Second.Key))
	})
	found.Found = len(found.Pairs)
	found.Pairs = found.Pairs[:min(found.Found, f.Limit)]
	return found
}
