package dialect

import "strings"

// Compare returns a condition that compares columns with parameters, as rows: the first columns
// that differ decide. op is >, < or <=.
type Compare func(columns []string, op string, params ...string) string

// CompareRows compares row values. PostgreSQL and SQLite search an index by such a condition.
func CompareRows(columns []string, op string, params ...string) string {
	return "(" + strings.Join(columns, ", ") + ") " + op + " (" + strings.Join(params, ", ") + ")"
}

// CompareColumns compares column by column. MySQL and MariaDB search an index by such a condition,
// and by no comparison of row values.
func CompareColumns(columns []string, op string, params ...string) string {
	var ways []string
	same := ""
	for i, c := range columns {
		way := op[:1]
		if i == len(columns)-1 {
			way = op
		}
		ways = append(ways, same+c+" "+way+" "+params[i])
		same += c + " = " + params[i] + " AND "
	}
	return "(" + strings.Join(ways, " OR ") + ")"
}

// ListLeases returns the statement that lists the leases of one owner, or of every owner.
func (d *Dialect) ListLeases(every bool) string {
	after := `owner = $0 AND name > $1`
	if every {
		after = d.Compare([]string{"owner", "name"}, ">", "$0", "$1")
	}
	return strings.ReplaceAll(listLeases, "{after}", after)
}

// ListTickets returns the statement that lists the tickets of one owner, or of every owner.
func (d *Dialect) ListTickets(every bool) string {
	after := `c.owner = $0 AND ` + d.Compare([]string{"c.name", "c.token"}, ">", "$1", "$2")
	if every {
		after = d.Compare([]string{"c.owner", "c.name", "c.token"}, ">", "$0", "$1", "$2")
	}
	return strings.ReplaceAll(listTickets, "{after}", after)
}
