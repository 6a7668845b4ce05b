package main

import (
	"errors"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// emptyMeans marks flags whose empty value says something.
const emptyMeans = "holdfast_empty_means"

// mayBeEmpty allows a flag an empty value, such as the owner of a program that has one only.
func mayBeEmpty(flags *pflag.FlagSet, name string) {
	_ = flags.SetAnnotation(name, emptyMeans, nil) // the flag exists
}

var errEmpty = errors.New("its value is empty (a variable that is not set?): give it a value, or leave it out")

// checkEmpty refuses flags that a script gave with an unset variable: without its value a filter would select
// everything, and another database would be found in the environment.
func checkEmpty(cmd *cobra.Command) (err error) {
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if _, may := f.Annotations[emptyMeans]; may || err != nil {
			return
		}
		_, checked := f.Value.(*namespace)
		empty := f.Value.String() == "" && !checked
		if list, is := f.Value.(pflag.SliceValue); is {
			values := list.GetSlice()
			empty = len(values) == 0 || slices.Contains(values, "")
		}
		if empty {
			err = usage("--%s: %w", f.Name, errEmpty)
		}
	})
	return err
}

// longFlags accepts -dsn for --dsn, as Go's own flag package does. The one-letter flags are -h and -o. What is
// the value of a flag stays as it is.
func longFlags(root *cobra.Command, args []string) []string {
	takes := valueFlags(root)
	out := slices.Clone(args)
	for i := 0; i < len(out) && out[i] != "--"; i++ {
		a := out[i]
		if len(a) > 2 && a[0] == '-' && a[1] != '-' && !strings.HasPrefix(a, "-o=") {
			a = "-" + a
			out[i] = a
		}
		if takes[a] {
			i++
		}
	}
	return out
}

// valueFlags are the flags of all commands, as they are typed, that take the next argument as their value.
func valueFlags(cmd *cobra.Command) map[string]bool {
	takes := map[string]bool{}
	add := func(f *pflag.Flag) {
		if f.NoOptDefVal == "" {
			takes["--"+f.Name] = true
			if f.Shorthand != "" {
				takes["-"+f.Shorthand] = true
			}
		}
	}
	cmd.Flags().VisitAll(add)
	cmd.PersistentFlags().VisitAll(add)
	for _, below := range cmd.Commands() {
		for name := range valueFlags(below) {
			takes[name] = true
		}
	}
	return takes
}
