package dialect

import (
	"net/netip"
	"slices"
)

// Doctor lists the queries that find what weakens Holdfast's promises on an engine.
type Doctor struct {
	Probes []Probe
	// Session identifies one session of the server.
	Session string
	// Indexes returns the names of a table's indexes. Parameters: schema ("" = current),
	// table.
	Indexes string
	// Blocked returns a row for each session of the current database that waits for a lock of another one: the id of the
	// first, for how many µs it has waited, the id of the other, its user, its application or address, what
	// it does, and the age of its transaction (µs). Parameter: the limit. Empty: the engine does not
	// tell. BlockedNeeds are the privileges that it takes.
	Blocked, BlockedNeeds string
	// Blockers returns those who block the session $1 now, with the columns of Blocked from the other's id.
	Blockers string
	// Sizes returns a row for each of the tables {names} of the schema $1 ("" = current): its name, about how many
	// rows it has, and its bytes with its indexes, the largest first. Empty: the engine does not tell.
	Sizes string
	// Prefixed: the names of Holdfast's indexes begin with the prefix of the tables.
	Prefixed bool
}

// Probe is a query that returns one row of text columns, and its judgement.
type Probe struct {
	Name, Query string
	Columns     int
	// Privileged: the role of a program usually lacks the permission for this query.
	Privileged bool
	// Judge returns the problem with the row ("" for none) and advice.
	Judge func(row []string) (severity Severity, problem, advice string)
}

// Severity says how serious a finding is.
type Severity int

const (
	// Notice: nothing is wrong, but users should know.
	Notice Severity = iota
	// Warning: work may be slow or stuck, or an assumption of the caller may be wrong.
	Warning
	// Broken: a promise of Holdfast does not hold.
	Broken
)

// Value returns a probe of one column. wrong returns the problem with its value, or "".
func Value(name, query string, severity Severity, advice string, wrong func(value string) string) Probe {
	return Probe{Name: name, Query: query, Columns: 1, Judge: func(row []string) (Severity, string, string) {
		return severity, wrong(row[0]), advice
	}}
}

// Encryption is the probe of the session's encryption. query returns its cipher, or "", and the client's address as
// the server sees it, which is empty or a name of this machine for a client beside it.
func Encryption(query string) Probe {
	return Probe{Name: "encryption", Query: query, Columns: 2, Judge: func(row []string) (Severity, string, string) {
		ip, err := netip.ParseAddr(row[1])
		if row[0] != "" || row[1] == "" || row[1] == "localhost" || err == nil && ip.IsLoopback() {
			return 0, "", ""
		}
		return Warning, "the connection from " + row[1] + " is not encrypted: who is on its way can read keys and results, and change statements", "connect with TLS, and let the driver check the server's certificate: see docs/howto/tls.md"
	}}
}

// Not returns a function that reports problem unless the value is want.
func Not(want, problem string) func(value string) string {
	return func(value string) string {
		if value == want {
			return ""
		}
		return problem
	}
}

// Is returns a function that reports problem if the value is one of values.
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
