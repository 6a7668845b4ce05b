package dialect

import "strings"

// Fragments is the SQL that differs between engines within statements that are otherwise the same. The
// package that runs such a statement writes it, and compiles it once. In its text, Names fills in
// {greatest}, {user}, {integer}, {for update}, {for no key update}, {for share} and {for reread}.
type Fragments struct {
	// Greatest is the function of the greatest of its arguments.
	Greatest string
	// Contains tests whether the bytes {p} are in the column {c}.
	Contains string
	// Integer is the type to which a sum is cast.
	Integer string
	// User is the name of the session's user.
	User string
	// Ignore ends an insert that does nothing if there is a row with the {key}. {column} is any column.
	Ignore string
	// Update begins the assignments to the row with the {key}, if there is one. As then names the row k
	// at the insert's table, and Old leads its columns.
	Update, As, Old string
	// ForUpdate ends a read that locks its rows, and reads their latest versions. With ForNoKeyUpdate,
	// rows that refer to them can still be inserted. ForShare and ForReread are empty on an engine
	// where a plain read would return the latest version as well: ForShare ends a read of a row that
	// may be another session's, and ForReread that of a row that this transaction has locked.
	ForUpdate, ForNoKeyUpdate, ForShare, ForReread string
	// Force names the {index} that a read has to use. Empty: the engine finds it.
	Force string
	// LockDatabase is a statement on a {table} with a {column} that takes the only write lock. Empty: the
	// engine locks rows.
	LockDatabase string
}

// OrIgnore ends an insert that does nothing if there is a row with the key. column is any column.
func (f *Fragments) OrIgnore(key, column string) string {
	return strings.NewReplacer("{key}", key, "{column}", column).Replace(f.Ignore)
}

// OrUpdate begins the assignments of an insert to the row with the key, if there is one.
func (f *Fragments) OrUpdate(key string) string { return strings.ReplaceAll(f.Update, "{key}", key) }

// Has tests whether the bytes of a parameter are in a column.
func (f *Fragments) Has(column, param string) string {
	return strings.NewReplacer("{c}", column, "{p}", param).Replace(f.Contains)
}

// ForceIndex makes a read use an index.
func (f *Fragments) ForceIndex(index string) string {
	return strings.ReplaceAll(f.Force, "{index}", index)
}

// Names returns a replacer that puts the names of the tables, the clock and the fragments into a text.
func (d *Dialect) Names(table func(name string) string) *strings.Replacer {
	f := &d.Fragments
	pairs := []string{
		"{now}", d.Now, "{greatest}", f.Greatest, "{user}", f.User, "{integer}", f.Integer,
		"{for update}", f.ForUpdate, "{for no key update}", f.ForNoKeyUpdate, "{for share}", f.ForShare, "{for reread}", f.ForReread,
	}
	for _, t := range Tables {
		pairs = append(pairs, "{"+t+"}", table(t))
	}
	return strings.NewReplacer(pairs...)
}
