package main

import (
	"cmp"
	"database/sql"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/prove"
)

func newProve(f *flags) *cobra.Command {
	var o prove.Options
	var keep string
	var record bool
	cmd := &cobra.Command{
		Use: "prove", Short: "Show on this database the behaviour that Holdfast's promises rest on; briefly, in tables of its own", Args: noArgs,
		Long: "Show on this database the behaviour that Holdfast's promises rest on: row locks, races for a key and a lease, commits\n" +
			"whose answer is lost, guards, tokens, the clock, isolation; see docs/reference/prove.md. The tables are named PREFIXprove_… and are\n" +
			"dropped at the end. The exit status is 3 when a promise failed, and 1 when one was not shown.\n\n" +
			"With --record, a report that passes is kept in Holdfast's own table: all programs and commands then open this version of the\n" +
			"server, also one that no test run of Holdfast's names. Run it again after an update to another version.",
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if o.Duration < prove.MinDuration || o.Duration > prove.MaxDuration {
				return usage("--duration is not between %v and %v", prove.MinDuration, prove.MaxDuration)
			}
			file, err := keepIn(keep)
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, file.close()) }()
			report, err := f.prove(cmd, o)
			if report.Verdict == "" {
				return err
			}
			found := f.proved(cmd, report, file) // also if tables were left behind
			if err == nil && record && report.Verdict == prove.Pass {
				err = f.record(cmd, report)
			}
			if err != nil && found != nil {
				fmt.Fprintln(cmd.ErrOrStderr(), errorLine(err))
			}
			return cmp.Or(found, err)
		},
	}
	cmd.Flags().DurationVar(&o.Duration, "duration", prove.DefaultDuration, fmt.Sprintf("for how long at most: %v to %v", prove.MinDuration, prove.MaxDuration))
	cmd.Flags().BoolVar(&record, "record", false, "keep a report that passes in the database, so that programs and commands open this version")
	cmd.Flags().StringVar(&keep, "report", "", "also write the report into this file, which must not exist: text, or JSON with --json")
	_ = cmd.MarkFlagFilename("report") // the flag exists
	return cmd
}

// prove runs the checks.
func (f *flags) prove(cmd *cobra.Command, o prove.Options) (prove.Report, error) {
	url, err := f.existing()
	if err != nil {
		return prove.Report{}, err
	}
	p := f.progress(cmd, "prove")
	defer p.done()
	o.Open = f.options()
	o.Pool = func(dial prove.Dial) (*sql.DB, error) { return openWithin(url, dial, answersWithin) }
	o.Progress = func(check string) { p.sayf("%s", check) }
	return prove.Run(cmd.Context(), o)
}

// record keeps a report that passed.
func (f *flags) record(cmd *cobra.Command, report prove.Report) error {
	pool, err := f.open()
	if err != nil {
		return err
	}
	defer func() { _ = pool.Close() }()
	if err := prove.Record(cmd.Context(), pool, report, f.options()); err != nil {
		return f.deniedOn(cmd, pool, err)
	}
	_, err = fmt.Fprintf(cmd.ErrOrStderr(), "recorded: programs and commands open %s on this database\n", report.Product)
	return err
}

// proved prints a report, and returns an error if checks failed.
func (f *flags) proved(cmd *cobra.Command, report prove.Report, file *kept) error {
	report.Refused = withoutPassword(report.Refused)
	for i := range report.Checks {
		report.Checks[i].Found = withoutPassword(report.Checks[i].Found)
	}
	said := report.Text()
	if err := f.answer(cmd, report, said); err != nil {
		return err
	}
	if err := file.write(f, report, said); err != nil {
		return err
	}
	failed := 0
	for _, p := range report.Promises {
		if p.Verdict == prove.Fail {
			failed++
		}
	}
	switch report.Verdict {
	case prove.Fail:
		return brokenError(max(failed, 1)) // nothing was tried if the database was refused
	case prove.NotShown:
		return errors.New("not every promise was shown: see the report")
	}
	return nil
}

// kept is a file for a report; nil for none.
type kept struct {
	file    *os.File
	written bool
}

// keepIn creates the file before any other work.
func keepIn(name string) (*kept, error) {
	if name == "" {
		return nil, nil
	}
	file, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644) //nolint:gosec // the user names it, and it holds no secret
	if err != nil {
		return nil, usage("--report: %v", err)
	}
	return &kept{file: file}, nil
}

func (k *kept) write(f *flags, report prove.Report, said string) error {
	if k == nil {
		return nil
	}
	k.written = true
	return f.answerTo(k.file, report, said)
}

// close closes the file, and deletes it if it is empty.
func (k *kept) close() error {
	if k == nil {
		return nil
	}
	err := k.file.Close()
	if !k.written {
		err = errors.Join(err, os.Remove(k.file.Name()))
	}
	return err
}
