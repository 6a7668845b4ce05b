package result

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/internal/measure"
)

// refund is a report with the ratio of a refund in two rows, and a curve.
func refund(x measure.Spread) *Report {
	row := func(group, name, kind string, x measure.Spread) Row {
		return Row{Group: group, Name: name, Kind: kind, Values: map[string]measure.Spread{"x": x}}
	}
	return &Report{Rounds: 3, SliceMS: 1000, Began: "2026-01-02T03:04:05Z", Machine: []string{"a machine"}, Tables: []Table{
		{
			Workload: "refund", Title: "A refund under Do", Clients: 1, Picture: Bars("x", "times its floor"),
			Columns: []Column{{Key: "x", Title: "ratio", Spread: true}},
			Rows: []Row{
				row("postgres", "Holdfast Do, pgx ÷ bare, pgx", "holdfast", x),
				row("mysql", "Holdfast Do, interpolated ÷ bare, interpolated", "holdfast", measure.Spread{Median: 1.6, Min: 1.6, Max: 1.6}),
			},
		},
		{
			Workload: "pair", Title: "Acquire and release against the two bare statements, in turns, keys that come back", Clients: 1,
			Rows: []Row{
				row("mysql", "Holdfast, interpolated ÷ bare upsert + update, interpolated", "holdfast", measure.Spread{Median: 1.1}),
				row("mysql", "Holdfast, interpolated ÷ bare upsert + update, prepared", "holdfast", measure.Spread{Median: 1.3}),
			},
		},
	}}
}

func TestTargetsHaveAColumnForEachEngine(t *testing.T) {
	for flush, want := range map[string][]string{
		Free: {
			"|  | target | PostgreSQL, pgx | MySQL |",
			"| refund under Do ÷ bare | ≤ 1.15; 1.60 | 1.10 (1–1.20), met | 1.60, met |",
			"| acquire and release ÷ best bare form | ≤ 1.25 |  | 1.30, **missed** |", // the faster bare form
		},
		Disk: {
			"| refund under Do ÷ bare | ≤ 1.08; 1.35 | 1.10 (1–1.20), **missed** | 1.60, **missed** |",
			"| acquire and release ÷ best bare form | ≤ 1.15 |  | 1.30, **missed** |",
		},
	} {
		r := refund(measure.Spread{Median: 1.1, Min: 1, Max: 1.2})
		r.Flush = flush
		r.Aim()
		var b strings.Builder
		targetTable(&b, r.Targets)
		for _, line := range want {
			if !strings.Contains(b.String(), line) {
				t.Errorf("%s: no %q in\n%s", flush, line, b.String())
			}
		}
	}
}

func TestMergeKeepsTheRangeOverRunsAndRounds(t *testing.T) {
	dir := t.TempDir()
	var runs []*Report
	for i, x := range []measure.Spread{{Median: 1.1, Min: 1.05, Max: 1.2}, {Median: 1.3, Min: 1.1, Max: 1.4}, {Median: 1.2, Min: 0.9, Max: 1.3}} {
		file := filepath.Join(dir, string(rune('a'+i)))
		if err := refund(x).Write(file); err != nil {
			t.Fatal(err)
		}
		r, err := Read(file)
		if err != nil {
			t.Fatal(err)
		}
		runs = append(runs, r)
	}
	m := Merge(runs)
	if got, want := m.Tables[0].Rows[0].Values["x"], (measure.Spread{Median: 1.2, Min: 0.9, Max: 1.4}); got != want {
		t.Errorf("rounds: %v, not %v", got, want)
	}
	if got, want := m.Tables[0].Rows[0].Runs["x"], (measure.Spread{Median: 1.2, Min: 1.1, Max: 1.3}); got != want {
		t.Errorf("runs: %v, not %v", got, want)
	}
	if m.Runs != 3 || len(m.Tables) != 2 || !m.Tables[0].Columns[0].Spread {
		t.Errorf("%+v", m)
	}
	var b strings.Builder
	if err := m.Markdown(&b); err != nil {
		t.Fatal(err)
	}
	if want := "1.20 (0.90–1.40) [1.10–1.30], **missed**"; !strings.Contains(b.String(), want) {
		t.Errorf("no %q in\n%s", want, b.String())
	}
	if one := Merge(runs[:1]); one.Runs != 0 || one.Tables[0].Rows[0].Runs != nil {
		t.Errorf("one run is not merged: %+v", one)
	}
}

// TestDocsFillsThePageAgain fills a page twice. A part that nothing was measured for says so.
func TestDocsFillsThePageAgain(t *testing.T) {
	page := filepath.Join(t.TempDir(), "page.md")
	if err := os.WriteFile(page, []byte("# x\n\n<!-- bench:targets -->\n<!-- /bench -->\n\nand\n\n<!-- bench:growth -->\nold\n<!-- /bench -->\nend\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	r := refund(measure.Spread{Median: 1.1, Min: 1, Max: 1.2})
	r.Aim()
	var texts [2]string
	for i := range texts {
		if err := r.Docs(page); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		texts[i] = string(text)
	}
	if texts[0] != texts[1] || strings.Contains(texts[0], "old") || !strings.Contains(texts[0], "| refund under Do ÷ bare |") ||
		!strings.Contains(texts[0], "This run did not measure it.\n<!-- /bench -->\nend\n") {
		t.Errorf("%s", texts[1])
	}
	svg, err := os.ReadFile(filepath.Join(filepath.Dir(page), "img", "speed-refund.svg"))
	if err != nil {
		t.Fatal(err)
	}
	if found := regexp.MustCompile(`<text|font-family|NaN|Inf`).Find(svg); found != nil {
		t.Errorf("a picture depends on fonts, or has no place: %s", found)
	}
	if err := os.WriteFile(page, []byte("<!-- bench:nonsense -->\n<!-- /bench -->\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := r.Docs(page); err == nil {
		t.Error("a part that does not exist was filled")
	}
}

// TestPageHasEveryPart reads the real page.
func TestPageHasEveryPart(t *testing.T) {
	text, err := os.ReadFile("../../../docs/why/performance.md")
	if err != nil {
		t.Fatal(err)
	}
	for name := range parts {
		if !strings.Contains(string(text), "<!-- bench:"+name+" -->\n") {
			t.Errorf("no part %q", name)
		}
	}
	for _, p := range docPictures {
		if !strings.Contains(string(text), "(img/"+p.file+")") {
			t.Errorf("no picture %q", p.file)
		}
	}
	for i, line := range strings.Split(string(text), "\n") {
		if !strings.HasPrefix(line, "|") {
			continue
		}
		for c := range strings.SplitSeq(line, "|") {
			if n := len([]rune(c)); n > 120 {
				t.Errorf("line %d: a cell of %d characters", i+1, n)
			}
		}
	}
}

// TestCurvesHaveAColourEach draws more lines than there are colours: one plot for each name.
func TestCurvesHaveAColourEach(t *testing.T) {
	var rows []Row
	for _, group := range []string{"postgres", "mysql", "mariadb", "sqlite"} {
		for _, name := range []string{"a", "b", "c"} {
			for _, at := range []float64{1, 10, 100} {
				rows = append(rows, Row{Group: group, Name: name, At: at, Values: map[string]measure.Spread{"x": {Median: at}}})
			}
		}
	}
	if got := len(panelsOf(rows)); got != 3 {
		t.Errorf("%d plots", got)
	}
	if got := len(panelsOf(rows[:9])); got != 1 {
		t.Errorf("%d plots of three lines", got)
	}
}
