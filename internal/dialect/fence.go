package dialect

// FencedTable is a table whose writes must have the token of the live term of a lock.
//
// The triggers test what a Guard tests, and lock what it locks: the row of the lock has the token
// and an attempt, and stays locked in share mode until the transaction ends. So a later term is
// granted before the test, which then fails, or after the commit. The row is found by its name
// alone, so that PostgreSQL refuses a snapshot that is older than the term. A lock whose row the
// reaper has deleted has no live term.
type FencedTable struct {
	Trigger
	// Token is the column with the token, not quoted.
	Token string
	// Owner and Key say which lock a row belongs to. Kind is the first byte of the lock's name.
	Owner, Key []NamePart
	Kind       byte
	// Locks is the quoted name of the table of locks.
	Locks string
	// UnfencedInserts: an insert with the token 0 passes. UnfencedDeletes: every delete passes.
	UnfencedInserts, UnfencedDeletes bool
}

// NamePart is a part of the name of a lock: a text, or the value of a column.
type NamePart struct {
	Text   string
	Column string // not quoted
	// Bytes: the column's bytes are the name's. Otherwise the name has the column's text, in
	// UTF-8.
	Bytes bool
}

// The messages of the triggers of fences, to be placed in single quotes. They begin with Unfenced.
const (
	Unfenced      = "holdfast fence:"
	FenceNotLive  = Unfenced + " the token is not that of the live term of the lock"
	FenceBelow    = Unfenced + " the token is less than the token of the row"
	FenceMoved    = Unfenced + " the update gives the row to another lock"
	FenceSnapshot = Unfenced + " the snapshot of the transaction is older than the term"
)

// LockName returns the parts of the name of the lock, with the kind.
func (f FencedTable) LockName() []NamePart {
	return append([]NamePart{{Text: string(f.Kind)}}, f.Key...)
}

// Fixed reports whether all rows of the table belong to one lock.
func (f FencedTable) Fixed() bool {
	for _, p := range append(f.Owner, f.Key...) {
		if p.Column != "" {
			return false
		}
	}
	return true
}

// EachEvent returns the triggers of a fence on an engine that has one for each event. body returns
// the text for a trigger and the row, NEW or OLD, that it tests.
func (f FencedTable) EachEvent(body func(t Trigger, row string) string) []Trigger {
	insert, update, remove := f.Trigger, f.Trigger, f.Trigger
	insert.Insert, update.Update, remove.Delete = true, true, true
	insert.Name, update.Name, remove.Name = f.Name+"_i", f.Name+"_u", f.Name+"_d"
	insert.Body, update.Body, remove.Body = body(insert, "NEW"), body(update, "NEW"), body(remove, "OLD")
	if f.UnfencedDeletes {
		return []Trigger{insert, update}
	}
	return []Trigger{insert, update, remove}
}
