//go:build unix

package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	mysqldriver "github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
)

const (
	probeInterval = 100 * time.Millisecond
	probeTimeout  = 5 * time.Second
)

var (
	// errWrongEngine means that a server answers, but with another engine than expected.
	errWrongEngine = errors.New("the server is of another engine")
	// errBadDSN means that the DSN can never reach a server.
	errBadDSN = errors.New("not a DSN")
)

// waitReady returns once the server answers a query. It gives up when ctx ends, or when died is
// closed: the process behind the address has ended.
func waitReady(ctx context.Context, e engine, dsn string, died <-chan struct{}) error {
	for {
		err := probe(ctx, e, dsn)
		if err == nil || errors.Is(err, errWrongEngine) || errors.Is(err, errBadDSN) {
			return err
		}
		select {
		case <-died:
			return errors.New("the server stopped while starting")
		case <-ctx.Done():
			return fmt.Errorf("no answer in time, at last: %w", err)
		case <-time.After(probeInterval):
		}
	}
}

// probe asks the server for its version, once.
func probe(ctx context.Context, e engine, dsn string) error {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	if e == postgres {
		return probePostgres(ctx, dsn)
	}
	return probeMySQL(ctx, e, dsn)
}

func probePostgres(ctx context.Context, dsn string) error {
	config, err := pgx.ParseConfig(dsn)
	if err != nil {
		return fmt.Errorf("%w of PostgreSQL", errBadDSN) // the text of err may contain a password
	}
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	defer func() { _ = conn.Close(ctx) }()
	var version string
	if err := conn.QueryRow(ctx, "SHOW server_version").Scan(&version); err != nil {
		return fmt.Errorf("ask for the version: %w", err)
	}
	return nil
}

func probeMySQL(ctx context.Context, e engine, dsn string) error {
	config, err := mysqlConfig(dsn)
	if err != nil {
		return err
	}
	connector, err := mysqldriver.NewConnector(config)
	if err != nil {
		return fmt.Errorf("%w of MySQL or MariaDB", errBadDSN)
	}
	db := sql.OpenDB(connector)
	defer func() { _ = db.Close() }()
	var version string
	if err := db.QueryRowContext(ctx, "SELECT VERSION()").Scan(&version); err != nil {
		return fmt.Errorf("ask for the version: %w", err)
	}
	if isMariaDB(version) != (e == mariadb) {
		return fmt.Errorf("%w: it says it is %s", errWrongEngine, version)
	}
	return nil
}

// mysqlConfig reads a URL as golang-migrate does: mysql:// and then the driver's own format,
// with the user and the password escaped.
func mysqlConfig(dsn string) (*mysqldriver.Config, error) {
	bad := fmt.Errorf("%w of MySQL or MariaDB, which is mysql://user:password@tcp(host:port)/database", errBadDSN)
	form, ok := strings.CutPrefix(dsn, "mysql://")
	if !ok {
		return nil, bad
	}
	config, err := mysqldriver.ParseDSN(form)
	if err != nil {
		return nil, bad
	}
	if config.User, err = url.QueryUnescape(config.User); err != nil {
		return nil, bad
	}
	if config.Passwd, err = url.QueryUnescape(config.Passwd); err != nil {
		return nil, bad
	}
	config.Logger = &mysqldriver.NopLogger{} // do not log a server that is not up yet
	return config, nil
}

// isMariaDB reports whether the version of a server or its binary is MariaDB's.
func isMariaDB(version string) bool {
	return strings.Contains(strings.ToLower(version), "mariadb")
}
