package holdfastotel

import (
	"fmt"

	"go.opentelemetry.io/otel/attribute"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"

	"github.com/holdfast-go/holdfast"
)

// Holdfast's own attributes.
const (
	callKey      = attribute.Key("holdfast.call")
	operationKey = attribute.Key("holdfast.operation")
	outcomeKey   = attribute.Key("holdfast.outcome")
	lockKey      = attribute.Key("holdfast.lock")
	causeKey     = attribute.Key("holdfast.cause")
	taskKey      = attribute.Key("holdfast.task")
	statementKey = attribute.Key("holdfast.statement")
	rowsKey      = attribute.Key("holdfast.rows")
	attemptsKey  = attribute.Key("holdfast.attempts")
)

// system returns the attribute db.system.name.
func system(engine string) attribute.KeyValue {
	switch holdfast.Engine(engine) {
	case holdfast.PostgreSQL:
		return semconv.DBSystemNamePostgreSQL
	case holdfast.MySQL, holdfast.TiDB, holdfast.Vitess: // OpenTelemetry has no names for the latter, whose protocol is MySQL's
		return semconv.DBSystemNameMySQL
	case holdfast.MariaDB:
		return semconv.DBSystemNameMariaDB
	case holdfast.SQLite:
		return semconv.DBSystemNameSQLite
	}
	return semconv.DBSystemNameOtherSQL // unknown while a DB is being opened
}

func callAttributes(c holdfast.Call) []attribute.KeyValue {
	a := make([]attribute.KeyValue, 0, 5)
	a = append(a, callKey.String(c.Name), system(c.Engine))
	if c.Operation != "" {
		a = append(a, operationKey.String(c.Operation))
	}
	if c.Lock != "" {
		a = append(a, lockKey.String(c.Lock))
	}
	return a
}

// errorType returns the attribute error.type: the server's code, or the type of the error. The
// text of the error may quote keys and values.
func errorType(err error) attribute.KeyValue {
	if code := holdfast.ServerCode(err); code != "" {
		return semconv.ErrorTypeKey.String(code)
	}
	return semconv.ErrorTypeKey.String(fmt.Sprintf("%T", err))
}
