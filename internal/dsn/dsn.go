// Package dsn reads database URLs of the form that golang-migrate takes and
// opens what they name:
//
//	postgres://user:password@host:port/database?sslmode=disable
//	mysql://user:password@tcp(host:port)/database
//	sqlite://path/to/file.db
//
// A user name or password with special characters is percent-encoded. No error
// of this package repeats a password.
package dsn

import (
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	mysqldriver "github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"
	_ "modernc.org/sqlite"             // the driver "sqlite"
)

// Engine is what a URL tells of the database system.
type Engine string

// The engines that a URL can name. MySQL and MariaDB share a scheme: which of
// the two it is, only the server can tell.
const (
	Postgres Engine = "postgres"
	MySQL    Engine = "mysql" // or MariaDB
	SQLite   Engine = "sqlite"
)

// ErrInvalid is wrapped by every error that Parse returns.
var ErrInvalid = errors.New("invalid database URL")

// Config is a URL, read.
type Config struct {
	Engine Engine
	Driver string // the name that the driver has in database/sql
	DSN    string // what that driver takes; for PostgreSQL it suits pgxpool as well
}

// Parse reads a database URL.
func Parse(rawURL string) (Config, error) {
	scheme, rest, ok := strings.Cut(rawURL, "://")
	if !ok {
		return Config{}, invalid("it begins with none of postgres://, mysql://, sqlite://")
	}
	switch scheme {
	case "postgres", "postgresql":
		return parsePostgres(rawURL)
	case "mysql":
		return parseMySQL(rest)
	case "sqlite":
		return parseSQLite(rest)
	}
	return Config{}, invalid("unknown scheme %.20q (known: postgres, mysql, sqlite)", scheme)
}

// Open opens the database that a URL names. Like sql.Open it need not connect.
func Open(rawURL string) (*sql.DB, Engine, error) {
	config, err := Parse(rawURL)
	if err != nil {
		return nil, "", err
	}
	db, err := sql.Open(config.Driver, config.DSN)
	if err != nil {
		// A driver may quote what it could not read.
		return nil, "", invalid("the driver %s does not take it", config.Driver)
	}
	return db, config.Engine, nil
}

func parsePostgres(rawURL string) (Config, error) {
	// What url.Parse says of a wrong URL may contain a part of the password.
	u, err := url.Parse(rawURL)
	if err != nil {
		return Config{}, invalid("not of the form postgres://user:password@host:port/database; " +
			"special characters in the password are to be percent-encoded")
	}
	if strings.Trim(u.Path, "/") == "" {
		return Config{}, invalid("no database is named behind the host")
	}
	// The others stay as they are: to PostgreSQL's drivers a + is no blank.
	params := strings.Split(u.RawQuery, "&")
	u.RawQuery = strings.Join(slices.DeleteFunc(params, func(p string) bool {
		name, _, _ := strings.Cut(p, "=")
		return isMigrateOption(name)
	}), "&")
	if _, err := pgx.ParseConfig(u.String()); err != nil {
		return Config{}, invalid("pgx refuses one of its parts: host, port or parameters")
	}
	return Config{Engine: Postgres, Driver: "pgx", DSN: u.String()}, nil
}

func parseMySQL(form string) (Config, error) {
	const hint = "not of the form mysql://user:password@tcp(host:port)/database"
	config, err := mysqldriver.ParseDSN(form)
	if err != nil {
		return Config{}, invalid(hint + "; special characters in the password are to be percent-encoded")
	}
	if config.DBName == "" {
		return Config{}, invalid("no database is named behind the address")
	}
	if config.User, err = url.QueryUnescape(config.User); err != nil {
		return Config{}, invalid("the user name is not percent-encoded")
	}
	if config.Passwd, err = url.QueryUnescape(config.Passwd); err != nil {
		return Config{}, invalid("the password is not percent-encoded")
	}
	for name := range config.Params {
		if isMigrateOption(name) {
			delete(config.Params, name)
		}
	}
	return Config{Engine: MySQL, Driver: "mysql", DSN: config.FormatDSN()}, nil
}

// sqlitePragmas are set on every connection unless the URL sets them: readers
// beside the one writer, waiting for that one, and foreign keys that hold.
var sqlitePragmas = [...]string{"busy_timeout(5000)", "journal_mode(WAL)", "foreign_keys(1)"}

func parseSQLite(rest string) (Config, error) {
	path, rawQuery, _ := strings.Cut(rest, "?")
	switch {
	case path == "":
		return Config{}, invalid("no file is named behind sqlite://")
	case strings.Contains(path, ":memory:"):
		return Config{}, invalid("an in-memory database is another one on each connection: name a file")
	}
	query, err := url.ParseQuery(rawQuery)
	if err != nil {
		return Config{}, invalid("the parameters behind the question mark cannot be read")
	}
	var pragmas []string
	for _, pragma := range sqlitePragmas {
		name, _, _ := strings.Cut(pragma, "(")
		if !setsPragma(query["_pragma"], name) {
			pragmas = append(pragmas, pragma)
		}
	}
	query["_pragma"] = append(pragmas, query["_pragma"]...)
	for name := range query {
		if isMigrateOption(name) {
			query.Del(name)
		}
	}
	return Config{Engine: SQLite, Driver: "sqlite", DSN: path + "?" + query.Encode()}, nil
}

// setsPragma tells whether one of pragmas, as "name(value)" or "name=value", is name.
func setsPragma(pragmas []string, name string) bool {
	for _, pragma := range pragmas {
		if end := strings.IndexAny(pragma, "(= "); end >= 0 {
			pragma = pragma[:end]
		}
		if strings.EqualFold(strings.TrimSpace(pragma), name) {
			return true
		}
	}
	return false
}

// isMigrateOption: golang-migrate keeps its own options in parameters that begin
// with x-, which no driver knows.
func isMigrateOption(name string) bool { return strings.HasPrefix(name, "x-") }

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrInvalid, fmt.Sprintf(format, args...))
}
