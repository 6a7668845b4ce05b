// Package prove tests, on a live database, the behaviour that Holdfast's promises depend on:
// row locks, races for a key and for a lease, commits whose answer is lost, guards, tokens, the
// clock, isolation. It creates its own tables and drops them at the end.
//
// A pass means that this run observed the behaviour. It says nothing about what survives a
// crash or a failover: see docs/reference/prove.md.
package prove

import (
	"context"
	"database/sql"
	"errors"
	"net"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/dialect"
)

// Defaults and bounds of Options.Duration.
const (
	DefaultDuration = time.Minute
	MinDuration     = 5 * time.Second
	MaxDuration     = 10 * time.Minute
)

// Dial makes a network connection.
type Dial func(ctx context.Context, network, address string) (net.Conn, error)

// Options configure Run. Pool is required.
type Options struct {
	// Pool opens a new pool on the database at each call. Run closes it. If dial is not nil,
	// the driver must make its connections with it, because Run cuts them. For an embedded
	// database dial is always nil.
	Pool func(dial Dial) (*sql.DB, error)
	// Open are the options of every DB that Run opens. The names of Run's tables begin with
	// Prefix, then "prove_", six random letters and digits, and "_". Prefix has at most 19
	// bytes. Run creates its tables in Schema.
	Open holdfast.Options
	// Duration bounds all checks together. Each check has at most a quarter of it. MinDuration
	// to MaxDuration. Default: DefaultDuration.
	Duration time.Duration
	// Progress, if not nil, is called with the name of each check when it begins.
	Progress func(check string)

	// For tests: ready is called when the tables exist; only names the checks to run; overlap
	// is how long a racer's function waits for another one.
	ready   func(ctx context.Context, prefix string) error
	only    []string
	overlap time.Duration
}

func (o Options) withDefaults() (Options, error) {
	if o.Pool == nil {
		return o, &holdfast.InputError{Field: "Options.Pool", Problem: "it is nil"}
	}
	switch o.Open.Prefix {
	case "":
		o.Open.Prefix = core.DefaultPrefix
	case holdfast.NoPrefix:
		o.Open.Prefix = ""
	}
	if o.Duration == 0 {
		o.Duration = DefaultDuration
	}
	if o.overlap == 0 {
		o.overlap = 100 * time.Millisecond
	}
	if o.Progress == nil {
		o.Progress = func(string) {}
	}
	return o, nil
}

// Run creates tables with a prefix of their own, runs every check, and drops the tables, also
// after an error or the end of ctx. If Holdfast refuses the server, the report has Refused set
// and the error is nil.
//
// Errors: [holdfast.ErrInvalid], ctx's cause, the driver's. If tables were left behind, the
// error names their prefix and the report is complete.
func Run(ctx context.Context, o Options) (report Report, err error) {
	if o, err = o.withDefaults(); err != nil {
		return Report{}, err
	}
	// An untested version is accepted, because this run tests it.
	ctx = dialect.Without(ctx, dialect.RuleUntested)
	r := newRun(o)
	defer func() {
		r.close(ctx)
		err = errors.Join(err, r.drop(ctx))
		report.TookMS = time.Since(r.start).Milliseconds()
	}()
	switch err := r.open(ctx); {
	case errors.Is(err, holdfast.ErrUnsupported):
		return r.refused(err), nil
	case err != nil:
		return Report{}, err
	}
	for i := range checks {
		if o.only != nil && !slices.Contains(o.only, checks[i].name) {
			continue
		}
		if err := context.Cause(ctx); err != nil {
			return Report{}, err
		}
		r.report.Checks = append(r.report.Checks, r.check(ctx, &checks[i]))
	}
	r.report.conclude()
	return r.report, context.Cause(ctx)
}
