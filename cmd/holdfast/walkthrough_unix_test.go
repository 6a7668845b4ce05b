//go:build unix

package main

import (
	"bytes"
	"fmt"
	"html"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"text/tabwriter"
	"unicode/utf8"
)

// walkthrough is what a person types. A line that begins with # is shown as it is.
var walkthrough = []string{
	"# a database, and its tables",
	"holdfast migrate status",
	"holdfast migrate up",
	"# a job that must run once, from two machines",
	"holdfast once settle-2026-11-25 -- echo settled",
	"holdfast once settle-2026-11-25 -- echo settled",
	"# a job that was killed is unknown: it is not run again until you say what happened",
	"holdfast once payout-7 -- pay 7",
	"holdfast ops list",
	"holdfast ops resolve --name once --key payout-7 --as step-not-done --yes --by ada --reason 'asked the bank'",
	"holdfast once payout-7 -- pay 7",
	"# a lock while a command runs",
	"holdfast lock nightly -- holdfast locks list",
	"holdfast locks release --yes --key nightly --by ada --reason stuck",
	"# what an error means",
	"holdfast lokcs list",
	"holdfast explain lock-held",
	"holdfast doctor",
}

// changing is what differs from run to run, in the order in which it is replaced.
var changing = []struct{ what, by string }{
	{`\d{4}-\d\d-\d\dT[\d:]+(\.\d+)?Z`, "2026-11-25T08:30:00Z"},
	{`\d{16}`, "1795595400000000"},                                  // a fencing token
	{`\b[A-Za-z][\w.-]*:\d{2,}\b|"[\w.-]+:\d{2,}"`, "batch-1:4711"}, // a holder
	{`\b\d+(\.\d+)?m?s\b`, "29.9s"},
}

// pay is a program that is killed the first time.
const pay = `#!/bin/sh
[ -e "$0.before" ] && echo "paid $1" && exit
touch "$0.before"
kill -9 $$
`

// TestWalkthrough runs the commands on a SQLite database, and compares what they print with the picture
// docs/img/walkthrough.svg. make walkthrough draws it again.
func TestWalkthrough(t *testing.T) {
	t.Parallel()
	const file = "../../docs/img/walkthrough.svg"
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "holdfast"), []byte("#!/bin/sh\nexec '"+os.Args[0]+"' \"$@\"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "pay"), []byte(pay), 0o700); err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, typed := range walkthrough {
		if strings.HasPrefix(typed, "#") {
			if len(lines) > 0 {
				lines = append(lines, "")
			}
			lines = append(lines, typed)
			continue
		}
		lines = append(lines, "$ "+typed)
		cmd := exec.CommandContext(t.Context(), "sh", "-c", typed)
		cmd.Env = append(os.Environ(), asCommand+"=1", dsnVariable+"=sqlite://"+filepath.Join(dir, "refunds.db"), "PATH="+dir+":"+os.Getenv("PATH"), namespaceVariable+"=")
		if typed == "holdfast migrate status" { // the file exists, and is empty
			if err := os.WriteFile(filepath.Join(dir, "refunds.db"), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		out, err := cmd.CombinedOutput()
		if cmd.ProcessState == nil {
			t.Fatal(err)
		}
		if n := cmd.ProcessState.ExitCode(); n != 0 {
			out = append(out, fmt.Sprintf("(exit status %d)\n", n)...)
		}
		lines = append(lines, strings.Split(strings.TrimRight(steady(string(out)), "\n"), "\n")...)
	}
	drawn := drawTerminal(lines)
	if *update {
		if err := os.WriteFile(file, drawn, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if is, err := os.ReadFile(file); err != nil || !bytes.Equal(is, drawn) {
		t.Errorf("%s is not what the commands print now (make walkthrough draws it again): %v\n%s", file, err, strings.Join(lines, "\n"))
	}
}

var (
	header = regexp.MustCompile(`^[A-Z_]+(  +[A-Z_]+)+$`)
	gap    = regexp.MustCompile(`  +`)
)

// steady replaces what differs from run to run, and lays the columns of tables out again.
func steady(out string) string {
	for _, c := range changing {
		out = regexp.MustCompile(c.what).ReplaceAllString(out, c.by)
	}
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	columns := 0
	for line := range strings.SplitSeq(strings.TrimRight(out, "\n"), "\n") {
		cells := gap.Split(line, -1)
		switch {
		case header.MatchString(line):
			columns = len(cells)
		case len(cells) != columns:
			columns = 0
		}
		if columns > 0 {
			line = strings.Join(cells, "\t")
		}
		fmt.Fprintln(w, line)
	}
	_ = w.Flush()
	return b.String()
}

const (
	glyph, leading, inset = 7.8, 19, 16
	drawnWidth            = 110
)

// drawTerminal draws lines of text as an SVG. Long lines are folded.
func drawTerminal(lines []string) []byte {
	var folded []string
	for _, line := range lines {
		for utf8.RuneCountInString(line) > drawnWidth {
			r := []rune(line)
			cut := drawnWidth
			if i := strings.LastIndex(string(r[:cut]), " "); i > drawnWidth/2 {
				cut = utf8.RuneCountInString(string(r[:cut])[:i])
			}
			folded, line = append(folded, string(r[:cut])), "  "+strings.TrimLeft(string(r[cut:]), " ")
		}
		folded = append(folded, line)
	}
	var b bytes.Buffer
	width, height := int(drawnWidth*glyph)+2*inset, len(folded)*leading+2*inset
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" role="img" aria-label="A walk through the command holdfast">`+"\n", width, height, width, height)
	b.WriteString(`<style>text{font:13px ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace;fill:#d6deeb;white-space:pre}.c{fill:#7f8ea3}.p{fill:#fff;font-weight:600}.e{fill:#ff8f80}</style>` + "\n")
	fmt.Fprintf(&b, `<rect width="%d" height="%d" rx="8" fill="#111a26"/>`+"\n", width, height)
	for i, line := range folded {
		if line == "" {
			continue
		}
		class := ""
		switch {
		case strings.HasPrefix(line, "# "):
			class = ` class="c"`
		case strings.HasPrefix(line, "$ "):
			class = ` class="p"`
		case strings.HasPrefix(line, "holdfast: "), strings.HasPrefix(line, "(exit status"):
			class = ` class="e"`
		}
		fmt.Fprintf(&b, `<text x="%d" y="%d" xml:space="preserve"%s>%s</text>`+"\n", inset, inset+(i+1)*leading-5, class, html.EscapeString(line))
	}
	b.WriteString("</svg>\n")
	return b.Bytes()
}
