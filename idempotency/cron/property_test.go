package cron_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/holdfast-go/holdfast/idempotency/cron"
	"github.com/holdfast-go/holdfast/internal/test/property"
)

// moments are from 1900 to 2100.
var moments = rapid.Map(rapid.Int64Range(-2_208_988_800_000_000, 4_102_444_800_000_000), func(micros int64) time.Time { return time.UnixMicro(micros).UTC() })

// wantTicks fails unless the last tick is not after now, the next one is, and every other moment between them has the same two. It
// returns them.
func wantTicks(t *rapid.T, s cron.Schedule, now time.Time) (last, next time.Time) {
	t.Helper()
	last, next = s(now)
	if last.After(now) || !next.After(now) {
		t.Fatalf("at %v: %v and %v", now, last, next)
	}
	between := last.Add(time.Duration(rapid.Int64Range(0, int64(next.Sub(last))-1).Draw(t, "between")))
	for _, at := range []time.Time{last, between, next.Add(-1)} {
		if l, n := s(at); !l.Equal(last) || !n.Equal(next) {
			t.Fatalf("at %v: %v and %v; at %v: %v and %v", now, last, next, at, l, n)
		}
	}
	return last, next
}

// TestEveryTick draws distances, offsets and moments: each tick is the one after the last, as far from it as was asked for, and a multiple of that from the offset.
func TestEveryTick(t *testing.T) {
	t.Parallel()
	property.Often(t, func(t *rapid.T) {
		d := time.Duration(rapid.OneOf(
			rapid.Int64Range(int64(50*time.Millisecond/time.Microsecond), int64(time.Minute/time.Microsecond)),
			rapid.Int64Range(int64(time.Minute/time.Microsecond), int64(100*366*24*time.Hour/time.Microsecond)),
		).Draw(t, "d")) * time.Microsecond
		offset := rapid.SampledFrom([]time.Duration{0, time.Millisecond, -time.Millisecond, d - time.Microsecond, -d, 3 * time.Hour, -36 * time.Hour}).Draw(t, "offset")
		s := cron.Every(d, offset)
		last, next := wantTicks(t, s, moments.Draw(t, "now"))
		if next.Sub(last) != d || (last.UnixMicro()-offset.Microseconds())%d.Microseconds() != 0 {
			t.Fatalf("every %v from %v: %v and %v", d, offset, last, next)
		}
		for range 3 {
			l, n := s(next)
			if !l.Equal(next) || n.Sub(l) != d {
				t.Fatalf("after %v: %v and %v", next, l, n)
			}
			next = n
		}
	})
}

// TestDailyAtAnyMoment draws zones, times of day and moments, most of them near a change of the clocks: there is one tick for each date, and it is at its time of day unless the
// clocks skip that.
func TestDailyAtAnyMoment(t *testing.T) {
	t.Parallel()
	all := zones(t)
	rand.New(rand.NewPCG(1, 1)).Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] }) // the first ones are drawn most
	property.Often(t, func(t *rapid.T) {
		zone, now := rapid.SampledFrom(all).Draw(t, "zone"), moments.Draw(t, "now")
		if _, change := now.In(zone).ZoneBounds(); !change.IsZero() && rapid.IntRange(0, 3).Draw(t, "any") > 0 {
			now = change.Add(time.Duration(rapid.IntRange(-50, 50).Draw(t, "hours")) * time.Hour)
		}
		hour, minute := rapid.IntRange(0, 23).Draw(t, "hour"), rapid.IntRange(0, 59).Draw(t, "minute")
		s := cron.Daily(hour, minute, zone)
		last, next := wantTicks(t, s, now)
		for range 4 {
			jump := next.Sub(last) - shown(next.In(zone)).Sub(shown(last.In(zone)))
			date, before := shown(next.In(zone)).Truncate(24*time.Hour), shown(last.In(zone)).Truncate(24*time.Hour)
			if days := date.Sub(before); days != 24*time.Hour && (days != 48*time.Hour || jump.Abs() < 20*time.Hour) {
				t.Fatalf("%v and %v are of %v and %v", last.In(zone), next.In(zone), before, date)
			}
			if at := next.In(zone); at.Hour() != hour || at.Minute() != minute {
				if asked := time.Date(date.Year(), date.Month(), date.Day(), hour, minute, 0, 0, zone); asked.Hour() == hour && asked.Minute() == minute && asked.Day() == date.Day() {
					t.Fatalf("%v is not at %02d:%02d, which %v is", at, hour, minute, asked)
				}
			}
			last, next = wantTicks(t, s, next)
		}
	})
}
