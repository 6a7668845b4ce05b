package property_test

import (
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/holdfast-go/holdfast/internal/test/conformance"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
	"github.com/holdfast-go/holdfast/internal/test/property"
	"github.com/holdfast-go/holdfast/reaper"
)

func TestMain(m *testing.M) {
	property.Checks(40)
	dbtest.VerifyNoLeaks(m)
}

// db is a database of a test, for all draws of a property.
type db struct{ *conformance.Env[*sql.Tx] }

// onSQLite makes a database of SQLite.
func onSQLite(t *testing.T) db {
	t.Helper()
	if !slices.Contains(dbtest.Engines(), dbtest.SQLite) {
		t.Skip("not on SQLite")
	}
	d := db{conformance.New(t, conformance.SQL(), dbtest.SQLite)}
	d.AnyOwner()
	return d
}

// exec runs a statement past Holdfast.
func (d db) exec(t *rapid.T, query string, args ...any) {
	t.Helper()
	_, err := d.SQL.ExecContext(d.Ctx, d.Rebind(query), args...)
	property.Must(t, err)
}

// int reads a number past Holdfast.
func (d db) int(t *rapid.T, query string, args ...any) (n int64) {
	t.Helper()
	property.Must(t, d.SQL.QueryRowContext(d.Ctx, d.Rebind(query), args...).Scan(&n))
	return n
}

// sweep clears what is due, and returns how many rows of each kind that was.
func (d db) sweep(t *rapid.T, r *reaper.Reaper) map[string]int64 {
	t.Helper()
	report, err := r.Sweep(d.Ctx)
	property.Must(t, err)
	rows := map[string]int64{}
	for _, task := range report.Tasks {
		if task.Rows > 0 {
			rows[task.Task] = task.Rows
		}
	}
	return rows
}

// quick are the options of a reaper that does not pause for long.
var quick = reaper.Options{Pace: 0.001, BatchTime: time.Minute, LockGrace: time.Minute}

// confused draws n texts of 1 to most bytes that are easily taken for each other.
func confused(t *rapid.T, n, most int) (all []string) {
	for last := property.Text(most).Draw(t, "key"); len(all) < n; last = property.Other(t, last) {
		if last == "" || len(last) > most || slices.Contains(all, last) {
			last = fmt.Sprint("key ", len(all))
		}
		all = append(all, last)
	}
	return all
}

// names are confused texts that a column of text takes.
func names(t *rapid.T, n int) []string {
	all := confused(t, n, 128)
	for i, name := range all {
		if all[i] = strings.ReplaceAll(strings.ToValidUTF8(name, ""), "\x00", ""); all[i] == "" || slices.Contains(all[:i], all[i]) {
			all[i] = fmt.Sprint("name ", i)
		}
	}
	return all
}

// hours is a time in hours and a half, so that what a test does in less than half an hour makes nothing due.
func hours(n int) time.Duration { return time.Duration(n)*time.Hour + 30*time.Minute }

// passing draws how many hours pass: any number, or as many as leave half an hour of a time that is left, or none of it.
func passing(t *rapid.T, most int, left []time.Duration) int {
	by := rapid.IntRange(0, most).Draw(t, "hours")
	if len(left) > 0 && rapid.Bool().Draw(t, "to the edge") {
		by = int(rapid.SampledFrom(left).Draw(t, "left")/time.Hour) + rapid.IntRange(0, 1).Draw(t, "over")
	}
	return by
}
