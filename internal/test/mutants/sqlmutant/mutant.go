// Package sqlmutant plants small faults into SQL: it drops a condition, a lock or an assignment, or
// turns a comparison at its border. It knows no engine, and as much of SQL as Holdfast's statements
// use. A mutant keeps each parameter of its statement, so that the server still learns their types.
package sqlmutant

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"regexp"
	"strings"
)

// Mutant is one fault in a statement.
type Mutant struct {
	// Kind says what is wrong: see the constants.
	Kind string
	// Part is the text that the fault is in, with lists of parameters shortened.
	Part string
	// Text is the statement with the fault.
	Text string
	// Nth counts the equal parts of a statement, from 0.
	Nth int
}

// The kinds of faults.
const (
	Condition  = "condition"  // a conjunct of WHERE, ON, HAVING or FILTER is always true
	Lock       = "lock"       // a lock clause, or a lock of the session or transaction, is gone
	Comparison = "comparison" // < for <=, > for >=, and the reverse
	Arithmetic = "arithmetic" // + 1 is gone
	Maximum    = "maximum"    // GREATEST is always its first, or its last, argument
	Assignment = "assignment" // a column keeps its value
)

// ID names the mutant within the statements of one name. It is the same for lists of any length.
func (m Mutant) ID() string {
	sum := sha256.Sum256([]byte(m.Part))
	return fmt.Sprintf("%s-%s-%d", m.Kind, hex.EncodeToString(sum[:4]), m.Nth)
}

func (m Mutant) String() string {
	if m.Nth > 0 {
		return fmt.Sprintf("%s: %s (again: %d)", m.Kind, m.Part, m.Nth)
	}
	return m.Kind + ": " + m.Part
}

// All returns the mutants of a statement.
func All(text string) []Mutant {
	m := &mutation{text: text, all: scan(text), seen: map[string]int{}}
	for i := range m.all {
		m.at(i)
	}
	return m.found
}

type mutation struct {
	text  string
	all   []token
	found []Mutant
	seen  map[string]int
}

var (
	parameters = regexp.MustCompile(`\$\d+(::\w+)?(, \$\d+(::\w+)?)+`)
	schema     = regexp.MustCompile("[\"`]\\w+[\"`]\\.([\"`])")
	tuples     = regexp.MustCompile(`(\([^()]*\))(, \([^()]*\))+`)
)

// replace adds the mutant in which the tokens of s are text.
func (m *mutation) replace(kind string, s span, text string) { m.add(kind, s, m.of(s), text) }

func (m *mutation) add(kind string, s span, part, text string) {
	from, to := m.all[s.from].from, m.all[s.to-1].to
	part = strings.Join(strings.Fields(part), " ")
	part = schema.ReplaceAllString(part, "$1") // each test has its own
	part = tuples.ReplaceAllString(parameters.ReplaceAllString(part, "$$…"), "$1, …")
	key := kind + part
	m.found = append(m.found, Mutant{kind, part, m.text[:from] + text + m.text[to:], m.seen[key]})
	m.seen[key]++
}

func (m *mutation) of(s span) string { return m.text[m.all[s.from].from:m.all[s.to-1].to] }

func (m *mutation) word(i int) string {
	if i < 0 || i >= len(m.all) {
		return ""
	}
	return m.all[i].word
}

// at adds the mutants that begin at the token i.
func (m *mutation) at(i int) {
	switch w := m.word(i); w {
	case "WHERE", "HAVING":
		m.conditions(i + 1)
	case "ON":
		if next := m.word(i + 1); next != "CONFLICT" && next != "DUPLICATE" {
			m.conditions(i + 1)
		}
	case "SET":
		m.assignments(i + 1)
	case "UPDATE":
		if m.word(i-1) == "KEY" && m.word(i-2) == "DUPLICATE" {
			m.assignments(i + 1)
		}
	case "FOR", "LOCK":
		m.lockClause(i)
	case "SKIP":
		if m.word(i+1) == "LOCKED" {
			m.replace(Lock, span{i, i + 2}, "")
		}
	case "NOWAIT":
		m.replace(Lock, span{i, i + 1}, "")
	case "<", "<=", ">", ">=":
		turned := map[string]string{"<": "<=", "<=": "<", ">": ">=", ">=": ">"}[w]
		m.add(Comparison, span{i, i + 1}, m.around(i), turned)
	case "+":
		if m.word(i+1) == "1" {
			m.add(Arithmetic, span{i, i + 2}, m.around(i), "+ 0")
		}
	case "GREATEST", "MAX":
		m.maximum(i)
	default:
		m.lockFunction(i, w)
	}
}

// around returns the text of a binary operator with its sides.
func (m *mutation) around(i int) string {
	return m.of(span{max(i-3, 0), min(i+4, len(m.all))})
}

const clauseEnds = " WHERE GROUP ORDER HAVING LIMIT OFFSET FOR LOCK RETURNING UNION ON JOIN LEFT INNER CROSS STRAIGHT_JOIN SET DO WINDOW FROM THEN WHEN "

// conditions adds a mutant for each conjunct of the condition that begins at the token from.
func (m *mutation) conditions(from int) {
	s := clause(m.all, from, clauseEnds)
	if s.from < s.to && len(split(m.all, s, "OR")) > 1 {
		m.always(s)
	}
	m.conjuncts(s, true)
}

// conjuncts adds a mutant for each conjunct of s, and for those in its parentheses. A single one
// counts if alone is set: otherwise it is a part of another conjunct.
func (m *mutation) conjuncts(s span, alone bool) {
	ors := split(m.all, s, "OR")
	for _, or := range ors {
		ands := split(m.all, or, "AND")
		for _, and := range ands {
			if and.from >= and.to {
				continue
			}
			if len(ands) > 1 || alone && len(ors) == 1 {
				m.always(and)
			}
			m.nested(and)
		}
	}
}

// nested looks for conjuncts in a pair of parentheses that is all of s.
func (m *mutation) nested(s span) {
	if m.word(s.from) == "NOT" {
		s.from++
	}
	if m.word(s.from) == "(" && closing(m.all, s.from) == s.to-1 && m.word(s.from+1) != "SELECT" {
		m.conjuncts(span{s.from + 1, s.to - 1}, false)
	}
}

func (m *mutation) always(s span) { m.replace(Condition, s, "("+m.of(s)+" OR 1 = 1)") }

// assignments adds a mutant for each column that is set. It keeps the column's value with CASE,
// which evaluates nothing else.
func (m *mutation) assignments(from int) {
	s := clause(m.all, from, clauseEnds)
	table := m.updated(from)
	for _, set := range split(m.all, s, ",") {
		sides := split(m.all, set, "=")
		if len(sides) < 2 || sides[0].from >= sides[0].to || sides[1].from >= set.to {
			continue
		}
		column := m.of(sides[0])
		kept := column
		if !strings.Contains(column, ".") && table != "" {
			kept = table + "." + column
		}
		value := m.text[m.all[sides[1].from].from:m.all[set.to-1].to]
		m.replace(Assignment, set, column+" = CASE WHEN 1 = 1 THEN "+kept+" ELSE "+value+" END")
	}
}

// updated returns the name by which the statement that sets columns at the token i knows the table:
// its alias, else its name.
func (m *mutation) updated(i int) string {
	for i--; i >= 0; i-- {
		if w := m.word(i); w == ")" {
			i = m.opening(i)
		} else if w == "(" {
			return ""
		} else if w == "UPDATE" && m.word(i-1) != "KEY" && m.word(i-1) != "DO" && m.word(i-1) != "FOR" || w == "INTO" {
			return m.name(i + 1)
		}
	}
	return ""
}

func (m *mutation) opening(i int) int {
	depth := 0
	for ; i >= 0; i-- {
		switch m.word(i) {
		case ")":
			depth++
		case "(":
			if depth--; depth == 0 {
				return i
			}
		}
	}
	return 0
}

// name returns the table's alias, or its qualified name.
func (m *mutation) name(i int) string {
	from := i
	for i++; m.word(i) == "."; i += 2 {
	}
	if m.word(i) == "AS" {
		return m.of(span{i + 1, i + 2})
	}
	if w := m.word(i); w != "SET" && w != "(" && w != "JOIN" && w != "STRAIGHT_JOIN" && w != "," && w != "" {
		return m.of(span{i, i + 1})
	}
	return m.of(span{from, i})
}

// lockClause adds the mutant without FOR UPDATE, FOR SHARE and the like.
func (m *mutation) lockClause(i int) {
	var end int
	switch {
	case m.word(i) == "LOCK" && m.word(i+1) == "IN":
		end = i + 4 // LOCK IN SHARE MODE
	case m.word(i) == "FOR" && (m.word(i+1) == "UPDATE" || m.word(i+1) == "SHARE"):
		end = i + 2
	case m.word(i) == "FOR" && m.word(i+1) == "NO":
		end = i + 4 // FOR NO KEY UPDATE
	case m.word(i) == "FOR" && m.word(i+1) == "KEY":
		end = i + 3
	default:
		return
	}
	if m.word(end) == "OF" {
		end += 2
	}
	switch m.word(end) {
	case "SKIP":
		end += 2
	case "NOWAIT":
		end++
	case "WAIT":
		end += 2 // MariaDB
	}
	m.replace(Lock, span{i, end}, "")
}

// lockFunction adds the mutant in which a function that locks says that it has, and has not.
func (m *mutation) lockFunction(i int, name string) {
	if m.word(i+1) != "(" {
		return
	}
	end := closing(m.all, i+1) + 1
	args := m.of(span{i + 1, end})
	switch {
	case name == "GET_LOCK":
		m.replace(Lock, span{i, end}, "(1 + 0 * LENGTH(CONCAT"+args+"))")
	case strings.HasPrefix(name, "PG_TRY_ADVISORY"):
		m.qualified(i, end, "(concat"+args+" IS NOT NULL)")
	case strings.HasPrefix(name, "PG_ADVISORY"):
		m.qualified(i, end, "concat"+args)
	}
}

// qualified replaces a function's call together with the schema before it.
func (m *mutation) qualified(i, end int, text string) {
	if m.word(i-1) == "." {
		i -= 2
	}
	m.replace(Lock, span{i, end}, text)
}

// maximum adds the mutants in which the greatest of two is always one of them.
func (m *mutation) maximum(i int) {
	if m.word(i+1) != "(" {
		return
	}
	end := closing(m.all, i+1)
	args := split(m.all, span{i + 2, end}, ",")
	if len(args) != 2 {
		return
	}
	for _, always := range []string{"1 = 1", "1 = 0"} {
		part := m.of(span{i, end + 1}) + " when " + always
		m.add(Maximum, span{i, end + 1}, part, "(CASE WHEN "+always+" THEN "+m.of(args[0])+" ELSE "+m.of(args[1])+" END)")
	}
}
