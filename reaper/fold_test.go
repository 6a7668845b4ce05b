package reaper_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/test/conformance"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
	"github.com/holdfast-go/holdfast/reaper"
)

// TestHourThatComesTwice covers the night on which clocks in the session's time zone are set
// back. A row that expires in the second of the two equal hours must outlive the first one. A
// comparison in the session's time zone, as with FROM_UNIXTIME alone, deletes it.
func TestHourThatComesTwice(t *testing.T) {
	t.Parallel()
	conformance.Run(t, conformance.SQL(), hourTwice)
}

func hourTwice[Tx any](e *conformance.Env[Tx]) {
	columns := map[string]reaper.Unit{"BIGINT": reaper.Seconds}
	switch e.Engine.Like() {
	case dbtest.Postgres:
		columns["timestamptz"], columns["timestamp"] = reaper.Timestamp, reaper.TimestampUTC
	case dbtest.MySQL:
		columns["TIMESTAMP NULL"], columns["DATETIME"] = reaper.Timestamp, reaper.TimestampUTC
	}
	db, utc := e.Handle.Open(e.T, e.Berlin()).DB, e.SQL
	inUTC := conformance.Param(e.DSN, "time_zone", "'+00:00'")
	if e.InnoDB() {
		utc = dbtest.OpenSQL(e.T, inUTC)
	}
	// 02:30 in Berlin, twice.
	first := time.Date(2026, 10, 25, 0, 30, 0, 0, time.UTC)
	n := 0
	for column, unit := range columns {
		for _, scan := range []bool{false, true} {
			n++
			name := fmt.Sprintf("fold_%d", n)
			e.Must(`CREATE TABLE ` + name + ` (id INTEGER NOT NULL PRIMARY KEY, expires_at ` + column + `)`)
			e.Must(`CREATE INDEX ` + name + `_i ON ` + name + ` (expires_at)`)
			for id, at := range []time.Time{first.Add(-time.Hour), first, first.Add(time.Hour), first.Add(2 * time.Hour)} {
				value := at.Format("'2006-01-02 15:04:05'")
				switch {
				case unit == reaper.Seconds:
					value = fmt.Sprint(at.Unix())
				case column == "timestamptz":
					value = at.Format("'2006-01-02 15:04:05+00'")
				}
				if _, err := utc.ExecContext(e.Ctx, fmt.Sprintf(`INSERT INTO %s (id, expires_at) VALUES (%d, %s)`, name, id, value)); err != nil {
					e.Fatal(err)
				}
			}
			db := db
			if e.Engine == dbtest.TiDB && unit == reaper.Timestamp {
				// In Berlin's time zone it takes the first hour for the second, and cannot delete
				// what is in an index: "assertion failed", 8141.
				db = e.Handle.Open(e.T, inUTC).DB
			}
			r, err := reaper.New(e.Ctx, db, reaper.Options{
				Batch: 1, BatchTime: time.Minute, Pace: 0.01,
				Tables: []reaper.Table{{TableSpec: holdfast.TableSpec{Table: name, Key: []string{"id"}}, Expires: "expires_at", Unit: unit, Scan: scan}},
			})
			if err != nil {
				e.Fatal(err)
			}
			// In each hour, only the rows that expired at its beginning are deleted.
			for hour := range 4 {
				now := first.Add(time.Duration(hour-1)*time.Hour + 5*time.Minute)
				r.SetClock(func(context.Context, func(context.Context) (int64, error)) (int64, error) {
					return now.UnixMicro(), nil
				})
				if err := r.AcceptClock(e.Ctx); err != nil {
					e.Fatal(err)
				}
				report, err := r.Sweep(e.Ctx)
				if left := e.Int(`SELECT COUNT(*) FROM ` + name + ` WHERE id > ` + fmt.Sprint(hour)); err != nil || report.Rows() != 1 || left != 3-hour {
					e.Errorf("%s, scan %v, at %v: %+v, %v, %d later ones are left", column, scan, now, report, err, left)
				}
			}
		}
	}
}
