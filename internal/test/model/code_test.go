//go:build !race

package model_test

import (
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestModelsNameTheirCode checks that the head of each model names the files of its protocol, that each
// of them names the model, and that no other file does.
func TestModelsNameTheirCode(t *testing.T) {
	t.Parallel()
	says := map[string][]string{} // file: its models
	out, err := exec.CommandContext(t.Context(), "git", "-C", "../../..", "grep", "-oE", `\w+\.pml`, "--", "*.go", ":!internal/test").Output()
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(out)) {
		file, model, _ := strings.Cut(strings.TrimSpace(line), ":")
		says[file] = append(says[file], model)
	}
	delete(says, "idempotency/protocol.go") // it lists the protocols
	for _, m := range models {
		text, err := os.ReadFile(m.file)
		if err != nil {
			t.Fatal(err)
		}
		head := regexp.MustCompile(`(?m)^ \* Code: .*$`).FindString(string(text))
		files := regexp.MustCompile(`[\w/]+\.go\b`).FindAllString(head, -1)
		if len(files) == 0 {
			t.Errorf("%s has no line that begins with \"Code:\"", m.file)
		}
		for _, file := range files {
			if !slices.Contains(says[file], m.file) {
				t.Errorf("%s names %s, which does not name it", m.file, file)
			}
		}
		for file, names := range says {
			if slices.Contains(names, m.file) && !slices.Contains(files, file) {
				t.Errorf("%s names %s, whose head does not name it", file, m.file)
			}
		}
	}
}
