package main

import (
	"bytes"
	"io"
	"strings"

	"github.com/spf13/cobra"
)

// oneOf adds a flag that accepts one of a few values, with shell completion. A tab separates a
// value from its description.
func oneOf(cmd *cobra.Command, into *string, name, value, what string, values ...string) {
	cmd.Flags().StringVar(into, name, value, what+": "+listed(values))
	_ = cmd.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)) // the flag exists
}

// someOf does the same for comma-separated values.
func someOf(cmd *cobra.Command, into *string, name, value, what string, values ...string) {
	cmd.Flags().StringVar(into, name, value, what+", with commas between: "+listed(values))
	_ = cmd.RegisterFlagCompletionFunc(name, func(_ *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
		before := typed[:strings.LastIndex(typed, ",")+1]
		var more []string
		for _, v := range values {
			if !strings.Contains(","+before, ","+bare(v)+",") {
				more = append(more, before+v)
			}
		}
		return more, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
	})
}

// bare returns a value without its description.
func bare(value string) string {
	value, _, _ = strings.Cut(value, "\t")
	return value
}

func listed(values []string) string {
	var names []string
	for _, v := range values {
		names = append(names, bare(v))
	}
	last := len(names) - 1
	return strings.Join(names[:last], ", ") + " or " + names[last]
}

// completionsFor lets a shell complete -js to -json. cobra completes only two dashes, and a shell
// drops completions that do not begin with the typed text.
func completionsFor(args []string, stdout io.Writer) io.Writer {
	if len(args) < 2 || args[0] != cobra.ShellCompRequestCmd && args[0] != cobra.ShellCompNoDescRequestCmd {
		return stdout
	}
	if typed := args[len(args)-1]; len(typed) < 2 || typed[0] != '-' || typed[1] == '-' || strings.Contains(typed, "=") {
		return stdout
	}
	return oneDash{stdout}
}

type oneDash struct{ w io.Writer }

// Write receives one line at a time.
func (o oneDash) Write(line []byte) (int, error) {
	if !bytes.HasPrefix(line, []byte("--")) {
		return o.w.Write(line)
	}
	n, err := o.w.Write(line[1:])
	return n + 1, err
}
