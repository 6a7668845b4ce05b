package doctor

import (
	"errors"
	"strings"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/dialect"
)

// Refused is the finding behind an error of Open or Check, if it is one: a
// server or a session that Holdfast does not work on (a standby, a read-only
// server, autocommit off, a foreign engine), or a pooler that takes the driver's
// prepared statements away.
func Refused(err error) (f Finding, ok bool) {
	var unsupported *holdfast.UnsupportedError
	switch {
	case errors.As(err, &unsupported):
		problem, advice, ok := strings.Cut(unsupported.Problem, ": ")
		if !ok {
			advice = "use what the table of engines in the README lists"
		}
		return Finding{unsupported.What, Broken, unsupported.Engine + ": " + problem, advice}, true
	case dialect.MySQLNumber(err) == 1047:
		return Finding{
			"Galera component", Broken,
			"this node is not in the primary component of its cluster, or still joining: " + err.Error(),
			"connect to another node; where there is none, bootstrap the cluster from the node that has most",
		}, true
	case lostPrepared(err):
		return Finding{
			"prepared statements", Broken,
			"the driver prepares statements and a pooler in transaction mode gives it another session of the server each time: statements fail at random: " + err.Error(),
			"give pgx default_query_exec_mode=exec, or PgBouncer (1.21 and later) max_prepared_statements, or Holdfast a direct connection",
		}, true
	}
	return Finding{}, false
}

// lostPrepared: the session has no such prepared statement, or has another's.
func lostPrepared(err error) bool {
	state := dialect.SQLState(err)
	return state == "26000" || state == "42P05"
}
