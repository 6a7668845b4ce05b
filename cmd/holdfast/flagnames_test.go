package main

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/holdfast-go/holdfast/internal/test/dbtest"
	"github.com/holdfast-go/holdfast/migrations"
)

// goName is the name of an option or an error in Go, such as Filter.Since.
var goName = regexp.MustCompile(`\b[A-Z][A-Za-z]+\.[A-Z][A-Za-z]+|\b[a-z]+\.Err[A-Z]`)

// TestErrorsSpeakInFlags gives each flag of each command values that are wrong: the error names the flag as
// it is typed, and no option of the Go API.
func TestErrorsSpeakInFlags(t *testing.T) {
	t.Parallel()
	url := dbtest.DSN(t, dbtest.SQLite)
	if err := migrations.Up(t.Context(), dbtest.OpenSQL(t, url)); err != nil {
		t.Fatal(err)
	}
	tried := 0
	for _, cmd := range leaves(newRoot()) {
		path := strings.Fields(cmd.CommandPath())[1:]
		if slices.Contains([]string{"bench", "console", "prove", "completion", "help", "version", "migrate", "lock", "elect"}, path[0]) {
			continue
		}
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			for _, bad := range wrong[f.Value.Type()] {
				args := append(slices.Clone(path), "--"+f.Name+"="+bad)
				cmd.Flags().VisitAll(func(other *pflag.Flag) {
					if value := needed[other.Name]; other.Name != f.Name && value != "" && required(cmd, other) {
						args = append(args, "--"+other.Name+"="+value)
					}
				})
				if path[0] == "once" {
					args = append(args, "key")
				}
				args = append(args, "-dsn", url)
				if path[0] == "once" {
					args = append(args, "--", "true")
				}
				tried++
				if _, _, said := command(t, args...); goName.MatchString(said) {
					t.Errorf("%s: %s", strings.Join(args, " "), said)
				}
			}
		})
	}
	if tried < 50 {
		t.Errorf("only %d were tried", tried)
	}
}

// wrong are bad values of flags, by their types.
var wrong = map[string][]string{
	"duration": {"1ns"},
	"int":      {"-1"},
	"int64":    {"-1"},
	"float64":  {"-1"},
	"string":   {"nonsense"},
}

// needed are values of flags that a command requires.
var needed = map[string]string{"by": "olga", "reason": "a test", "owner": "shop", "name": "refund", "key": "1", "token": "1", "as": "resume", "message": "1"}

func required(cmd *cobra.Command, f *pflag.Flag) bool {
	return f.Annotations[cobra.BashCompOneRequiredFlag] != nil || f.Name == "key" && cmd.Flags().Lookup("key-hex") != nil || f.Name == "name" || f.Name == "owner"
}

// TestChoiceSuggests checks that a value of --as that nearly exists is answered with those that are meant.
func TestChoiceSuggests(t *testing.T) {
	t.Parallel()
	for typed, want := range map[string]string{"done": `did you mean "step-done" or "step-not-done"?`, "succeedd": `did you mean "succeeded"?`, "x": `use step-done, `} {
		if _, err := resolutionOf(typed, "", "", ""); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", typed, err, want)
		}
	}
}
