package prove

import (
	"fmt"
	"runtime/debug"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"
)

// Verdict is the result of a check, a promise or a run.
type Verdict string

// The verdicts.
const (
	// Pass means that the run observed the behaviour.
	Pass Verdict = "pass"
	// Fail means that the behaviour was absent, so the promise does not hold.
	Fail Verdict = "fail"
	// NotShown means that an error or the end of the time came first.
	NotShown Verdict = "not shown"
	// NotApplicable means that the engine declares that it lacks this behaviour. Holdfast does
	// not depend on it there.
	NotApplicable Verdict = "not applicable"
)

// Report is the result of one run.
type Report struct {
	// Verdict is Fail if a promise failed or Holdfast refused the server; otherwise NotShown if
	// a promise was not shown; otherwise Pass.
	Verdict Verdict `json:"verdict"`
	// Refused says why Holdfast does not open this database. It is empty if it does.
	Refused string `json:"refused,omitempty"`
	// At is when the run began, by this machine's clock.
	At     time.Time `json:"at"`
	TookMS int64     `json:"took_ms"`
	// Holdfast is the version of this module. Product has the form that
	// holdfast.Options.Untested takes. Version is the server's own text.
	Holdfast string `json:"holdfast"`
	Engine   string `json:"engine,omitempty"`
	Product  string `json:"product,omitempty"`
	Version  string `json:"version,omitempty"`
	// Facts describe the server and its clock.
	Facts    map[string]string `json:"facts"`
	Promises []Promise         `json:"promises"`
	Checks   []Check           `json:"checks"`
}

// Promise is one of the promises G1 to G8 of docs/why/reliability.md.
type Promise struct {
	Name    string  `json:"name"`
	Says    string  `json:"says"`
	Verdict Verdict `json:"verdict"`
	// Checks names the checks that support the promise.
	Checks []string `json:"checks"`
}

// Check is one behaviour and the result of testing it.
type Check struct {
	// Name is stable, for programs.
	Name  string `json:"name"`
	Shows string `json:"shows"`
	// Promises names the promises that depend on the behaviour.
	Promises []string `json:"promises"`
	Verdict  Verdict  `json:"verdict"`
	// Found says what was observed instead, or why nothing was observed. It is empty after
	// Pass.
	Found string `json:"found,omitempty"`
	// Attempts is how often the behaviour was tested.
	Attempts int64 `json:"attempts"`
	TookMS   int64 `json:"took_ms"`
}

// conclude derives the verdicts of the promises from the checks.
func (r *Report) conclude() {
	r.Verdict = Pass
	for _, p := range promises {
		p.Verdict = NotApplicable
		for _, c := range r.Checks {
			if slices.Contains(c.Promises, p.Name) {
				p.Checks = append(p.Checks, c.Name)
				p.Verdict = worse(p.Verdict, c.Verdict)
			}
		}
		r.Promises = append(r.Promises, p)
		r.Verdict = worse(r.Verdict, p.Verdict)
	}
}

func worse(a, b Verdict) Verdict {
	order := []Verdict{NotApplicable, Pass, NotShown, Fail}
	return order[max(slices.Index(order, a), slices.Index(order, b))]
}

// Text formats the report for people.
func (r *Report) Text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s, %s, Holdfast %s, %v\n", strings.ToUpper(string(r.Verdict)), printable(r.server()),
		r.At.UTC().Format(time.RFC3339), r.Holdfast, time.Duration(r.TookMS)*time.Millisecond)
	if r.Refused != "" {
		fmt.Fprintf(&b, "refused: %s\n", printable(r.Refused))
		return b.String()
	}
	var names []string
	for name, value := range r.Facts {
		names = append(names, name+": "+printable(value))
	}
	slices.Sort(names)
	fmt.Fprintf(&b, "%s\n\n", strings.Join(names, "; "))
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, p := range r.Promises {
		fmt.Fprintf(w, "%s\t%s\t%s\n", p.Name, p.Verdict, p.Says)
	}
	_ = w.Flush() // a strings.Builder does not fail
	b.WriteByte('\n')
	for _, c := range r.Checks {
		fmt.Fprintf(w, "%s\t%s\t%s\t%d attempts\t%v\n", c.Name, c.Verdict, strings.Join(c.Promises, " "), c.Attempts, time.Duration(c.TookMS)*time.Millisecond)
	}
	_ = w.Flush()
	b.WriteByte('\n')
	for _, c := range r.Checks {
		if c.Found != "" {
			fmt.Fprintf(&b, "%s: %s: %s\n", c.Name, c.Verdict, printable(c.Found))
		}
	}
	return b.String()
}

// server describes the tested server.
func (r *Report) server() string {
	if r.Product == "" {
		return "unknown server"
	}
	return r.Product + " (" + r.Version + ")"
}

// printable makes a server's text safe for one line of a terminal.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return ' '
	}, s)
}

// refused returns the report for a database that Holdfast does not open.
func (r *run) refused(err error) Report {
	r.report.Verdict, r.report.Refused = Fail, err.Error()
	return r.report
}

const module = "github.com/holdfast-go/holdfast"

// buildVersion returns this module's version, as the main module or as a dependency.
func buildVersion() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "(unknown)"
	}
	for _, m := range append(info.Deps, &info.Main) {
		if m.Path == module && m.Version != "" {
			return m.Version
		}
	}
	return "(unknown)"
}
