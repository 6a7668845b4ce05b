package prove

import (
	"context"
	"time"
)

const (
	// readings and readFor are the minimum number of readings, and the minimum time that they
	// cover.
	readings = 40
	readFor  = 500 * time.Millisecond
	// readEvery is the time between two readings.
	readEvery = 5 * time.Millisecond
	// sessionsApart is how far the clocks of two sessions may differ, nodesApart those of two
	// nodes of a cluster.
	sessionsApart = 5 * time.Millisecond
	nodesApart    = time.Second
	// gain and fixed bound what the clock may gain or lose on this machine's monotonic clock: a
	// 20th of the time that passed, which is half of a lease's margin, plus a constant for
	// clock steering.
	gain  = 20
	fixed = 50 * time.Millisecond
)

// reading is a reading of the database's clock, between two readings of this machine's.
type reading struct {
	db        time.Time
	sent, got time.Time
}

func (r *run) readClock(ctx context.Context, q runner) (reading, error) {
	sent := time.Now()
	us, err := r.number(ctx, q, `SELECT {now}`)
	return reading{time.UnixMicro(us), sent, time.Now()}, err
}

// clock reads the clock alternately in two sessions, and then in other time zones.
func clock(ctx context.Context, t *trial) error {
	one, done, err := t.fresh(ctx)
	if err != nil {
		return err
	}
	defer done()
	two, done2, err := t.fresh(ctx)
	if err != nil {
		return err
	}
	defer done2()
	apart := sessionsApart
	if t.db.Capabilities().MultiPrimary {
		apart = nodesApart
	}
	sessions := []runner{one, two}
	all := []reading{t.began}
	for len(all) < readings || all[len(all)-1].got.Sub(all[1].sent) < readFor {
		now, err := t.readClock(ctx, sessions[len(all)%2])
		if err != nil {
			return err
		}
		if back := all[len(all)-1].db.Sub(now.db); back > apart {
			return brokenf("the database's clock went back by %v", back)
		}
		if n := len(all) - 2; n > 0 && now.db.Before(all[n].db) {
			return brokenf("the database's clock went back by %v in one session", all[n].db.Sub(now.db))
		}
		all = append(all, now)
		t.attempts.Add(1)
		time.Sleep(readEvery)
	}
	last := all[len(all)-1]
	if err := asStopwatch(t.began, last, apart); err != nil {
		return err
	}
	// The first reading of a session, and its last: the sessions take turns.
	if err := asStopwatch(all[1], all[(len(all)-2)|1], 0); err != nil {
		return err
	}
	if err := t.resolution(all); err != nil {
		return err
	}
	t.report.Facts["clock ahead of this machine's"] = last.db.Sub(last.sent.Add(last.got.Sub(last.sent) / 2)).Round(time.Millisecond).String()
	return t.zones(ctx, one, apart)
}

// asStopwatch compares the time between two readings by the database's clock with the least and
// the most time that passed by this machine's. apart is how far the clocks of two readings' sessions may differ.
func asStopwatch(from, to reading, apart time.Duration) error {
	least, most := to.sent.Sub(from.got), to.got.Sub(from.sent)
	slack := most/gain + fixed + apart
	if passed := to.db.Sub(from.db); passed < least-slack || passed > most+slack {
		return brokenf("the database's clock went forward by %v while %v to %v passed by this machine's stopwatch", passed, least.Round(time.Microsecond), most.Round(time.Microsecond))
	}
	return nil
}

// resolution finds the greatest unit of which all readings are multiples.
func (t *trial) resolution(all []reading) error {
	unit := int64(1)
	for ; unit < 1_000_000; unit *= 10 {
		for _, r := range all {
			if r.db.UnixMicro()%(unit*10) != 0 {
				found := time.Duration(unit) * time.Microsecond
				t.report.Facts["clock resolution"] = found.String()
				return unless(found <= time.Millisecond, "the database's clock shows steps of %v", found)
			}
		}
	}
	return brokenf("the database's clock shows whole seconds only")
}

// zones compares sessions in other time zones with one in its own.
func (t *trial) zones(ctx context.Context, own runner, apart time.Duration) error {
	for _, set := range t.dialect.Prove.Zones {
		if err := t.zone(ctx, own, set, apart); err != nil {
			return err
		}
	}
	return nil
}

func (t *trial) zone(ctx context.Context, own runner, set string, apart time.Duration) error {
	t.attempts.Add(1)
	conn, done, err := t.fresh(ctx)
	if err != nil {
		return err
	}
	defer done()
	if _, err := conn.ExecContext(ctx, set); err != nil {
		return err
	}
	var got [3]reading
	for i, q := range []runner{own, conn, own} {
		if got[i], err = t.readClock(ctx, q); err != nil {
			return err
		}
	}
	if got[1].db.Before(got[0].db.Add(-apart)) || got[1].db.After(got[2].db.Add(apart)) {
		return brokenf("after %s the database's clock differs by %v", set, got[1].db.Sub(got[0].db))
	}
	return nil
}
