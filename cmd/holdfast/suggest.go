package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// typos is how many letters of a word may be wrong.
const typos = 2

// closest returns the names that a mistyped word is likely meant to be: those with the fewest wrong
// letters, or else those that begin so.
func closest(typed string, names []string) (found []string) {
	least := typos + 1
	for _, n := range names {
		switch d := distance(typed, n); {
		case d >= len(typed): // no letter is right
		case d < least:
			found, least = []string{n}, d
		case d == least && d <= typos:
			found = append(found, n)
		}
	}
	if len(found) > 0 || len(typed) < typos {
		return found
	}
	for _, n := range names {
		if strings.HasPrefix(n, typed) {
			found = append(found, n)
		}
	}
	return found
}

// distance counts how many letters are missing, added, changed or swapped with the next one (optimal
// string alignment).
func distance(a, b string) int {
	d := make([][]int, len(a)+1)
	for i := range d {
		d[i] = make([]int, len(b)+1)
		d[i][0] = i
	}
	for j := range d[0] {
		d[0][j] = j
	}
	for i := 1; i <= len(a); i++ {
		for j := 1; j <= len(b); j++ {
			changed := d[i-1][j-1]
			if a[i-1] != b[j-1] {
				changed++
			}
			d[i][j] = min(changed, d[i-1][j]+1, d[i][j-1]+1)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				d[i][j] = min(d[i][j], d[i-2][j-2]+1)
			}
		}
	}
	return d[len(a)][len(b)]
}

// unknownChoice is the error for a value that a flag does not have.
func unknownChoice(flag, typed string, values []string) error {
	names := make([]string, len(values))
	for i, v := range values {
		names[i] = bare(v)
	}
	meant := closest(typed, names)
	if len(meant) == 0 && typed != "" {
		meant = slices.DeleteFunc(slices.Clone(names), func(n string) bool { return !strings.Contains(n, typed) })
	}
	if len(meant) > 0 {
		return usage("%s is %q; did you mean %s?", flag, typed, quoted(meant))
	}
	return usage("%s is %q: use %s", flag, typed, listed(names))
}

// quoted returns names as "a", "b" or "c".
func quoted(names []string) string {
	var q []string
	for _, n := range names {
		q = append(q, fmt.Sprintf("%q", n))
	}
	if last := len(q) - 1; last > 0 {
		return strings.Join(q[:last], ", ") + " or " + q[last]
	}
	return strings.Join(q, "")
}

// noArgs refuses arguments. It quotes one only if it is nearly a command: any other may be a URL with
// a password.
func noArgs(cmd *cobra.Command, args []string) error {
	switch {
	case len(args) == 0:
		return nil
	case cmd.HasSubCommands():
		return unknownCommand(cmd, args[0])
	case cmd.Flags().Changed("watch"):
		if d, err := time.ParseDuration(args[0]); err == nil {
			return fmt.Errorf("write it with an equals sign: --watch=%v", d)
		}
	}
	return fmt.Errorf("%s takes flags only: see %s --help", cmd.CommandPath(), cmd.CommandPath())
}

func unknownCommand(cmd *cobra.Command, typed string) error {
	var names []string
	for _, c := range cmd.Commands() {
		if !c.IsAvailableCommand() {
			continue
		}
		names = append(names, c.Name())
		if slices.Contains(c.SuggestFor, typed) {
			return fmt.Errorf("unknown command %q; did you mean %q?", typed, c.CommandPath())
		}
		for _, below := range c.Commands() { // holdfast status
			if below.Name() == typed {
				return fmt.Errorf("unknown command %q; did you mean %q?", typed, below.CommandPath())
			}
		}
	}
	if meant := closest(typed, names); len(meant) > 0 {
		return fmt.Errorf("unknown command %q; did you mean %s?", typed, quoted(meant))
	}
	return fmt.Errorf("unknown command: %s has %s", cmd.CommandPath(), strings.Join(names, ", "))
}

// unknownFlag adds to an error of the flags what was likely meant.
func unknownFlag(cmd *cobra.Command, err error) error {
	var unknown *pflag.NotExistError
	if !errors.As(err, &unknown) {
		return err
	}
	var names []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			names = append(names, f.Name)
		}
	})
	meant := closest(unknown.GetSpecifiedName(), names)
	for i := range meant {
		meant[i] = "--" + meant[i]
	}
	if len(meant) == 0 {
		return fmt.Errorf("%w: see %s --help", err, cmd.CommandPath())
	}
	return fmt.Errorf("%w; did you mean %s?", err, quoted(meant))
}
