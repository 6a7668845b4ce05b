package dialect

import (
	"context"
	"slices"
	"strings"

	"github.com/holdfast-go/holdfast/internal/core"
)

// Admission describes the environments in which an engine keeps Holdfast's promises: the
// server product, its settings, and the shape of the tables. Open and doctor use it, and
// docs/reference/environments.md is generated from it.
type Admission struct {
	// Banner reports whether a server with this version() may be of the engine.
	Banner func(version string) bool
	// Facts is a query that returns rows of (name, value) about the server and the session.
	Facts string
	// Vendor, if it is not "", continues Facts with FactVendor. Open alone asks for it: later
	// connections are taken to be of the same vendor if version and all else agree.
	Vendor string
	// More returns a second query that depends on the facts, or "" for none. If that query
	// fails, the fact "error" holds the error text.
	More func(f Facts) string
	// Prepared is a statement with a parameter that fails if the driver prepares it. The fact
	// FactPrepared holds the error text.
	Prepared string
	// Versions lists the versions that Identify accepts, for documentation.
	Versions Versions
	// Identify returns the product, its version, and whether it is tested.
	Identify func(f Facts) Identity
	// Rules apply to the session that Open uses and to every connection that the pool makes
	// later.
	Rules []Rule
	// Kind reads the kind of a user's table. Parameters: schema, table. Table returns what is
	// wrong with that kind, or nil.
	Kind  string
	Table func(kind []string) *Finding
	// Shape reads the shape of Holdfast's own tables. Golden is the expected shape.
	Shape, Golden string
	// Lines reads the table of version lines, in the columns of Shape: '', 'line', the version line, and
	// LineProven or how long ago it was first seen, in µs. Empty: nothing can be proven there.
	Lines string
}

// LineProven is in the rows of Lines on which holdfast prove has passed.
const LineProven = "proven"

// AddLines makes Shape read the rows of lines, too: one query, one round trip.
func (a *Admission) AddLines(lines string) {
	head, limit, limited := strings.Cut(a.Shape, " LIMIT ")
	a.Shape = head + "\nUNION ALL " + lines
	if limited {
		a.Shape += " LIMIT " + limit
	}
}

// Versions lists the versions of an engine. Tested names each tested version of Product, and Floor is the
// oldest version that works.
type Versions struct {
	Product         string
	Tested          []string
	Untested, Floor string
}

// Names reports whether product is one of the tested versions.
func (v *Versions) Names(product string) bool {
	version, is := strings.CutPrefix(product, v.Product+" ")
	return is && slices.Contains(v.Tested, version)
}

// SeenLine notes when a version line was first seen, in the quoted table.
func (d *Dialect) SeenLine(servers string) core.Stmt {
	return core.Compile("line.seen", "INSERT INTO "+servers+" (product, seen_at) VALUES ($0, "+d.Now+") "+d.Fragments.OrIgnore("product", "product"), d.QuestionMarks)
}

const (
	// FactVendor is the fact by which a product tells whose server it is.
	FactVendor = "vendor"
	// FactPrepared is "" if the driver writes parameters into statements.
	FactPrepared = "prepared"
)

// Facts maps the name of a fact about the server or the session to its value.
type Facts map[string]string

// On reports whether a fact is switched on, in the spellings of MySQL and PostgreSQL.
func (f Facts) On(name string) bool {
	return slices.Contains([]string{"on", "1", "true", "yes"}, strings.ToLower(f[name]))
}

// Rule is a requirement on one setting. A rule either refuses bad values (Judge), or changes
// the statements so that the setting does not matter (Neutralise).
type Rule struct {
	// Name identifies the check for programs. Setting is the name that users configure.
	Name, Setting string
	// Refused describes the refused values, Breaks the promise that they break and how, and
	// Remedy the fix.
	Refused, Breaks, Remedy string
	// Judge returns the refused value, or "" if the setting is fine.
	Judge func(f Facts) string
	// Neutralise changes the dialect. Neutral describes that change for users. If Fixed is set,
	// the change depends on the setting, and later connections must have the value that Open saw.
	Neutralise func(d *Dialect, f Facts)
	Neutral    string
	Fixed      bool
	// SingleWriter: the rule does not apply if the user declares that all writes go to one
	// node.
	SingleWriter bool
}

// Finding is one reason to refuse an environment.
type Finding struct {
	// Check is the name of the rule. Setting, Value, Breaks and Remedy are as in [Rule].
	Check, Setting, Value, Breaks, Remedy string
}

// Refuse applies rules to f and returns a finding for each rule that fails.
func Refuse(rules []Rule, f Facts) (all []Finding) {
	for _, r := range rules {
		if r.Judge == nil {
			continue
		}
		if value := r.Judge(f); value != "" {
			all = append(all, Finding{r.Name, r.Setting, value, r.Breaks, r.Remedy})
		}
	}
	return all
}

// Value returns r as a rule about one fact. It refuses the given values and ignores their
// case.
func (r Rule) Value(fact string, values ...string) Rule {
	if r.Setting == "" {
		r.Setting = fact
	}
	if r.Refused == "" {
		r.Refused = strings.Join(values, ", ")
	}
	r.Judge = func(f Facts) string {
		if slices.ContainsFunc(values, func(v string) bool { return strings.EqualFold(v, f[fact]) }) {
			return f[fact]
		}
		return ""
	}
	return r
}

type skipKey struct{}

// The names of checks that are not about settings.
const (
	RuleTables   = "tables"   // the shape of Holdfast's own tables
	RuleUntested = "untested" // the product and version
	RuleNames    = "names"    // objects that hide Holdfast's tables from a session
)

// RuleReadOnly is the check of sessions that cannot write. A command that only lists does without it.
const RuleReadOnly = "read only"

// Without disables the named rules for the databases that are opened with the context. Tests
// use it to show what happens without a rule; the migrations use it too.
func Without(ctx context.Context, names ...string) context.Context {
	return context.WithValue(ctx, skipKey{}, names)
}

// RulesOf returns the rules that apply to a database opened with ctx.
func (a *Admission) RulesOf(ctx context.Context, singleWriter bool) []Rule {
	skipped, _ := ctx.Value(skipKey{}).([]string)
	return slices.DeleteFunc(slices.Clone(a.Rules), func(r Rule) bool {
		return slices.Contains(skipped, r.Name) || r.SingleWriter && singleWriter
	})
}

// Changed returns a finding for each fixed setting that is not as Open saw it.
func Changed(rules []Rule, opened, now Facts) (all []Finding) {
	for _, r := range rules {
		if r.Fixed && opened[r.Setting] != now[r.Setting] {
			all = append(all, Finding{r.Name, r.Setting, now[r.Setting], "it was " + opened[r.Setting] + " when Holdfast was opened: " + r.Breaks, "open Holdfast anew"})
		}
	}
	return all
}

// Skips reports whether ctx disables the named rule.
func Skips(ctx context.Context, name string) bool {
	skipped, _ := ctx.Value(skipKey{}).([]string)
	return slices.Contains(skipped, name)
}
