package doctor

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/dialect"
	"github.com/holdfast-go/holdfast/internal/display"
	"github.com/holdfast-go/holdfast/reaper"
)

const (
	// stuckAfter is for how long a worker may be late: it is that of the console and of `holdfast ops list --stuck`.
	stuckAfter = time.Minute
	// behindAfter is for how long rows may be due while a reaper counts as alive: some of its intervals.
	behindAfter = time.Hour
	// countBound bounds the counting of rows that are due.
	countBound = 2 * time.Second
	// maxNames bounds the operations and the outboxes of a Backlog.
	maxNames = 100
)

// Backlog is what waits in Holdfast's tables for a person, or for a loop of a program: a completer, a relay or a
// reaper.
type Backlog struct {
	// Unknown are the staged operations whose outcome is unknown. They wait for a person or a provider's event.
	Unknown []Waiting
	// Stuck are the staged operations that have waited for a worker for a minute or longer: no completer
	// runs, or too few.
	Stuck []Waiting
	// Dead are messages that could not be published and hold up those behind them. Name is the outbox's.
	Dead []Waiting
	// Due counts the rows that a reaper would clear now. The oldest has been due for DueFor. Counted is false
	// if the account may not count them (that of the role app may not), or if that took longer than two seconds.
	Due     int64
	DueFor  time.Duration
	Counted bool
	// Reaped is when a pass of a reaper last began that cleared rows or failed. It is zero if there was none:
	// passes that find nothing are not recorded.
	Reaped time.Time
}

// Waiting counts operations of one name, of all owners and namespaces, or messages of one outbox.
type Waiting struct {
	Name  string
	Count int64
	// Since is when the first of them began to wait, by the database's clock.
	Since time.Time
}

// ReadBacklog reads what waits. It counts, so its time grows with what waits, and with nothing else. It reads at
// most 100 names of operations and of outboxes. What the account may not read stays zero, but for operations.
//
// Errors: [holdfast.ErrSchema], [holdfast.ErrDenied], the error of ctx, the driver's.
func ReadBacklog[Tx any](ctx context.Context, db *holdfast.DB[Tx]) (b Backlog, err error) {
	a := access.Of(db)
	names := strings.NewReplacer("{now}", a.Dialect.Now, "{staged}", a.Table("staged"), "{outbox}", a.Table("outbox"))
	r := backlogReader{pool: a.Pool, compile: func(name, text string) core.Stmt { return a.Dialect.Compile("backlog."+name, names.Replace(text)) }}
	var now int64
	if _, err := r.compile("now", dialect.BacklogNow).QueryRow(ctx, a.Pool, []any{&now}); err != nil {
		return b, err
	}
	if b.Unknown, err = r.waiting(ctx, "unknown", dialect.BacklogUnknown, maxNames); err != nil {
		return b, err
	}
	if b.Stuck, err = r.waiting(ctx, "stuck", dialect.BacklogStuck, now-stuckAfter.Microseconds(), maxNames); err != nil {
		return b, err
	}
	for _, read := range []func() error{
		func() error { b.Dead, err = r.dead(ctx); return err },
		func() error { return due(ctx, db, &b) },
	} {
		if err := read(); err != nil && !errors.Is(err, holdfast.ErrDenied) && a.Dialect.Classify(err) != dialect.Denied {
			return b, err
		}
	}
	return b, nil
}

type backlogReader struct {
	pool    core.Querier
	compile func(name, text string) core.Stmt
}

func (r *backlogReader) waiting(ctx context.Context, name, text string, args ...any) ([]Waiting, error) {
	rows, err := r.compile(name, text).Query(ctx, r.pool, args...)
	if err != nil {
		return nil, err
	}
	return core.Collect(rows, func(row core.Row) (w Waiting, err error) {
		var since int64
		err = row.Scan(&w.Name, &w.Count, &since)
		w.Since = time.UnixMicro(since).UTC()
		return w, err
	})
}

// dead goes from one outbox to the next, as the index begins with the name.
func (r *backlogReader) dead(ctx context.Context) (all []Waiting, err error) {
	next, count := r.compile("box", dialect.BacklogBox), r.compile("dead", dialect.BacklogDead)
	var w Waiting
	for range maxNames {
		if found, err := next.QueryRow(ctx, r.pool, []any{&w.Name}, w.Name); err != nil || !found {
			return all, err
		}
		var since int64
		if _, err := count.QueryRow(ctx, r.pool, []any{&w.Count, &since}, w.Name); err != nil {
			return all, err
		}
		if w.Since = time.UnixMicro(since).UTC(); w.Count > 0 {
			all = append(all, w)
		}
	}
	return all, nil
}

// due counts what a reaper would clear.
func due[Tx any](ctx context.Context, db *holdfast.DB[Tx], b *Backlog) error {
	passes, err := core.First(1, reaper.History(ctx, db))
	if err != nil {
		return err
	}
	if len(passes) > 0 {
		b.Reaped = passes[0].Began
	}
	r, err := reaper.New(ctx, db)
	if err != nil {
		return err
	}
	bounded, cancel := context.WithTimeout(ctx, countBound)
	defer cancel()
	report, err := r.DryRun(bounded)
	if bounded.Err() != nil && ctx.Err() == nil {
		return nil
	}
	if err != nil {
		return err
	}
	b.Counted, b.Due = true, report.Rows()
	for _, t := range report.Tasks {
		b.DueFor = max(b.DueFor, t.Oldest)
	}
	return nil
}

// backlog finds what waits for a person, and for a loop that does not run.
func backlog[Tx any](ctx context.Context, p *patient, db *holdfast.DB[Tx]) error {
	b, err := ReadBacklog(ctx, db)
	switch kind := p.dialect.Classify(err); {
	case err == nil:
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, holdfast.ErrSchema), kind == dialect.NoTable:
		return nil // found already
	case errors.Is(err, holdfast.ErrDenied), kind == dialect.Denied:
		p.find("backlog", Notice, "it could not be looked at what waits for a person: "+err.Error(), "look as the role reader or operator")
		return nil
	default:
		return err
	}
	if n, list := listed(b.Unknown); n > 0 {
		p.find("unknown operations", Warning, fmt.Sprintf("the outcome of %d operations is unknown: %s", n, list),
			"holdfast ops list, ask the provider, holdfast ops resolve: nothing else continues them, but for an event of the provider")
	}
	if n, list := listed(b.Stuck); n > 0 {
		p.find("stuck operations", Warning, fmt.Sprintf("%d operations wait for a worker: %s", n, list), "run a completer: Runner.RunCompleter in the program")
	}
	if n, list := listed(b.Dead); n > 0 {
		p.find("dead messages", Warning, fmt.Sprintf("%d messages could not be published, and hold up those behind them: %s", n, list), "Outbox.DeadLetters shows them: Requeue or Discard each")
	}
	b.judgeReaper(p)
	return nil
}

// judgeReaper finds rows that nothing clears.
func (b *Backlog) judgeReaper(p *patient) {
	const advice = "run one: Reaper.Run in a program, or holdfast reap from a scheduler"
	late := b.DueFor > behindAfter
	problem := fmt.Sprintf("%d rows are to be cleared, the first for %v", b.Due, b.DueFor.Round(time.Second))
	switch {
	case b.Due == 0:
	case b.Reaped.IsZero() && late:
		p.find("reaper", Warning, problem+", and no reaper has ever cleared any", advice)
	case b.Reaped.IsZero():
		p.find("reaper", Notice, problem+", and no reaper has cleared any yet", advice)
	case late:
		p.find("reaper", Warning, problem+"; a reaper last did something at "+b.Reaped.UTC().Format(time.RFC3339), advice+"; holdfast reap --history shows what the last ones did")
	}
}

// listed sums up, and names the first few for people.
func listed(all []Waiting) (sum int64, text string) {
	const most = 5
	var list []string
	for i, w := range all {
		if sum += w.Count; i < most {
			list = append(list, fmt.Sprintf("%d %s since %s", w.Count, display.Text(w.Name), w.Since.Format(time.RFC3339)))
		}
	}
	if len(all) > most {
		list = append(list, "and more")
	}
	return sum, strings.Join(list, ", ")
}
