package result

import (
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"

	"github.com/holdfast-go/holdfast/internal/measure"
)

// Markdown writes the whole report.
func (r *Report) Markdown(w io.Writer) error {
	var b strings.Builder
	b.WriteString("# Measured side by side\n\n")
	for _, line := range r.Machine {
		b.WriteString("- " + line + "\n")
	}
	b.WriteString("- " + r.howLong() + ", in shuffled order; medians (least–greatest of the rounds); ratios are taken within a round\n")
	for _, line := range r.Servers {
		b.WriteString("- " + line + "\n")
	}
	for _, line := range r.Missing {
		b.WriteString("- not measured: " + line + "\n")
	}
	for i := range r.Tables {
		b.WriteString("\n")
		r.Tables[i].markdown(&b)
	}
	if len(r.Targets) > 0 {
		b.WriteString("\n## Targets\n\n")
		targetTable(&b, r.Targets)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// howLong says when and for how long was measured.
func (r *Report) howLong() string {
	what := day(r.Began)
	if r.Commit != "" {
		what += ", commit " + r.Commit
	}
	runs := "one run"
	if r.Runs > 1 {
		runs = strconv.Itoa(r.Runs) + " runs"
	}
	return fmt.Sprintf("%s: %s of %d rounds in slices of %d ms", what, runs, r.Rounds, r.SliceMS)
}

// day returns the day of a time in RFC 3339.
func day(at string) string {
	d, _, _ := strings.Cut(at, "T")
	return d
}

func (t *Table) markdown(b *strings.Builder) {
	b.WriteString("## " + t.Title)
	if t.Clients > 0 {
		fmt.Fprintf(b, ", %s", clients(t.Clients))
	}
	b.WriteString("\n\n")
	head := []string{"", "kind"}
	for _, c := range t.Columns {
		head = append(head, c.Title)
	}
	line(b, append([]string{"on"}, head...))
	b.WriteString("|" + strings.Repeat("---|", len(head)+1) + "\n")
	for _, r := range t.Rows {
		cells := []string{r.Group, r.Name, r.Kind}
		for _, c := range t.Columns {
			v, ok := r.Values[c.Key]
			cells = append(cells, cell(v, ok, c.Spread))
		}
		line(b, cells)
	}
	for _, r := range t.Rows {
		if r.Note != "" {
			fmt.Fprintf(b, "\n%s, %s: %s\n", r.Group, r.Name, r.Note)
		}
	}
	if t.File != "" {
		b.WriteString("\n![" + t.Title + "](" + t.File + ")\n")
	}
	for _, n := range t.Notes {
		b.WriteString("\n" + n + "\n")
	}
}

func clients(n int) string {
	if n == 1 {
		return "1 client"
	}
	return strconv.Itoa(n) + " clients"
}

func line(b *strings.Builder, cells []string) {
	b.WriteString("| " + strings.Join(cells, " | ") + " |\n")
}

func cell(v measure.Spread, there, spread bool) string {
	switch {
	case !there:
		return "–"
	case spread && v.Min != v.Max:
		return fmt.Sprintf("%s (%s–%s)", Number(v.Median), Number(v.Min), Number(v.Max))
	}
	return Number(v.Median)
}

// Number formats n with three significant digits and without trailing zeros.
func Number(n float64) string {
	switch abs := math.Abs(n); {
	case n == math.Trunc(n) && abs < 1e5:
		return strconv.FormatFloat(n, 'f', 0, 64)
	case abs >= 1e6:
		return strconv.FormatFloat(n/1e6, 'f', 2, 64) + "M"
	case abs >= 1e5:
		return strconv.FormatFloat(n/1e3, 'f', 0, 64) + "k"
	case abs >= 100:
		return strconv.FormatFloat(n, 'f', 0, 64)
	case abs >= 10:
		return strconv.FormatFloat(n, 'f', 1, 64)
	default:
		return strconv.FormatFloat(n, 'f', 2, 64)
	}
}
