//go:build unix

package main

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
)

// vectorSections are the sections that the programs compute, and the field that has the value.
var vectorSections = []struct{ name, field string }{
	{"key_hash", "key_hash"}, {"key_of", "key"}, {"canonical", "canonical"}, {"canonical_refused", ""}, {"fingerprint", "fingerprint"}, {"lock_name", "name"},
}

// checkVectors has each language but Go, whose own suite does, compute the vectors of docs/reference/protocol, and
// compares them byte by byte.
func checkVectors(ctx context.Context, s *storm) error {
	want, err := readVectors(s.vectors)
	if err != nil {
		return err
	}
	defer s.end()
	for _, language := range s.languages {
		if language == "go" {
			continue
		}
		if language == "java" {
			if err := s.compile(ctx, "Vectors.java"); err != nil {
				return err
			}
		}
		line, err := s.commandOf(language, "Vectors")
		if err != nil {
			return err
		}
		cmd := exec.CommandContext(ctx, line[0], append(line[1:], s.vectors)...) //nolint:gosec // a program of this folder
		cmd.Stderr = s.log
		out, err := cmd.Output()
		if err != nil {
			return fmt.Errorf("%s: %w", language, err)
		}
		got := strings.Split(strings.TrimSpace(string(out)), "\n")
		for i := range max(len(got), len(want)) {
			if i >= len(got) || i >= len(want) || got[i] != want[i] {
				return fmt.Errorf("%s differs from %s at line %d of %d and %d", language, s.vectors, i+1, len(got), len(want))
			}
		}
		fmt.Fprintf(s.out, "%s: %d vectors are equal\n", language, len(got))
	}
	return nil
}

// readVectors returns the lines that a program has to print.
func readVectors(file string) (lines []string, err error) {
	text, err := os.ReadFile(file) //nolint:gosec // a flag names it
	if err != nil {
		return nil, err
	}
	var sections map[string]json.RawMessage
	if err := json.Unmarshal(text, &sections); err != nil {
		return nil, err
	}
	for _, section := range vectorSections {
		var vectors []map[string]any
		if err := json.Unmarshal(sections[section.name], &vectors); err != nil {
			return nil, err
		}
		for i, v := range vectors {
			value, _ := v[section.field].(string)
			switch section.name {
			case "canonical_refused":
				value = "refused"
			case "key_of", "canonical": // they are texts
				value = hex.EncodeToString([]byte(value))
			}
			lines = append(lines, fmt.Sprint(section.name, " ", i, " ", value))
		}
	}
	return lines, nil
}
