//go:build !race

package model_test

import (
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// TestPageListsModels checks the table of models in docs/why/reliability.md: a row a model, the number of its
// planted bugs, and the largest number of states of its small runs, as doc.go has it.
func TestPageListsModels(t *testing.T) {
	page, err := os.ReadFile("../../../docs/why/reliability.md")
	if err != nil {
		t.Fatal(err)
	}
	states := smallStates(t)
	rows := regexp.MustCompile("(?m)^\\|[^|]*\\(`(\\w+\\.pml)`\\)[^|]*\\|[^|]*\\| ([\\d,]+) states \\| (\\d+) \\|").FindAllStringSubmatch(string(page), -1)
	if words := []string{"", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"}; !strings.Contains(string(page), "of "+words[len(models)]+" models") || len(rows) != len(models) {
		t.Errorf("the page has %d rows, and there are %s models", len(rows), words[len(models)])
	}
	found := map[string]string{}
	for _, row := range rows {
		found[row[1]] = row[2] + " states, " + row[3] + " bugs"
	}
	for _, m := range models {
		if want := fmt.Sprintf("%s states, %d bugs", states[m.file], len(m.planted)); found[m.file] != want {
			t.Errorf("the page has %q of %s, want %s", found[m.file], m.file, want)
		}
	}
}

// smallStates returns the largest number of states that doc.go has of each model, but of its large runs.
func smallStates(t *testing.T) map[string]string {
	t.Helper()
	text, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	most, of := map[string]int{}, ""
	written := map[string]string{}
	for line := range strings.Lines(string(text)) {
		if m := regexp.MustCompile(`\w+\.pml`).FindString(line); m != "" {
			of = m
		}
		if strings.Contains(line, "-bound=large adds") {
			of = "large"
		}
		m := regexp.MustCompile(`(?m)^//\t.* {2,}([\d,]+)$`).FindStringSubmatch(line)
		if m == nil || strings.Contains(line, "(large)") {
			continue
		}
		if n, _ := strconv.Atoi(strings.ReplaceAll(m[1], ",", "")); n > most[of] { // digits and commas
			most[of], written[of] = n, m[1]
		}
	}
	return written
}
