package reaper

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/dialect"
	"github.com/holdfast-go/holdfast/internal/options"
)

// Bounds of the history. Recording a pass deletes what exceeds them.
const (
	HistoryRows = 1000
	historyLife = 90 * 24 * time.Hour

	// historyPage is the number of passes that History reads with one statement.
	historyPage = 100
	// historyTimeout bounds the recording of a pass, which outlives the pass's context.
	historyTimeout = 2 * time.Second
	// repeatedAfter is how often a failure that repeats itself is recorded.
	repeatedAfter = time.Hour
)

// Pass is a recorded sweep that cleared rows or failed.
type Pass struct {
	// Began and Ended are by the database's clock.
	Began, Ended time.Time
	// Holder is Options.Holder.
	Holder string
	// Rows is the number of rows cleared. Tasks lists them by kind.
	Rows  int64
	Tasks []TaskReport
	// More is true when MaxRows ended the pass.
	More bool
	// Error describes the error that ended the pass, in this package's words and with the
	// engine's code only, because a driver's text may quote values. It is empty for a pass
	// without an error.
	Error string

	id []byte
}

// HistoryOptions select passes. The zero value selects all.
type HistoryOptions struct {
	// After is the pass that the list continues after, as it was listed. Default: from the newest.
	After Pass
}

// History iterates over the passes of all reapers that work on db's tables, the newest first, at most
// HistoryRows. Dry runs and passes that had nothing to clear are not recorded. A failure that repeats
// itself is recorded once an hour. It reads 100 at a time, and ends at the first error.
//
// Errors: [holdfast.ErrInvalid]; [holdfast.ErrSchema]; the error of ctx; the driver's.
func History[Tx any](ctx context.Context, db *holdfast.DB[Tx], opts ...HistoryOptions) iter.Seq2[Pass, error] {
	o, err := options.One(opts)
	if db == nil {
		err = invalid("db", "is nil")
	}
	if o.After.id == nil {
		o.After = Pass{id: []byte{}, Ended: time.UnixMicro(math.MaxInt64)}
	}
	return core.Pages(err, o.After, historyPage, func(after Pass) ([]Pass, error) {
		a := access.Of(db)
		h := newHistory(a.Table("sweeps"), "", a.Dialect)
		passes, err := h.read(ctx, a.Pool, after)
		if err != nil && a.Dialect.Classify(err) == dialect.NoTable {
			err = &holdfast.SchemaError{Table: h.at, Err: err}
		}
		return passes, err
	})
}

// history writes and reads passes.
type history struct {
	at, holder                string
	insert, bound, trim, list core.Stmt

	// The last recorded failure, and when it was recorded.
	failure string
	failed  time.Time
}

func newHistory(table, holder string, d *dialect.Dialect) *history {
	r := strings.NewReplacer("{sweeps}", table, "{now}", d.Now)
	compile := func(name, text string) core.Stmt { return d.Compile("sweep.history."+name, r.Replace(text)) }
	sql := &dialect.History
	return &history{
		at: table, holder: holder,
		insert: compile("insert", sql.Insert), bound: compile("bound", sql.Bound),
		trim: compile("trim", sql.Trim),
		// The end and the id of the pass to continue after, limit.
		list: compile("list", `SELECT id, began_at, ended_at, holder, cleared, more, tasks, error FROM {sweeps} WHERE `+
			d.Compare([]string{"ended_at", "id"}, "<", "$1", "$2")+` ORDER BY ended_at DESC, id DESC LIMIT $3`),
	}
}

// taskJSON is the stored form of a TaskReport.
type taskJSON struct {
	Task     string `json:"task"`
	Rows     int64  `json:"rows"`
	Batches  int    `json:"batches"`
	Passed   int64  `json:"passed"`
	Referred int64  `json:"referenced,omitempty"`
	OldestUS int64  `json:"oldest_us"`
	TookUS   int64  `json:"took_us"`
}

// record stores a pass, unless it cleared nothing and did not fail. Calls do not overlap.
func (r *Reaper) record(ctx context.Context, report Report, failed error) error {
	h := r.history
	kind, text := describe(failed)
	if kind == "" {
		h.failure = ""
	}
	if report.Rows() == 0 {
		// Skip a pass that ended with its context, and a failure that was recorded recently.
		if kind == "" || ctx.Err() != nil || kind == h.failure && time.Since(h.failed) < repeatedAfter {
			return nil
		}
	}
	tasks := []taskJSON{}
	for _, t := range report.Tasks {
		tasks = append(tasks, taskJSON{t.Task, t.Rows, t.Batches, t.Passed, t.Referenced, t.Oldest.Microseconds(), t.Duration.Microseconds()})
	}
	list, err := json.Marshal(tasks)
	if err != nil {
		return err
	}
	id, more := uuid.New(), 0
	if report.More {
		more = 1
	}
	args := []any{id[:], report.Duration.Microseconds(), h.holder, report.Rows(), more, string(list), nil}
	if text != "" {
		args[6] = text
	}
	ctx, cancel := core.CleanupWithin(ctx, historyTimeout)
	defer cancel()
	if err := r.again(ctx, func() error {
		_, err := h.insert.Exec(ctx, r.pool, args...)
		return err
	}); err != nil {
		return err
	}
	h.failure, h.failed = kind, time.Now()
	if errors.Is(failed, ErrClockJump) {
		return nil // the clock is wrong, so no row counts as old
	}
	return r.again(ctx, func() error { return h.cut(ctx, r.pool) })
}

// cut deletes passes that exceed the bounds.
func (h *history) cut(ctx context.Context, q core.Querier) error {
	var oldest int64
	if _, err := h.bound.QueryRow(ctx, q, []any{&oldest}, HistoryRows-1); err != nil {
		return err
	}
	_, err := h.trim.Exec(ctx, q, oldest, historyLife.Microseconds())
	return err
}

func (h *history) read(ctx context.Context, q core.Querier, after Pass) ([]Pass, error) {
	rows, err := h.list.Query(ctx, q, after.Ended.UnixMicro(), after.id, historyPage)
	if err != nil {
		return nil, err
	}
	return core.Collect(rows, h.scan)
}

func (h *history) scan(row core.Row) (p Pass, err error) {
	var began, ended int64
	var more int
	var list string
	var failed *string
	if err := row.Scan(&p.id, &began, &ended, &p.Holder, &p.Rows, &more, &list, &failed); err != nil {
		return p, err
	}
	var tasks []taskJSON
	if err := json.Unmarshal([]byte(list), &tasks); err != nil {
		return p, fmt.Errorf("reaper: a pass in %s: %w", h.at, err)
	}
	for _, t := range tasks {
		p.Tasks = append(p.Tasks, TaskReport{t.Task, t.Rows, t.Batches, t.Passed, t.Referred, micros(t.OldestUS), micros(t.TookUS)})
	}
	p.Began, p.Ended, p.More = time.UnixMicro(began).UTC(), time.UnixMicro(ended).UTC(), more != 0
	if failed != nil {
		p.Error = *failed
	}
	return p, nil
}

// describe returns what ended a pass, without the driver's text. Failures of the same kind
// count as the same failure.
func describe(err error) (kind, text string) {
	var jump *ClockJumpError
	if errors.As(err, &jump) {
		return ErrClockJump.Error(), fmt.Sprintf("the database's clock jumped: %v against the process's stopwatch", jump.Jump.Round(time.Millisecond))
	}
	for _, e := range parts(err) {
		if text != "" {
			text += "; "
		}
		text += describeOne(e)
	}
	text = strings.ToValidUTF8(text[:min(len(text), 500)], "")
	return text, text
}

// parts splits the joined errors of several tables.
func parts(err error) []error {
	if many, ok := err.(interface{ Unwrap() []error }); ok && errors.As(err, new(*TableError)) {
		return many.Unwrap()
	}
	if err == nil {
		return nil
	}
	return []error{err}
}

func describeOne(err error) string {
	var own *TableError
	var schema *holdfast.SchemaError
	var retry *holdfast.RetryError
	where, text := "", "the database's error"
	if errors.As(err, &own) {
		where = "table " + strconv.Quote(own.Table) + ": "
	}
	switch {
	case errors.As(err, &schema):
		text = "table " + schema.Table + " is missing, or without its row"
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		text = "its context ended"
	case errors.As(err, &retry):
		text = fmt.Sprintf("rolled back %d times", retry.Attempts)
	case errors.Is(err, holdfast.ErrUnknown):
		text = "a commit whose outcome is unknown"
	}
	if code := dialect.Code(err); code != "" {
		text += " (" + code + ")"
	}
	return where + text
}
