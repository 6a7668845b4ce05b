package conformance

import (
	"crypto/sha256"
	"fmt"
	"strings"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
	"github.com/holdfast-go/holdfast/reaper"
)

// SweepTasks is the number of tasks on Holdfast's own tables. Those of the program's tables follow them
// in a report.
const SweepTasks = 9

// Now returns the database's clock in microseconds.
func (e *Env[Tx]) Now() int {
	e.Helper()
	return e.Int(`SELECT ` + access.Of(e.DB).Dialect.Now)
}

// Reaper makes a reaper. With opts it opens another pool.
func (e *Env[Tx]) Reaper(o reaper.Options, opts ...holdfast.Options) *reaper.Reaper {
	e.Helper()
	db := e.DB
	switch {
	case e.entered:
		db = e.reaperDB(opts)
	case len(opts) > 0:
		db = e.Handle.Open(e.T, e.DSN, opts...).DB
	}
	r, err := reaper.New(e.Ctx, db, o)
	if err != nil {
		e.Fatal(err)
	}
	return r
}

// Sweep sweeps and fails unless it cleared exactly these numbers of rows.
func (e *Env[Tx]) Sweep(r *reaper.Reaper, results, keys int64) reaper.Report {
	e.Helper()
	report, err := r.Sweep(e.Ctx)
	if err != nil || len(report.Tasks) != SweepTasks || report.Tasks[0].Rows != results || report.Tasks[1].Rows != keys || report.Tasks[2].Rows != 0 {
		e.Errorf("swept %+v, %v, want %d results and %d keys", report, err, results, keys)
	}
	return report
}

// Records makes n succeeded records. The first expires at the given time, each next one a
// microsecond later. Their operation is op, and the order of their keys differs from the order
// of their expiries.
func (e *Env[Tx]) Records(op string, n, expires int) {
	e.Helper()
	e.RecordsOf(OwnerOf, op, n, expires)
}

// RecordsOf is Records with an owner for each.
func (e *Env[Tx]) RecordsOf(owner func(n int) string, op string, n, expires int) {
	e.Helper()
	for from := 0; from < n; from += 500 {
		var values []string
		for i := from; i < min(from+500, n); i++ {
			hash := sha256.Sum256(fmt.Appendf(nil, "%s %d", op, i))
			values = append(values, fmt.Sprintf(`(%s, %s, %s, %s, %s, 1, %s, 2, %s, 1, 2, %d, %d)`,
				e.Blob(hash[:]), `'n'`, `'`+owner(i)+`'`, `'`+op+`'`, e.Blob(fmt.Append(nil, i)), e.Blob(make([]byte, 16)), e.Blob([]byte(`"done"`)), expires+i, expires+i))
		}
		e.Must(`INSERT INTO holdfast_records (key_hash, namespace, owner, operation, op_key, fingerprint_version, attempt, state,
 result, created_at, finished_at, result_expires_at, key_expires_at) VALUES ` + strings.Join(values, ", "))
	}
}

// Expire moves the expiry of an operation's record into the past.
func (e *Env[Tx]) Expire(column, key string) {
	e.Helper()
	e.Must(`UPDATE holdfast_records SET `+column+` = $1 WHERE op_key = $2`, e.Now()-1_000_000, []byte(key))
}

// OwnerOf returns the owner of the nth row: batches have rows of several.
func OwnerOf(n int) string { return []string{"", "anna", "ben"}[n%3] }

// Lock is a row of holdfast_locks.
type Lock struct {
	Owner, Name    string
	Attempt        []byte
	Token, Expires int
}

// Locks inserts rows into holdfast_locks.
func (e *Env[Tx]) Locks(locks ...Lock) {
	e.Helper()
	for from := 0; from < len(locks); from += 500 {
		var values []string
		for _, l := range locks[from:min(from+500, len(locks))] {
			attempt := "NULL"
			if l.Attempt != nil {
				attempt = e.Blob(l.Attempt)
			}
			values = append(values, fmt.Sprintf(`('%s', %s, %d, %s, 'holder', %d, %d)`, l.Owner, e.Blob([]byte(l.Name)), l.Token, attempt, l.Token, l.Expires))
		}
		e.Must(`INSERT INTO holdfast_locks (owner, name, token, attempt, holder, granted_at, expires_at) VALUES ` + strings.Join(values, ", "))
	}
}

// History reads n passes and fails if the number differs.
func (e *Env[Tx]) History(n int) []reaper.Pass {
	e.Helper()
	passes, err := core.First(reaper.HistoryRows, reaper.History(e.Ctx, e.DB))
	if err != nil || len(passes) != n {
		e.Fatalf("%d passes, want %d: %+v, %v", len(passes), n, passes, err)
	}
	return passes
}

// Blob returns an SQL literal for b.
func (e *Env[Tx]) Blob(b []byte) string {
	if e.Engine == dbtest.Postgres {
		return fmt.Sprintf(`'\x%x'`, b)
	}
	return fmt.Sprintf(`x'%x'`, b)
}
