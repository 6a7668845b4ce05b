package dialect

// Enforced is a table whose updates have to move the version.
type Enforced struct {
	// Schema and Name are for the catalog: parameters.
	Schema, Name string
	// Table and Column are quoted; Prefix is the quoted schema with its dot, or empty.
	Table, Prefix, Column string
	// Trigger is the trigger's name, quoted.
	Trigger string
	// UUID: the version has to be another one, not one more.
	UUID bool
}

// Enforce is the SQL of the triggers that refuse an update which does not move a
// row's version. They come after the update, and so see what other triggers made
// of the row.
type Enforce struct {
	// Body is the trigger's text as the catalog gives it back.
	Body func(t Enforced) string
	// Install makes the trigger, and where Replaces is set puts it in the place
	// of another; Remove drops it, if it is there.
	Replaces bool
	Install  func(t Enforced, body string) []string
	Remove   func(t Enforced) []string
	// Find looks for the trigger: schema ("" = current), table and trigger, none
	// of them quoted (returns one of the states below, and the body).
	Find string
	// Bound surrounds the statements where they commit by themselves, so that
	// they do not wait long for the table, and everybody else behind them.
	BoundBefore, BoundAfter string
	// Denied says what permission is missing, "" for any other error.
	Denied func(err error) string
}

// What Enforce.Find says of a trigger.
const (
	TriggerDisabled = iota
	TriggerWorks
	TriggerOther // on other events, under a condition, …
)

// Refusal is how the triggers' message begins. It names nothing of the user's:
// a name in it would have to be escaped for a text within a text.
const Refusal = "holdfast: the update did not"

// Message is the triggers' message, to be put in single quotes.
func (t Enforced) Message() string {
	if t.UUID {
		return Refusal + " give the row another version"
	}
	return Refusal + " move the version of the row by one"
}

// Differs is the condition under which an update is refused; isNot compares two
// values of which each may be NULL, and equals is its contrary.
func (t Enforced) Differs(isNot, equals string) string {
	if t.UUID {
		return "NEW." + t.Column + equals + "OLD." + t.Column
	}
	return "NEW." + t.Column + isNot + "OLD." + t.Column + " + 1"
}
