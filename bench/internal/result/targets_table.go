package result

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// targetTable writes a row for each target, with a column for each engine.
func targetTable(b *strings.Builder, targets []Target) {
	var whats, on []string
	for _, t := range targets {
		if !slices.Contains(whats, t.What) {
			whats = append(whats, t.What)
		}
	}
	for _, c := range columns {
		if slices.ContainsFunc(targets, func(t Target) bool { return t.On == c }) {
			on = append(on, c)
		}
	}
	line(b, append([]string{"", "target"}, on...))
	b.WriteString(strings.Repeat("|---", len(on)+2) + "|\n")
	var notes []string
	noted := map[string]bool{}
	for _, what := range whats {
		cells, bounds := []string{what}, []string{}
		for _, c := range on {
			i := slices.IndexFunc(targets, func(t Target) bool { return t.What == what && t.On == c })
			if i < 0 {
				cells = append(cells, "")
				continue
			}
			t := targets[i]
			cells = append(cells, t.cell())
			bounds = append(bounds, t.Target)
			if t.Note != "" && !noted[t.Note] {
				noted[t.Note] = true
				notes = append(notes, what+": "+t.Note+".")
			}
		}
		line(b, slices.Insert(cells, 1, together(bounds)))
	}
	for _, n := range notes {
		b.WriteString("\n" + n + "\n")
	}
}

// cell returns the figure, its range over the rounds, and over the runs, and whether the target
// is met.
func (t *Target) cell() string {
	text := cell(t.Measured, true, true)
	if t.Runs != nil && t.Runs.Min != t.Runs.Max {
		text += fmt.Sprintf(" [%s–%s]", Number(t.Runs.Min), Number(t.Runs.Max))
	}
	switch {
	case t.Target == "":
		return text
	case t.Met:
		return text + ", met"
	}
	return text + ", **missed**"
}

// together returns the bounds of the engines: one, if they are the same.
func together(bounds []string) string {
	if same := slices.Compact(slices.Clone(bounds)); len(same) == 1 {
		return same[0]
	}
	for i, b := range bounds {
		if i > 0 {
			b = strings.TrimLeft(b, "≤≥ ")
		}
		bounds[i] = cmp.Or(b, "–")
	}
	return strings.Join(bounds, "; ")
}
