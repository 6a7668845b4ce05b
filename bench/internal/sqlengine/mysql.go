package sqlengine

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"

	"github.com/go-sql-driver/mysql"

	"github.com/holdfast-go/holdfast/adapters/holdfastsql"
	"github.com/holdfast-go/holdfast/bench/internal/wire"
	"github.com/holdfast-go/holdfast/internal/dsn"
)

func (e *Engine) openMySQL(ctx context.Context, server, own string, conns int) error {
	parsed, err := dsn.Parse(server)
	if err != nil {
		return fmt.Errorf("%s: %w", Variable(e.Name), err)
	}
	config, err := mysql.ParseDSN(parsed.DSN)
	if err != nil {
		return errors.New(Variable(e.Name) + " is no URL of MySQL") // err may quote a password
	}
	e.Wire = &wire.Counter{}
	config.DialFunc = e.Wire.Dial
	admin, err := openMySQLPool(config, 1)
	if err != nil {
		return err
	}
	e.later(func(context.Context) error { return admin.Close() })
	var version string
	if err := admin.QueryRowContext(ctx, `SELECT VERSION()`).Scan(&version); err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	if isMariaDB := strings.Contains(version, "MariaDB"); isMariaDB != (e.Name == MariaDB) {
		return fmt.Errorf("%s names a server of %s", Variable(e.Name), version)
	}
	if !e.attached {
		if _, err := admin.ExecContext(ctx, `CREATE DATABASE `+own+` CHARACTER SET utf8mb4`); err != nil {
			return err
		}
		e.later(func(ctx context.Context) error {
			_, err := admin.ExecContext(ctx, `DROP DATABASE `+own)
			return err
		})
	}
	config.DBName = own
	plain := config.Clone()
	config.InterpolateParams = true
	if e.SQL, err = openMySQLPool(config, conns); err != nil {
		return err
	}
	e.later(func(context.Context) error { return e.SQL.Close() })
	if e.Default, err = openMySQLPool(plain, conns); err != nil {
		return err
	}
	e.later(func(context.Context) error { return e.Default.Close() })
	connector, err := mysql.NewConnector(config)
	if err != nil {
		return err
	}
	e.connect(holdfastsql.Connector(connector), conns)
	return nil
}

func openMySQLPool(config *mysql.Config, conns int) (*sql.DB, error) {
	connector, err := mysql.NewConnector(config)
	if err != nil {
		return nil, err
	}
	pool := sql.OpenDB(connector)
	pool.SetMaxOpenConns(conns)
	pool.SetMaxIdleConns(conns)
	return pool, nil
}
