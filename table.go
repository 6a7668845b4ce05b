package holdfast

// TableSpec names one of the program's own tables.
type TableSpec struct {
	// Table is the name of the table. Schema is its schema (on MySQL and MariaDB its
	// database). Schema "" is the schema that Open found.
	Table, Schema string
	// Key lists the columns of a unique key, such as the primary key. The columns must be NOT
	// NULL, and a full unique index on exactly these columns must exist. Rows are found by
	// this key.
	Key []string
}

// Cond is a condition on a column of one of the program's own tables; see [Where].
type Cond struct {
	Column, Operator string
	Value            any
}

// Where compares a column with a value. The operator is =, <, <=, > or >=. The value has the column's type
// and is sent as a parameter. A NULL in the column meets no condition, and a value that is NULL is refused.
func Where(column, operator string, value any) Cond { return Cond{column, operator, value} }
