package dialect

// SweepTable is the SQL of the reaper on tables of the user's own. {table} is the
// table, {keys} the columns of the key, {first} the first of them, {index} the
// index on them, {tuples} a list of keys as long as the batch, {firsts} that of
// their first columns, {due} the condition that makes a row due, {same} that of
// one key in doomed and picked.
type SweepTable struct {
	// Write deletes the listed rows that are still due, in the order of the keys,
	// and passes over those that others have locked.
	Write string
	// Integers, Texts and Bytes are the types of columns, in lower case, whose
	// values go to and fro as such; Casts those that do as text, with the
	// expressions that turn {c} into text and the parameter {p} back.
	Integers, Texts, Bytes []string
	Casts                  map[string]Cast
	// Instant is a point in time, UTC one that is written without a zone and is
	// meant in UTC; nil is none. NoTime says of the types that are neither why.
	Instant, UTC *Expiry
	NoTime       string
}

// Cast is the form of a column that is neither a number, a text nor bytes.
type Cast struct{ Read, Bind string }

// Expiry is how a column tells when its row expires. {c} is the column, {p} a
// parameter.
type Expiry struct {
	Types []string
	// Read is the column as a number of µs since 1970, UTC.
	Read string
	// {Left} op {Right} compares the column exactly with such a number.
	Left, Right string
	// Where no index serves that, {c} <= Before and {c} >= After hold of more rows.
	Before, After string
}

// IntegerExpiry is a column that counts something since 1970; right casts the
// parameter.
func IntegerExpiry(types []string, right string) *Expiry {
	return &Expiry{Types: types, Read: "{c}", Left: "{c}", Right: right}
}
