// Package dsn parses database URLs in the form of golang-migrate, and opens the databases:
//
//	postgres://user:password@host:port/database?sslmode=disable
//	mysql://user:password@tcp(host:port)/database
//	sqlite://path/to/file.db
//
// MySQL and MariaDB are also understood as other tools write them: mysql://user:password@host:port/database,
// and with mariadb:// in front.
//
// Special characters in a user name or password must be percent-encoded. Errors of this
// package never contain a password.
package dsn

import (
	"cmp"
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"

	mysqldriver "github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib" // also the driver "pgx"
	_ "modernc.org/sqlite"           // the driver "sqlite"
)

// Engine is the database system that a URL names.
type Engine string

// The engines that a URL can name. MySQL and MariaDB share a scheme; only the server can tell
// which of the two it is.
const (
	Postgres Engine = "postgres"
	MySQL    Engine = "mysql" // or MariaDB
	SQLite   Engine = "sqlite"
)

// ErrInvalid is wrapped by every error of Parse.
var ErrInvalid = errors.New("invalid database URL")

// Config is a parsed URL.
type Config struct {
	Engine Engine
	Driver string // the driver's name in database/sql
	DSN    string // for that driver; for PostgreSQL also for pgxpool
}

// Parse parses a database URL.
func Parse(rawURL string) (Config, error) {
	scheme, rest, ok := strings.Cut(rawURL, "://")
	if !ok {
		return Config{}, invalid("it begins with none of postgres://, mysql://, mariadb://, sqlite://")
	}
	switch scheme {
	case "postgres", "postgresql":
		return parsePostgres(rawURL)
	case "mysql", "mariadb":
		return parseMySQL(rest)
	case "sqlite":
		return parseSQLite(rest)
	}
	return Config{}, invalid("unknown scheme %.20q (known: postgres, mysql, mariadb, sqlite)", scheme)
}

// Open opens the database that a URL names. Like sql.Open, it may return without connecting.
func Open(rawURL string) (*sql.DB, Engine, error) {
	config, err := Parse(rawURL)
	if err != nil {
		return nil, "", err
	}
	db, err := sql.Open(config.Driver, config.DSN)
	if err != nil {
		// A driver's error may quote parts of the URL.
		return nil, "", invalid("the driver %s does not take it", config.Driver)
	}
	return db, config.Engine, nil
}

type dialFunc = func(ctx context.Context, network, address string) (net.Conn, error)

// throughDriver is a connector to a DSN whose connections dial makes, in the form of each driver that
// dials.
var throughDriver = map[string]func(dsn string, dial dialFunc) (driver.Connector, error){
	"pgx":   pgxThrough,
	"mysql": mysqlThrough,
}

// OpenThrough opens a URL with connections that dial makes. If dial is nil, the driver dials
// itself. SQLite opens its file and does not dial.
func OpenThrough(rawURL string, dial func(ctx context.Context, network, address string) (net.Conn, error)) (*sql.DB, error) {
	c, err := Connector(rawURL, dial)
	if err != nil {
		return nil, err
	}
	return sql.OpenDB(c), nil
}

// Connector returns the connector that OpenThrough uses.
func Connector(rawURL string, dial func(ctx context.Context, network, address string) (net.Conn, error)) (driver.Connector, error) {
	config, err := Parse(rawURL)
	if err != nil {
		return nil, err
	}
	if through, dials := throughDriver[config.Driver]; dials && dial != nil {
		return through(config.DSN, dial)
	}
	pool, _, err := Open(rawURL)
	if err != nil {
		return nil, err
	}
	defer func() { _ = pool.Close() }() // it has no connection
	if d, has := pool.Driver().(driver.DriverContext); has {
		return d.OpenConnector(config.DSN)
	}
	return byDriver{config.DSN, pool.Driver()}, nil
}

// byDriver is the connector of a driver that has none, as database/sql has it.
type byDriver struct {
	dsn    string
	driver driver.Driver
}

func (c byDriver) Connect(context.Context) (driver.Conn, error) { return c.driver.Open(c.dsn) }
func (c byDriver) Driver() driver.Driver                        { return c.driver }

func pgxThrough(dsn string, dial dialFunc) (driver.Connector, error) {
	c, err := pgx.ParseConfig(dsn)
	if err != nil {
		return nil, invalid("the driver pgx does not take it")
	}
	c.DialFunc = dial
	return stdlib.GetConnector(*c), nil
}

func mysqlThrough(dsn string, dial dialFunc) (driver.Connector, error) {
	c, err := mysqldriver.ParseDSN(dsn)
	if err != nil {
		return nil, invalid("the driver mysql does not take it")
	}
	c.DialFunc, c.Logger = dial, &mysqldriver.NopLogger{} // dial may cut connections on purpose
	connector, err := mysqldriver.NewConnector(c)
	if err != nil {
		return nil, invalid("the driver mysql does not take it")
	}
	return connector, nil
}

func parsePostgres(rawURL string) (Config, error) {
	// The error of url.Parse may contain a part of the password.
	u, err := url.Parse(rawURL)
	if err != nil {
		return Config{}, invalid("not of the form postgres://user:password@host:port/database; " +
			"special characters in the password are to be percent-encoded")
	}
	if strings.Trim(u.Path, "/") == "" {
		return Config{}, invalid("no database is named behind the host")
	}
	// The other parameters stay unchanged: PostgreSQL's drivers do not read a + as a blank.
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

// Existing returns the URL with which Open fails, rather than making a file, where SQLite's file is
// missing. It returns an error at once if it is missing now. Other URLs are returned as they are.
func Existing(rawURL string) (string, error) {
	scheme, rest, _ := strings.Cut(rawURL, "://")
	path, rawQuery, _ := strings.Cut(rest, "?")
	if scheme != "sqlite" || path == "" || strings.Contains(path, ":memory:") || strings.HasPrefix(path, "file:") {
		return rawURL, nil
	}
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return "", invalid("there is no file %q: is the path mistyped? holdfast migrate up makes a new database", path)
	}
	query, err := url.ParseQuery(rawQuery)
	if err != nil || query.Has("mode") {
		return rawURL, nil //nolint:nilerr // Parse reports it
	}
	if rawQuery != "" {
		rawQuery += "&"
	}
	return scheme + "://" + path + "?" + rawQuery + "mode=rw", nil
}

// driverForm returns a URL of MySQL in the form of its driver, which has the protocol before the
// address.
func driverForm(form string) (string, error) {
	before, rest, _ := strings.Cut(form, "/")
	at := strings.LastIndex(before, "@") + 1
	address := before[at:]
	if strings.ContainsAny(address, "()") || strings.Contains(form, ")/") || address == "" {
		return form, nil
	}
	u, err := url.Parse("//" + address)
	if err != nil || u.Hostname() == "" {
		return "", errors.New("no address")
	}
	return before[:at] + "tcp(" + net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), "3306")) + ")/" + rest, nil
}

func parseMySQL(form string) (Config, error) {
	const hint = "not of the form mysql://user:password@host:port/database or mysql://user:password@tcp(host:port)/database"
	form, err := driverForm(form)
	if err != nil {
		return Config{}, invalid(hint + "; special characters in the password are to be percent-encoded")
	}
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

// sqlitePragmas are set on every connection unless the URL sets them. They let readers run
// beside the one writer, let writers wait for each other, and enforce foreign keys.
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
	if query.Has("mode") && !strings.HasPrefix(path, "file:") { // only a URI has a mode
		path = "file:" + (&url.URL{Path: path}).EscapedPath()
	}
	return Config{Engine: SQLite, Driver: "sqlite", DSN: path + "?" + query.Encode()}, nil
}

// setsPragma reports whether one of pragmas, as "name(value)" or "name=value", sets name.
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

// isMigrateOption reports whether name is an option of golang-migrate: its options begin with
// x-, and the drivers do not know them.
func isMigrateOption(name string) bool { return strings.HasPrefix(name, "x-") }

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrInvalid, fmt.Sprintf(format, args...))
}

// Address is where the server of a URL listens, as the driver dials it. It is empty for SQLite.
func Address(rawURL string) string {
	config, err := Parse(rawURL)
	if err != nil {
		return ""
	}
	switch config.Engine {
	case Postgres:
		if c, err := pgx.ParseConfig(config.DSN); err == nil {
			return net.JoinHostPort(c.Host, strconv.Itoa(int(c.Port)))
		}
	case MySQL:
		if c, err := mysqldriver.ParseDSN(config.DSN); err == nil {
			return c.Addr
		}
	case SQLite:
	}
	return ""
}
