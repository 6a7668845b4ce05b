package main

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

var update = flag.Bool("update", false, "write the commands into docs/reference/cli.md")

// TestDocs checks that docs/reference/cli.md lists every command, flag and exit status.
func TestDocs(t *testing.T) {
	t.Parallel()
	const file, begin, end = "../../docs/reference/cli.md", "<!-- commands -->\n", "<!-- /commands -->\n"
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(text), begin)
	is, after, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatal("the marks are missing")
	}
	want := describeCommands(newRoot())
	if is == want {
		return
	}
	if !*update {
		t.Fatal("docs/reference/cli.md is not what the commands are: go test ./cmd/holdfast -run TestDocs -update")
	}
	if err := os.WriteFile(file, []byte(before+begin+want+end+after), 0o600); err != nil {
		t.Fatal(err)
	}
}

func describeCommands(root *cobra.Command) string {
	var b strings.Builder
	b.WriteString("\n| exit status | |\n|---|---|\n")
	for _, m := range exitMeanings {
		fmt.Fprintf(&b, "| %s | %s |\n", m.name(), m.meaning)
	}
	b.WriteString("\n`lock`, `elect` and `once` exit as the command that they run does, or with\n\n| exit status | |\n|---|---|\n")
	for _, m := range runMeanings {
		fmt.Fprintf(&b, "| %s | %s |\n", m.name(), m.meaning)
	}
	b.WriteString("\nEvery command takes:\n" + describeFlags(root.PersistentFlags()))
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		if cmd != root {
			fmt.Fprintf(&b, "\n### %s\n\n%s.\n", cmd.CommandPath(), cmd.Short)
			if cmd.Long != "" && cmd.Long != cmd.Short {
				fmt.Fprintf(&b, "\n```text\n%s\n```\n", strings.TrimSpace(cmd.Long))
			}
			b.WriteString(describeFlags(cmd.LocalNonPersistentFlags()))
			if own := cmd.PersistentFlags(); own.HasFlags() {
				b.WriteString("\nIts commands take:\n" + describeFlags(own))
			}
		}
		for _, below := range cmd.Commands() {
			walk(below)
		}
	}
	walk(root)
	return b.String()
}

func describeFlags(flags *pflag.FlagSet) string {
	var b strings.Builder
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Name == "help" {
			return
		}
		if b.Len() == 0 {
			b.WriteString("\n| flag | default | |\n|---|---|---|\n")
		}
		kind, value := "", ""
		if t := f.Value.Type(); t != "bool" {
			kind = " " + strings.ToUpper(t)
		}
		if d := f.DefValue; d != "" && d != "0" && d != "0s" && d != "false" && d != "[]" {
			value = "`" + d + "`"
		}
		fmt.Fprintf(&b, "| `--%s%s` | %s | %s |\n", f.Name, kind, value, strings.ReplaceAll(f.Usage, "|", "\\|"))
	})
	return b.String()
}
