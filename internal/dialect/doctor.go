package dialect

import "slices"

// Doctor is how an engine is asked for what weakens Holdfast's promises.
type Doctor struct {
	Probes []Probe
	// Session tells one session of the server from another.
	Session string
	// Indexes names the indexes of a table: schema ("" = current), table.
	Indexes string
	// Prefixed: the names of Holdfast's indexes begin with the tables' prefix.
	Prefixed bool
}

// Probe reads one row of text; {schema} is the quoted schema with its dot.
type Probe struct {
	Name, Query string
	Columns     int
	// Privileged: a role of a program's usually may not ask.
	Privileged bool
	// Judge says what is wrong with the row, "" nothing, and what to do.
	Judge func(row []string) (severity Severity, problem, advice string)
}

// Severity is how bad a finding is.
type Severity int

// The severities.
const (
	// Notice: nothing is wrong, but one should know.
	Notice Severity = iota
	// Warning: work may be slow or stuck, or an assumption of the caller's wrong.
	Warning
	// Broken: a promise of Holdfast's does not hold.
	Broken
)

// Value judges a probe of one column: what wrong says of it, with advice.
func Value(name, query string, severity Severity, advice string, wrong func(value string) string) Probe {
	return Probe{Name: name, Query: query, Columns: 1, Judge: func(row []string) (Severity, string, string) {
		return severity, wrong(row[0]), advice
	}}
}

// Not is wrong unless the value is want.
func Not(want, problem string) func(value string) string {
	return func(value string) string {
		if value == want {
			return ""
		}
		return problem
	}
}

// Is is wrong if the value is one of those.
func Is(problem string, values ...string) func(value string) string {
	return func(value string) string {
		if slices.Contains(values, value) {
			return problem
		}
		return ""
	}
}

func (s Severity) String() string {
	switch s {
	case Broken:
		return "broken"
	case Warning:
		return "warning"
	}
	return "notice"
}
