package cron_test

import (
	"archive/zip"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/idempotency/cron"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
)

// zones are the zones of Go's copy of the database of time zones, without those that are another one's copy.
func zones(t *testing.T) (all []*time.Location) {
	t.Helper()
	root, err := exec.CommandContext(t.Context(), "go", "env", "GOROOT").Output()
	if err != nil {
		t.Fatal(err)
	}
	archive, err := zip.OpenReader(filepath.Join(strings.TrimSpace(string(root)), "lib", "time", "zoneinfo.zip"))
	if err != nil {
		t.Fatal(err)
	}
	defer archive.Close()
	seen := map[uint32]bool{}
	for _, f := range archive.File {
		if f.FileInfo().IsDir() || seen[f.CRC32] {
			continue
		}
		seen[f.CRC32] = true
		r, err := f.Open()
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		zone, err := time.LoadLocationFromTZData(f.Name, data)
		if err != nil {
			t.Fatal(f.Name, err)
		}
		all = append(all, zone)
	}
	if len(all) < 300 {
		t.Fatal(len(all), "zones")
	}
	return all
}

// TestDailyInEveryZone asks for each minute around each change of the clocks of each zone, 1970 to 2040:
// every date that the zone has gets one tick, in order, at its time of day or, if the clocks skip that, as much
// later; and the schedule says so at any moment.
func TestDailyInEveryZone(t *testing.T) {
	t.Parallel()
	dbtest.NotUnderRace(t, "it computes in one goroutine")
	seen := map[string]bool{} // a zone that changes as another one does
	for _, zone := range zones(t) {
		at := time.Date(1970, 1, 2, 0, 0, 0, 0, time.UTC).In(zone)
		for {
			_, change := at.ZoneBounds()
			if change.IsZero() || change.Year() > 2040 || at.Year() > 2040 {
				break
			}
			if !change.After(at) { // ZoneBounds may say so just after a change
				at = at.Add(time.Hour)
				continue
			}
			key := fmt.Sprint(change.Unix(), shown(change.Add(-1)), shown(change))
			if at = change.Add(time.Second); seen[key] {
				continue
			}
			seen[key] = true
			from, to := shown(change.Add(-time.Second)).Add(time.Second), shown(change)
			if from.After(to) {
				from, to = to, from
			}
			if to.Sub(from) > 3*time.Hour { // a date that is skipped, or comes twice
				from = to.Add(-3 * time.Hour)
			}
			for clock := from.Add(-2 * time.Minute); !clock.After(to.Add(2 * time.Minute)); clock = clock.Add(time.Minute) {
				if err := daily(zone, change, clock.Hour(), clock.Minute()); err != nil {
					t.Errorf("%v, the change of %v, daily at %02d:%02d: %v", zone, change, clock.Hour(), clock.Minute(), err)
					break
				}
			}
		}
	}
	if len(seen) < 3000 {
		t.Error(len(seen), "changes")
	}
}

// shown is what the clocks show, as a time in UTC.
func shown(t time.Time) time.Time {
	_, offset := t.Zone()
	return t.UTC().Add(time.Duration(offset) * time.Second)
}

// daily checks the ticks around a change of the clocks.
func daily(zone *time.Location, change time.Time, hour, minute int) error {
	s := cron.Daily(hour, minute, zone)
	jump := shown(change).Sub(shown(change.Add(-1))) - 1
	last, next := s(change.Add(-27 * time.Hour))
	before := shown(last).Truncate(24 * time.Hour)
	for last.Before(change.Add(27 * time.Hour)) {
		for _, now := range []time.Time{last, next.Add(-1)} {
			if l, n := s(now); !l.Equal(last) || !n.Equal(next) || l.After(now) || !n.After(now) {
				return fmt.Errorf("at %v: %v and %v, want %v and %v", now, l, n, last, next)
			}
		}
		clock := shown(next)
		if clock.Hour() != hour || clock.Minute() != minute || clock.Second() != 0 {
			last := next.Equal(change.Add(-time.Minute)) // of the date, whose rest they skip
			if !last {
				clock = clock.Add(-jump) // the clocks skip it
			}
			if !last && (next.Before(change) || !next.Before(change.Add(jump)) || clock.Hour() != hour || clock.Minute() != minute) {
				return fmt.Errorf("the tick at %v is not at %02d:%02d, and the clocks do not skip that", next.In(zone), hour, minute)
			}
		}
		day := clock.Truncate(24 * time.Hour)
		if !day.Equal(before.Add(24*time.Hour)) && (jump <= 20*time.Hour || !day.Equal(before.Add(48*time.Hour))) {
			return fmt.Errorf("the tick at %v is of %v, and the one before it of %v", next.In(zone), day, before)
		}
		before = day
		last, next = s(next)
	}
	return nil
}
