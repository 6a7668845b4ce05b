package conformance

import (
	"context"
	"crypto/rand"
	"net/url"

	"github.com/holdfast-go/holdfast/internal/test/dbtest"
)

// Berlin returns a DSN whose sessions are in Berlin's time zone, where the engine has zones.
func (e *Env[Tx]) Berlin() string {
	e.Helper()
	switch {
	case e.InnoDB():
		return Param(e.DSN, "time_zone", "'"+e.BerlinZone()+"'")
	case e.Engine == dbtest.Postgres:
		return Param(e.DSN, "timezone", "Europe/Berlin")
	}
	return e.DSN
}

// BerlinZone returns the name of Berlin's time zone. If the server has no time zone tables, it adds
// a zone with the transitions of 2026 and removes it when the test ends.
func (e *Env[Tx]) BerlinZone() string {
	e.Helper()
	conn, err := e.SQL.Conn(e.Ctx)
	if err != nil {
		e.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	var at string
	if err := conn.QueryRowContext(e.Ctx, `SELECT CONVERT_TZ('2026-06-01 12:00:00', 'UTC', 'Europe/Berlin')`).Scan(&at); err == nil {
		return "Europe/Berlin"
	}
	name := "Holdfast/" + rand.Text()
	for _, q := range []string{
		`INSERT INTO mysql.time_zone (Use_leap_seconds) VALUES ('N')`,
		`SET @zone = LAST_INSERT_ID()`,
		`INSERT INTO mysql.time_zone_name (Name, Time_zone_id) VALUES ('` + name + `', @zone)`,
		`INSERT INTO mysql.time_zone_transition_type VALUES (@zone, 0, 3600, 0, 'CET'), (@zone, 1, 7200, 1, 'CEST')`,
		`INSERT INTO mysql.time_zone_transition VALUES (@zone, 1774746000, 1), (@zone, 1792890000, 0)`,
	} {
		if _, err := conn.ExecContext(e.Ctx, q); err != nil {
			e.Fatalf("the server knows no time zones, and none could be added: %v", err)
		}
	}
	e.Cleanup(func() {
		for _, table := range []string{"time_zone_transition", "time_zone_transition_type", "time_zone"} {
			_, _ = e.SQL.ExecContext(context.WithoutCancel(e.Ctx), `DELETE FROM mysql.`+table+` WHERE Time_zone_id = (SELECT Time_zone_id FROM mysql.time_zone_name WHERE Name = ?)`, name)
		}
		_, _ = e.SQL.ExecContext(context.WithoutCancel(e.Ctx), `DELETE FROM mysql.time_zone_name WHERE Name = ?`, name)
	})
	return name
}

// Param adds a parameter to a DSN.
func Param(dsn, name, value string) string {
	return dbtest.With(dsn, name+"="+url.QueryEscape(value))
}
