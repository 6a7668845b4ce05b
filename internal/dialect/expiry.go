package dialect

// SweepTable is the SQL of the reaper on the user's own tables. The placeholders are:
//
//	{table}   the table
//	{keys}    the columns of the key
//	{first}   the first column of the key
//	{index}   the index on the key
//	{tuples}  a list of keys, as long as the batch
//	{firsts}  a list of the first columns of these keys
//	{due}     the condition that makes a row due
//	{same}    the condition that rows of doomed and picked have the same key
type SweepTable struct {
	// Write deletes the listed rows that are still due, in key order. It skips rows that other
	// transactions have locked.
	Write string
	// Integers, Texts and Bytes are column types, in lower case, whose values are read and
	// bound as such. Casts are the types that travel as text: its expressions convert {c} to
	// text and the parameter {p} back.
	Integers, Texts, Bytes []string
	// Untyped: a column of any type may hold a BLOB, which no text equals, so that each value is
	// read and bound as it is.
	Untyped bool
	// IntegerParam is the parameter {p} in a comparison with an integer.
	IntegerParam string
	Casts        map[string]Cast
	// Instant is for types that store a point in time. UTC is for types without a time zone,
	// whose values mean UTC. Nil means that the engine has no such type. NoTime is the reason
	// to give for a type that is neither.
	Instant, UTC *Expiry
	NoTime       string
}

// Cast converts a column that is not a number, text or bytes.
type Cast struct{ Read, Bind string }

// Expiry says how a column stores when its row expires. {c} is the column and {p} a parameter.
type Expiry struct {
	Types []string
	// Read converts the column to µs since 1970, UTC.
	Read string
	// {Left} op {Right} compares the column exactly with such a number.
	Left, Right string
	// If no index supports that comparison, {c} <= Before and {c} >= After select a superset
	// of the rows.
	Before, After string
}

// IntegerExpiry is the expiry of a column that holds a number of units since 1970. right casts
// the parameter.
func IntegerExpiry(types []string, right string) *Expiry {
	return &Expiry{Types: types, Read: "{c}", Left: "{c}", Right: right}
}
