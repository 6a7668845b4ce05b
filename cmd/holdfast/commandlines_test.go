package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	fences      = regexp.MustCompile("(?ms)^ *```(\\w*)[^\n]*\n(.*?)^ *```$") //nolint:gocritic // with (?m) it is the beginning of a line
	commandLine = regexp.MustCompile(`(?:^|[|;&(]|\s--\s)\s*(?:[A-Z_]+=\S*\s+)*holdfast\s+([a-z-].*)`)
	made        = regexp.MustCompile(`(?:^|[;&(])\s*make\s+([a-z-]+)(?:\s|$)`)
	target      = regexp.MustCompile(`(?m)^([a-z][a-z-]*):`)
)

// TestDocsCommandLines checks that each command and flag that the pages show in a block exists and
// takes its arguments, and so does each target of make. It runs none of them.
func TestDocsCommandLines(t *testing.T) {
	t.Parallel()
	makefile, err := os.ReadFile("../../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	targets := map[string]bool{}
	for _, m := range target.FindAllStringSubmatch(string(makefile), -1) {
		targets[m[1]] = true
	}
	pages := []string{"../../README.md", "../../README.zh-CN.md", "../../CONTRIBUTING.md"}
	for _, pattern := range []string{"../../docs/*.md", "../../docs/*/*.md", "../../examples/*/README.md"} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		pages = append(pages, found...)
	}
	commands, makes := 0, 0
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range shellLines(string(text)) {
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
	}
	if commands < 25 || makes < 8 {
		t.Errorf("only %d commands of holdfast and %d of make", commands, makes)
	}
}

// shellLines returns the command lines of a page's blocks. In a block with prompts, the others are output.
func shellLines(page string) []string {
	var all []string
	for _, m := range fences.FindAllStringSubmatch(page, -1) {
		if m[1] != "" && m[1] != "sh" && m[1] != "console" && m[1] != "bash" {
			continue
		}
		text := strings.ReplaceAll(m[2], "\\\n", " ")
		prompts := strings.HasPrefix(strings.TrimSpace(text), "$ ")
		for line := range strings.Lines(text) {
			line, prompt := strings.CutPrefix(strings.TrimSpace(line), "$ ")
			if prompts == prompt {
				all = append(all, strings.TrimPrefix(line, "*/5 * * * *  "))
			}
		}
	}
	return all
}

// wouldRun parses the arguments of a command line as the command does.
func wouldRun(line string) error {
	args := words(line)
	root := newRoot()
	root.InitDefaultCompletionCmd()
	cmd, rest, err := root.Find(longFlags(args))
	if err != nil {
		return err
	}
	if err := cmd.ParseFlags(rest); err != nil {
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
}
