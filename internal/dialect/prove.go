package dialect

// Prove is the SQL that package prove needs in addition to Holdfast's own statements. An empty
// text means that the engine has no such thing.
type Prove struct {
	// Remote: connections go over a network and can be cut.
	Remote bool
	// Server identifies one server.
	Server []Fact
	// Session returns the id of a connection's session. Blocked counts the sessions with the
	// id $1 that wait for a lock; it may need a permission.
	Session, Blocked string
	// Share ends a read that locks rows in share mode.
	Share string
	// Zones set the session's time zone, each statement to a different one.
	Zones []string
	// Slow runs for a second or more, so that a test can cancel it. {effects} is the table of
	// effects.
	Slow string
	// Table ends a CREATE TABLE statement.
	Table string
}

// Fact is a query that returns one text. It may fail if the role or the version does not
// support it.
type Fact struct{ Name, Query string }
