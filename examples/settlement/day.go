package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/examples/internal/process"
)

// environmentURL passes the database URL to a child, because every user of the machine can see
// arguments and the URL contains a password.
const environmentURL = "SETTLEMENT_EXAMPLE_DSN"

// day is a whole run, with the values of its flags.
type day struct {
	name, url, file string
	rows, workers   int
	kill            bool
	stdout, stderr  io.Writer
}

// dayCommand feeds a day's file twice, lets workers book it, kills some of them, and audits the
// books.
func dayCommand(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("settlement", flag.ContinueOnError)
	y := &day{name: newDay(), stdout: os.Stdout, stderr: os.Stderr}
	flags.IntVar(&y.rows, "rows", 2000, "lines of the day's file")
	flags.IntVar(&y.workers, "workers", 3, "worker processes")
	flags.BoolVar(&y.kill, "kill", true, "kill (SIGKILL) the feed once, and workers, and start them again")
	flags.StringVar(&y.url, "dsn", "", "database: postgres://…, mysql://…, sqlite://path (default: SQLite in a temporary file)")
	if err := parse(flags, args); err != nil {
		return err
	}
	if y.rows < 1 || y.workers < 1 {
		return usageError{errors.New("-rows and -workers are at least 1")}
	}
	return y.run(ctx)
}

func (y *day) run(ctx context.Context) (err error) {
	dir, err := os.MkdirTemp("", "holdfast-settlement-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if y.url == "" {
		y.url = "sqlite://" + filepath.Join(dir, "settlement.db")
	}
	y.file = filepath.Join(dir, "day.csv")
	out, err := os.Create(y.file)
	if err != nil {
		return err
	}
	if err := errors.Join(writeFile(out, y.name, y.rows), out.Close()); err != nil {
		return err
	}
	d, err := open(ctx, y.url)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.close(ctx)) }()
	if err := d.createBalances(ctx); err != nil {
		return err
	}
	for n := 1; n <= 2; n++ { // the same file twice
		start := time.Now()
		f, killed, err := y.once(ctx)
		if err != nil {
			return err
		}
		took := time.Since(start)
		fmt.Fprintf(y.stderr, "run %d: %d lines are new and %d known, %d processes killed, %.1f s, %.0f lines a second\n",
			n, f.new, f.known, killed, took.Seconds(), float64(y.rows)/took.Seconds())
	}
	b, err := d.audit(ctx, y.name)
	if err != nil {
		return err
	}
	problems := b.problems(y.rows)
	for _, p := range problems {
		fmt.Fprintln(y.stderr, "audit:", p)
	}
	fmt.Fprintf(y.stdout, "lines=%d fed=2 booked=%d duplicates=%d closings=%d\n", b.lines, b.booked, b.twice, b.closings)
	if len(problems) > 0 {
		return fmt.Errorf("the audit found %d problems", len(problems))
	}
	return nil
}

// once feeds the file and works until the day is closed.
func (y *day) once(ctx context.Context) (result fed, killed int, err error) {
	var wg sync.WaitGroup
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var mu sync.Mutex
	process := func(dies bool, heard func(line string), args ...string) {
		wg.Go(func() {
			for again := dies && y.kill; ; again = false {
				dead, err := y.child(ctx, again, heard, append(args, "-day", y.name)...)
				mu.Lock()
				if dead {
					killed++
				}
				mu.Unlock()
				switch {
				case dead: // start it again
				case err != nil:
					cancel(err)
					return
				default:
					return
				}
			}
		})
	}
	process(true, func(line string) {
		var f fed
		if n, _ := fmt.Sscanf(line, "fed %d %d %d", &f.new, &f.known, &f.refused); n == 3 {
			result = f
		}
	}, "feed", "-file", y.file)
	for i := range y.workers {
		process(i < (y.workers+1)/2, func(string) {}, "work")
	}
	wg.Wait()
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return result, killed, err
}

// child runs this program again and reads its output. With dies, it is killed during its work:
// some time after it first reported work.
func (y *day) child(ctx context.Context, dies bool, heard func(line string), args ...string) (dead bool, err error) {
	cmd, err := process.Self(environmentURL, y.url, args...)
	if err != nil {
		return false, err
	}
	cmd.Stderr = y.stderr
	p, err := process.Start(cmd)
	if err != nil {
		return false, err
	}
	stop := context.AfterFunc(ctx, p.Kill)
	defer stop()
	for line := range p.Lines {
		heard(line)
		if dies && !dead {
			dead = true
			time.AfterFunc(3*time.Millisecond, p.Kill)
		}
	}
	err = p.Wait()
	var exit *exec.ExitError
	if dead = dead && errors.As(err, &exit) && strings.Contains(exit.Error(), "killed"); dead {
		return true, nil
	}
	if err != nil {
		err = fmt.Errorf("%s: %w", args[0], err)
	}
	return false, err
}
