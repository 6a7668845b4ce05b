package console

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/doctor"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/idempotency/operators"
	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/reaper"
)

const (
	overviewRows = 5
	// sortedRows is how many operations are counted, and sorted by time: the tables have no index for that.
	sortedRows = 1000
	// countBound is how long the rows that are due are counted.
	countBound = 2 * time.Second
	// behindAfter is for how long rows may be due while a reaper counts as alive: some of its intervals.
	behindAfter = time.Hour
)

// overviewPage answers what a person on call asks first.
type overviewPage struct {
	Unknown, Stuck operationsBrief
	// Blocks and Lines show which session waits for which; Told as in locksPage.
	Blocks []doctor.Block
	Told   bool
	Lines  []lineBrief
	Sizes  []sizeRow
	Sized  bool
	Reaper reaperBrief
	Day    []series
}

// operationsBrief are the operations of one selection that moved last the longest ago.
type operationsBrief struct {
	List  []operationRow
	Count int
	More  bool // than Count
}

// lineBrief is a fair lock or semaphore for which calls wait.
type lineBrief struct {
	Kind, Owner, Key string
	Waiting          int
	Since            time.Time // the first of them
}

type sizeRow struct {
	doctor.Size
	Shown string // the bytes, for people
}

// reaperBrief says whether the reaper keeps up.
type reaperBrief struct {
	Due     int64         // rows to clear now
	Oldest  time.Duration // for how long
	Behind  bool
	Counted bool // within countBound
	Last    reaper.Pass
	Cleared series // rows
}

func (c *console[Tx]) getOverview(w http.ResponseWriter, r *http.Request) {
	var p overviewPage
	var err error
	for _, read := range []func(context.Context, *overviewPage) error{c.readBriefs, c.readWaits, c.readSizes, c.readReaper, c.readDay} {
		if err = read(r.Context(), &p); err != nil {
			c.failed(w, r, err)
			return
		}
	}
	c.render(w, r, http.StatusOK, "overview", page{Title: "Overview", Section: "overview", Live: true, Body: p})
}

func (c *console[Tx]) readBriefs(ctx context.Context, p *overviewPage) error {
	for _, b := range []struct {
		to      *operationsBrief
		states  []idempotency.State
		overdue time.Duration
	}{{&p.Unknown, nil, 0}, {&p.Stuck, stuck, stuckAfter}} {
		found, err := core.First(sortedRows+1, c.ops.List(ctx, operators.Filter{States: b.states, Overdue: b.overdue}))
		if err != nil {
			return err
		}
		b.to.More = len(found) > sortedRows
		b.to.Count = min(len(found), sortedRows)
		byTime(found)
		for _, op := range found[:min(len(found), overviewRows)] {
			b.to.List = append(b.to.List, rowOf(op))
		}
	}
	return nil
}

func (c *console[Tx]) readWaits(ctx context.Context, p *overviewPage) error {
	blocks, unknown := doctor.Blocked(ctx, c.db)
	p.Blocks, p.Told = blocks[:min(len(blocks), overviewRows)], unknown == nil
	var locks locksPage
	if err := c.readQueues(ctx, &locks); err != nil {
		return err
	}
	for _, q := range locks.Queues {
		b := lineBrief{Kind: q.Kind, Owner: q.Owner, Key: q.Key}
		for _, t := range q.Queue.Tickets {
			if t.Held {
				continue
			}
			if b.Waiting++; b.Waiting == 1 {
				b.Since = t.Since
			}
		}
		if b.Waiting > 0 {
			p.Lines = append(p.Lines, b)
		}
	}
	slices.SortFunc(p.Lines, func(a, b lineBrief) int { return a.Since.Compare(b.Since) })
	p.Lines = p.Lines[:min(len(p.Lines), overviewRows)]
	return nil
}

func (c *console[Tx]) readSizes(ctx context.Context, p *overviewPage) error {
	sizes, err := doctor.Sizes(ctx, c.db)
	if errors.Is(err, holdfast.ErrUnsupported) {
		return nil
	}
	p.Sized = true
	for _, s := range sizes[:min(len(sizes), overviewRows)] {
		p.Sizes = append(p.Sizes, sizeRow{s, bytesShown(s.Bytes)})
	}
	return err
}

func (c *console[Tx]) readReaper(ctx context.Context, p *overviewPage) error {
	passes, err := core.First(reaper.HistoryRows, reaper.History(ctx, c.db))
	if err != nil {
		return err
	}
	b := &p.Reaper
	if len(passes) > 0 {
		b.Last = passes[0]
	}
	var cleared []happened
	for _, pass := range passes {
		cleared = append(cleared, happened{pass.Began, pass.Rows})
	}
	b.Cleared = seriesOf("Rows cleared", cleared, time.Now())
	r, err := reaper.New(ctx, c.db)
	if err != nil {
		return err
	}
	bounded, cancel := context.WithTimeout(ctx, countBound)
	defer cancel()
	report, err := r.DryRun(bounded)
	if errors.Is(err, holdfast.ErrDenied) || bounded.Err() != nil && ctx.Err() == nil {
		return nil // the role may not count them, or they are too many: Counted is false
	}
	b.Counted, b.Due = err == nil, report.Rows()
	for _, t := range report.Tasks {
		b.Oldest = max(b.Oldest, t.Oldest)
	}
	b.Behind = b.Due > 0 && b.Oldest > behindAfter
	return err
}

// bytesShown says a number of bytes for people.
func bytesShown(n int64) string {
	for i, unit := range []string{"bytes", "KiB", "MiB", "GiB"} {
		if n < 1<<(10*(i+1)) {
			return fmt.Sprintf("%d %s", n>>(10*i), unit)
		}
	}
	return fmt.Sprintf("%d TiB", n>>40)
}
