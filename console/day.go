package console

import (
	"context"
	"errors"
	"math"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/dialect"
)

const (
	day = 24 // hours
	// dayRows bounds what is read for one series: the newest rows. dayPage is one statement's, of the audit.
	dayRows = 2000
	dayPage = 200
	// dayBoxes bounds the outboxes of which dead messages are counted.
	dayBoxes = 20
)

// series counts something in each hour of the last day.
type series struct {
	Label string
	Hours []hour // the oldest first
	Total int64
	More  bool   // than dayRows: the older ones are not counted
	None  string // why there is none
}

type hour struct {
	At      time.Time
	Count   int64
	Percent int64 // of the greatest
}

// happened is when something happened, and to how many.
type happened struct {
	at    time.Time
	count int64
}

// seriesOf sums by the hour. now is by the same clock as the times.
func seriesOf(label string, list []happened, now time.Time) series {
	s := series{Label: label, Hours: make([]hour, day)}
	begin := dayBegin(now)
	for i := range s.Hours {
		s.Hours[i].At = begin.Add(time.Duration(i) * time.Hour)
	}
	var most int64
	for _, h := range list {
		if i := int(h.at.Sub(begin) / time.Hour); !h.at.Before(begin) && i < day {
			s.Hours[i].Count += h.count
			s.Total += h.count
			most = max(most, s.Hours[i].Count)
		}
	}
	for i, h := range s.Hours {
		if h.Count > 0 {
			s.Hours[i].Percent = max(2, 100*h.Count/most)
		}
	}
	return s
}

// dayBegin returns the begin of the first hour.
func dayBegin(now time.Time) time.Time { return now.Truncate(time.Hour).Add(-(day - 1) * time.Hour) }

// errManyChains means that the audit has no order of time over all owners.
var errManyChains = errors.New("console: each owner has a chain")

// dayReader reads the series, each from a range of an index.
type dayReader struct {
	q                                core.Querier
	now                              int64
	perOwner                         bool
	unknown, stuck, box, dead, audit core.Stmt
}

// readDay reads the series of the last day. What the role may not read, or what takes too long, is none.
func (c *console[Tx]) readDay(ctx context.Context, p *overviewPage) error {
	a := access.Of(c.db)
	names := strings.NewReplacer("{now}", a.Dialect.Now, "{staged}", a.Table("staged"), "{outbox}", a.Table("outbox"), "{audit}", a.Table("audit"))
	compile := func(name, text string) core.Stmt { return a.Dialect.Compile("day."+name, names.Replace(text)) }
	r := dayReader{
		q: a.Pool, perOwner: a.Dialect.Audit.PerOwner, unknown: compile("unknown", dialect.DayUnknown), stuck: compile("stuck", dialect.DayStuck),
		box: compile("box", dialect.DayBox), dead: compile("dead", dialect.DayDead), audit: compile("interventions", dialect.DayInterventions),
	}
	if _, err := compile("now", dialect.DayNow).QueryRow(ctx, a.Pool, []any{&r.now}); err != nil {
		return err
	}
	bounded, cancel := context.WithTimeout(ctx, countBound)
	defer cancel()
	now := time.UnixMicro(r.now)
	since := dayBegin(now).UnixMicro()
	for _, s := range []struct {
		label string
		read  func(ctx context.Context, since int64) ([]happened, error)
	}{
		{"Interventions and proposals", r.readInterventions},
		{"Operations that became unknown, and still are", r.readUnknown},
		{"Operations that became due, and are stuck", r.readStuck},
		{"Messages that died in an outbox, and are still there", r.readDead},
	} {
		list, err := s.read(bounded, since)
		one := seriesOf(s.label, list, now)
		one.More = len(list) >= dayRows
		switch kind := a.Dialect.Classify(err); {
		case errors.Is(err, errManyChains):
			one.None = "Each owner has an audit of its own in this database."
		case err == nil:
		case kind == dialect.Denied:
			one.None = "This role may not read them."
		case bounded.Err() != nil && ctx.Err() == nil:
			one.None = "It took too long to read them."
		default:
			return err
		}
		p.Day = append(p.Day, one)
	}
	return nil
}

func (r *dayReader) readUnknown(ctx context.Context, since int64) ([]happened, error) {
	return r.times(ctx, r.unknown, since, dayRows)
}

func (r *dayReader) readStuck(ctx context.Context, since int64) ([]happened, error) {
	return r.times(ctx, r.stuck, since, r.now-stuckAfter.Microseconds(), dayRows)
}

// readDead goes from one outbox to the next, as the index begins with the name.
func (r *dayReader) readDead(ctx context.Context, since int64) (list []happened, err error) {
	name := ""
	for range dayBoxes {
		found, err := r.box.QueryRow(ctx, r.q, []any{&name}, name)
		if err != nil || !found {
			return list, err
		}
		dead, err := r.times(ctx, r.dead, name, since, dayRows)
		if list = append(list, dead...); err != nil || len(list) >= dayRows {
			return list, err
		}
	}
	return list, nil
}

// readInterventions reads the chain of the audit from its end, whose rows are in the order of time. There is
// no such order where each owner has a chain.
func (r *dayReader) readInterventions(ctx context.Context, since int64) (list []happened, err error) {
	if r.perOwner {
		return nil, errManyChains
	}
	for seq := int64(math.MaxInt64); len(list) < dayRows; {
		rows, err := r.audit.Query(ctx, r.q, seq, dayPage)
		if err != nil {
			return list, err
		}
		page, err := core.Collect(rows, func(row core.Row) (at int64, err error) {
			err = row.Scan(&seq, &at)
			return at, err
		})
		if err != nil {
			return list, err
		}
		for _, at := range page {
			if at < since {
				return list, nil
			}
			list = append(list, happened{time.UnixMicro(at), 1})
		}
		if len(page) < dayPage {
			return list, nil
		}
	}
	return list, nil
}

func (r *dayReader) times(ctx context.Context, s core.Stmt, args ...any) ([]happened, error) {
	rows, err := s.Query(ctx, r.q, args...)
	if err != nil {
		return nil, err
	}
	return core.Collect(rows, func(row core.Row) (h happened, err error) {
		var at int64
		err = row.Scan(&at)
		return happened{time.UnixMicro(at), 1}, err
	})
}
