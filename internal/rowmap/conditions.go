package rowmap

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Condition compares a column with a value.
type Condition struct {
	Column, Operator string
	Value            any
}

var operators = []string{"=", "<", "<=", ">", ">="}

// Check returns an error for an unknown operator, or for a column that the table does not
// have. argument names the condition in errors.
func (t *Table) Check(c Condition) (argument string, column Column, err error) {
	argument = "Where(" + strconv.Quote(c.Column) + ")"
	if !slices.Contains(operators, c.Operator) {
		return argument, Column{}, invalid(argument, fmt.Sprintf("operator %q: use one of %s", c.Operator, strings.Join(operators, " ")))
	}
	column, err = t.Column(argument, c.Column)
	return argument, column, err
}

// Conditions returns comparisons with the parameters from $first on, joined by AND. It returns
// "" for no conditions.
func (t *Table) Conditions(conditions []Condition, first int) string {
	parts := make([]string, len(conditions))
	for i, c := range conditions {
		parts[i] = t.dialect.Ident(c.Column) + " " + c.Operator + " $" + strconv.Itoa(first+i)
	}
	return strings.Join(parts, " AND ")
}

// After returns the condition for keys that come after another key, in the order of the
// columns. columns are quoted; param returns the parameter of the i-th column. The condition
// bounds each column separately, so that the engine can use an index.
func After(columns []string, param func(i int) string) string {
	text := ""
	for i, c := range slices.Backward(columns) {
		p := param(i)
		if text == "" {
			text = c + " > " + p
		} else {
			text = c + " >= " + p + " AND (" + c + " > " + p + " OR " + text + ")"
		}
	}
	return text
}
