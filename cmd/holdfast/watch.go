package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
)

const (
	watchInterval    = 2 * time.Second
	minWatchInterval = 100 * time.Millisecond
)

// watch is the flag --watch: how long to wait before a list is shown again, 0 for once.
type watch struct{ every time.Duration }

func (w *watch) addWatch(cmd *cobra.Command) {
	cmd.Flags().DurationVar(&w.every, "watch", 0, "show it again and again until interrupted, with so much time between: --watch="+watchInterval.String())
	cmd.Flags().Lookup("watch").NoOptDefVal = watchInterval.String()
}

// outputError is an error of writing an answer. It ends --watch.
type outputError struct{ error }

func (e outputError) Unwrap() error { return e.error }

// repeat calls show once, or with --watch until ctx ends. Once show has worked, say gets its errors, and the next
// call follows in its time: the database may come back.
func (w *watch) repeat(ctx context.Context, show func() error, say func(error) error) error {
	if w.every == 0 {
		return show()
	}
	if w.every < minWatchInterval {
		return usage("--watch is shorter than %v", minWatchInterval)
	}
	next := time.NewTicker(w.every)
	defer next.Stop()
	for worked := false; ; {
		err := show()
		switch {
		case ctx.Err() != nil:
			return nil // it was told to stop
		case err == nil:
			worked = true
		case !worked || is[outputError](err):
			return err
		default:
			if err := say(err); err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-next.C:
		}
	}
}

// frame separates the answers of --watch: a terminal is cleared, other readers of text get a line with
// the time, and each YAML value is a document. JSON has a line for each.
func (w *watch) frame(out io.Writer, form string) error {
	text := ""
	switch now := time.Now().UTC().Format(time.RFC3339); {
	case w.every == 0 || form == asJSON:
	case form == asYAML:
		text = "---\n"
	case isTerminal(out):
		text = fmt.Sprintf("\x1b[H\x1b[2J%s, every %v until interrupted\n\n", now, w.every)
	default:
		text = "# " + now + "\n"
	}
	_, err := io.WriteString(out, text)
	return err
}

// failed says an error of --watch in the place of the answer on a terminal, and on standard error where
// something else reads the answers.
func (o *outputFlags) failed(cmd *cobra.Command, err error) error {
	to := cmd.ErrOrStderr()
	if out := cmd.OutOrStdout(); isTerminal(out) && o.forPeople() {
		to = out
		if err := o.frame(out, o.as()); err != nil {
			return err
		}
	}
	_, err = fmt.Fprintf(to, "%s; trying again in %v\n", errorLine(err), o.every)
	return err
}
