package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

var (
	fences      = regexp.MustCompile("(?ms)^ *```(\\w*)[^\n]*\n(.*?)^ *```$") //nolint:gocritic // with (?m) it is the beginning of a line
	commandLine = regexp.MustCompile(`(?:^|[|;&(]|\s--\s)\s*(?:[A-Z_]+=\S*\s+)*holdfast\s+([a-z-].*)`)
	made        = regexp.MustCompile(`(?:^|[;&(])\s*make\s+([a-z-]+)(?:\s|$)`)
	target      = regexp.MustCompile(`(?m)^([a-z][a-z-]*):`)
	inline      = regexp.MustCompile("`holdfast ([a-z-][^`]*)`")
	markOfBlock = regexp.MustCompile(`<!-- not run here: (.*?) -->\n *$`)
)

// noCommand are texts in sentences that begin like a command: what hashes and errors begin with.
var noCommand = []string{"record 1", "audit 1", "fence:"}

// TestDocsCommandLines checks that each command and flag that the pages show in a block exists and
// takes its arguments, and so does each target of make. In a sentence a command may lack arguments. It runs none of them: TestDocsCommands does.
func TestDocsCommandLines(t *testing.T) {
	t.Parallel()
	targets := makeTargets(t)
	commands, makes, named := 0, 0, 0
	for page, text := range docsPages(t) {
		for _, line := range shellLines(text) {
			if m := commandLine.FindStringSubmatch(line); m != nil {
				commands++
				if err := wouldRun(m[1]); err != nil {
					t.Errorf("%s: holdfast %s: %v", page, m[1], err)
				}
			}
			for _, m := range made.FindAllStringSubmatch(line, -1) {
				makes++
				if !targets[m[1]] {
					t.Errorf("%s: no target: %s", page, line)
				}
			}
		}
		for _, m := range inline.FindAllStringSubmatch(text, -1) {
			if slices.Contains(noCommand, m[1]) {
				continue
			}
			named++
			if _, err := parsed(m[1]); err != nil {
				t.Errorf("%s: holdfast %s: %v", page, m[1], err)
			}
		}
	}
	if commands < 25 || makes < 8 || named < 50 {
		t.Errorf("only %d commands of holdfast in blocks, %d in sentences, and %d of make", commands, named, makes)
	}
}

// docsPages returns the text of each page, by its path below the repository.
func docsPages(t *testing.T) map[string]string {
	t.Helper()
	pages := map[string]string{}
	for _, pattern := range []string{"README.md", "README.zh-CN.md", "CONTRIBUTING.md", "docs/*.md", "docs/*/*.md", "examples/*/README.md"} {
		found, err := filepath.Glob("../../" + pattern)
		if err != nil || len(found) == 0 {
			t.Fatal(pattern, err)
		}
		for _, page := range found {
			text, err := os.ReadFile(page)
			if err != nil {
				t.Fatal(err)
			}
			pages[strings.TrimPrefix(page, "../../")] = string(text)
		}
	}
	return pages
}

func makeTargets(t *testing.T) map[string]bool {
	t.Helper()
	makefile, err := os.ReadFile("../../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	targets := map[string]bool{}
	for _, m := range target.FindAllStringSubmatch(string(makefile), -1) {
		targets[m[1]] = true
	}
	return targets
}

// shellBlock is a block of a page that shows command lines.
type shellBlock struct {
	line    int    // of the fence
	mark    string // why its lines are not run, from the comment above it
	prompts bool   // a session: each line follows the one before, and its output may be shown
	typed   []typed
}

// typed is a command line, and what the page shows of its output.
type typed struct{ text, shows string }

// shellBlocks returns a page's blocks. In a block with prompts, the other lines are output.
func shellBlocks(page string) []shellBlock {
	var all []shellBlock
	for _, at := range fences.FindAllStringSubmatchIndex(page, -1) {
		if lang := page[at[2]:at[3]]; lang != "" && lang != "sh" && lang != "console" && lang != "bash" {
			continue
		}
		b := shellBlock{line: 1 + strings.Count(page[:at[0]], "\n")}
		if m := markOfBlock.FindStringSubmatch(page[:at[0]]); m != nil {
			b.mark = m[1]
		}
		text := strings.ReplaceAll(page[at[4]:at[5]], "\\\n", " ")
		b.prompts = strings.HasPrefix(strings.TrimSpace(text), "$ ")
		for line := range strings.Lines(text) {
			command, prompt := strings.CutPrefix(strings.TrimSpace(line), "$ ")
			switch {
			case b.prompts == prompt:
				b.typed = append(b.typed, typed{text: strings.TrimPrefix(command, "*/5 * * * *  ")})
			case b.prompts && len(b.typed) > 0:
				b.typed[len(b.typed)-1].shows += line
			}
		}
		all = append(all, b)
	}
	return all
}

// shellLines returns the command lines of a page's blocks.
func shellLines(page string) []string {
	var all []string
	for _, b := range shellBlocks(page) {
		for _, l := range b.typed {
			all = append(all, l.text)
		}
	}
	return all
}

// parsed returns the command of a line, which has parsed its flags.
func parsed(line string) (*cobra.Command, error) {
	root := newRoot()
	root.InitDefaultCompletionCmd()
	cmd, rest, err := root.Find(longFlags(root, words(line)))
	if err == nil {
		err = cmd.ParseFlags(rest)
	}
	if err == nil && cmd.HasSubCommands() {
		err = cmd.ValidateArgs(cmd.Flags().Args()) // they are no command
	}
	return cmd, err
}

// wouldRun parses the arguments of a command line as the command does.
func wouldRun(line string) error {
	cmd, err := parsed(line)
	if err != nil {
		return err
	}
	if err := cmd.ValidateArgs(cmd.Flags().Args()); err != nil {
		return err
	}
	if err := cmd.ValidateRequiredFlags(); err != nil {
		return err
	}
	return cmd.ValidateFlagGroups()
}

// words splits a command line as a shell does, up to what ends the command: a comment, a pipe, &&.
func words(line string) []string {
	var all []string
	for _, m := range regexp.MustCompile(`(?:'[^']*'|"[^"]*"|[^\s'"])+`).FindAllString(line, -1) {
		if strings.HasPrefix(m, "#") || m == "|" || m == "&&" || m == ";" || m == ">" || m == ">>" {
			break
		}
		all = append(all, strings.NewReplacer("'", "", `"`, "", ")", "").Replace(m))
	}
	return all
}

// TestDocsCommandLinesFindsFaults plants faults in command lines.
func TestDocsCommandLinesFindsFaults(t *testing.T) {
	t.Parallel()
	for _, line := range []string{"lokcs list", "locks lsit", "ops list --kyed x", "reap --every often", "migrate up now", "lock"} {
		if wouldRun(line) == nil {
			t.Errorf("no error: holdfast %s", line)
		}
	}
	for _, line := range []string{"lokcs", "locks lsit", "ops list --kyed x"} {
		if _, err := parsed(line); err == nil {
			t.Errorf("no error: holdfast %s", line)
		}
	}
}
