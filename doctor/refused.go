package doctor

import (
	"errors"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/dialect"
)

// Refused returns the findings behind an error of Open or Check. ok is false for other errors.
// The findings name an engine, a setting or a table on which a promise does not hold, a node
// that has lost its cluster, or a pooler that breaks the driver's prepared statements.
func Refused(err error) (found []Finding, ok bool) {
	if many, is := err.(interface{ Unwrap() []error }); is {
		for _, e := range many.Unwrap() {
			some, known := Refused(e)
			if !known {
				return nil, false
			}
			found = append(found, some...)
		}
		return found, len(found) > 0
	}
	var unsupported *holdfast.UnsupportedError
	switch {
	case errors.As(err, &unsupported):
		return []Finding{refused(unsupported)}, true
	case dialect.MySQLNumber(err) == 1047:
		return []Finding{{
			"Galera component", Broken,
			"this node is not in the primary component of its cluster, or still joining: " + err.Error(),
			"connect to another node; where there is none, bootstrap the cluster from the node that has most",
		}}, true
	case lostPrepared(err):
		return []Finding{{
			"prepared statements", Broken,
			"the driver prepares statements and a pooler in transaction mode gives it another session of the server each time: statements fail at random: " + err.Error(),
			"give pgx default_query_exec_mode=exec, or PgBouncer (1.21 and later) max_prepared_statements, or Holdfast a direct connection",
		}}, true
	}
	return nil, false
}

func refused(e *holdfast.UnsupportedError) Finding {
	problem := e.Engine + ": " + e.What
	if e.Value != "" {
		problem += " is " + e.Value
	}
	return Finding{e.Check, Broken, problem + ": " + e.Problem, e.Remedy}
}

// lostPrepared reports whether the session lacks the prepared statement or has another one of
// that name.
func lostPrepared(err error) bool {
	state := dialect.SQLState(err)
	return state == "26000" || state == "42P05"
}
