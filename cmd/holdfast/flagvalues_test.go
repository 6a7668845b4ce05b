package main

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// everyCommand calls f for each command.
func everyCommand(cmd *cobra.Command, f func(*cobra.Command)) {
	f(cmd)
	for _, below := range cmd.Commands() {
		everyCommand(below, f)
	}
}

// TestEmptyFlags walks the flags with a text: one that is given and empty is refused, but for those to which it
// says something.
func TestEmptyFlags(t *testing.T) {
	t.Parallel()
	may := map[string]bool{}
	everyCommand(newRoot(), func(cmd *cobra.Command) {
		cmd.InheritedFlags() // adds them
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if !slices.Contains([]string{"string", "stringSlice", "stringArray"}, f.Value.Type()) {
				return
			}
			fresh, _, err := newRoot().Find(strings.Fields(cmd.CommandPath())[1:])
			if err != nil {
				t.Fatal(err)
			}
			if fresh.ParseFlags([]string{"--" + f.Name, ""}) == nil && checkEmpty(fresh) == nil {
				may[strings.TrimPrefix(cmd.CommandPath()+" --"+f.Name, "holdfast ")] = true
			}
		})
	})
	maps.DeleteFunc(may, func(flag string, _ bool) bool { return strings.HasSuffix(flag, "--prefix") })
	want := []string{
		"elect --owner", "lock --owner", "locks list --owner", "locks queues --owner", "locks release --owner", "once --owner",
		"ops cancel --owner", "ops erase --owner", "ops resolve --owner", "ops show --owner",
	}
	if got := slices.Sorted(maps.Keys(may)); !slices.Equal(got, want) {
		t.Errorf("these may be empty: %q, want %q", got, want)
	}
}

// TestEmptyDSN: what a script gives goes before the environment, also when its variable is not set.
func TestEmptyDSN(t *testing.T) {
	url := "sqlite://" + t.TempDir() + "/db"
	t.Setenv(dsnVariable, url)
	if code, _, said := command(t, "migrate", "up"); code != exitOK {
		t.Fatal(said)
	}
	for _, args := range [][]string{
		{"migrate", "down", "--yes", "--dsn", ""},
		{"migrate", "down", "--yes", "--dsn="},
		{"migrate", "down", "--yes", "--dsn-file", ""},
		{"audit", "verify", "--expect", ""},
		{"ops", "resume", "--owner", "", "--yes", "--by", "olga", "--reason", "a test"},
		{"doctor", "--role", ""},
	} {
		if code, out, said := command(t, args...); code != exitUsage || out != "" || !strings.Contains(said, "is empty") {
			t.Errorf("%q: %d, %s%s", args, code, out, said)
		}
	}
	if code, _, said := command(t, "audit", "verify"); code != exitOK {
		t.Errorf("the tables: %s", said)
	}
}

// TestLongFlags: -dsn is --dsn, and the value of a flag is what was typed.
func TestLongFlags(t *testing.T) {
	t.Parallel()
	root := newRoot()
	for typed, want := range map[string]string{
		"ops cancel -key -V1St --name refund":            "ops cancel --key -V1St --name refund",
		"ops cancel --key -V1St -name refund":            "ops cancel --key -V1St --name refund",
		"ops cancel --key=-V1St -name=-r":                "ops cancel --key=-V1St --name=-r",
		"lock -owner -7 -ttl 5s key -- echo -n -x":       "lock --owner -7 --ttl 5s key -- echo -n -x",
		"locks list -o json -json -begin -a -h":          "locks list -o json --json --begin -a -h",
		"locks list -o -json":                            "locks list -o -json",
		"ops resolve --result -1250 -by -x -reason -why": "ops resolve --result -1250 --by -x --reason -why",
		"migrate up -yes -dsn -":                         "migrate up --yes --dsn -",
	} {
		if got := strings.Join(longFlags(root, strings.Fields(typed)), " "); got != want {
			t.Errorf("%s: %s, want %s", typed, got, want)
		}
	}
	takes := valueFlags(root)
	everyCommand(root, func(cmd *cobra.Command) {
		cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if f.NoOptDefVal != "" && takes["--"+f.Name] {
				t.Errorf("%s: --%s takes no value here, and one at another command", cmd.CommandPath(), f.Name)
			}
		})
	})
}
