package sqlengine

import (
	"context"
	"errors"
	"fmt"
	"net/url"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/holdfast-go/holdfast/adapters/holdfastpgx"
	"github.com/holdfast-go/holdfast/bench/internal/wire"
)

func (e *Engine) openPostgres(ctx context.Context, server, own string, conns int) error {
	config, err := pgxpool.ParseConfig(server)
	if err != nil {
		return errors.New(Variable(e.Name) + " is no URL of PostgreSQL") // err may quote a password
	}
	admin := func(ctx context.Context, query string) error {
		c, err := pgx.ConnectConfig(ctx, config.ConnConfig.Copy())
		if err != nil {
			return fmt.Errorf("connect: %w", err)
		}
		defer func() { _ = c.Close(ctx) }()
		_, err = c.Exec(ctx, query)
		return err
	}
	if !e.attached {
		if err := admin(ctx, `CREATE SCHEMA `+own); err != nil {
			return err
		}
		e.later(func(ctx context.Context) error { return admin(ctx, `DROP SCHEMA `+own+` CASCADE`) })
	}

	u, err := url.Parse(server)
	if err != nil {
		return errors.New(Variable(e.Name) + " is no URL")
	}
	query := u.Query()
	query.Set("search_path", own)
	u.RawQuery = query.Encode()
	e.URL = u.String()

	e.Wire = &wire.Counter{}
	config.ConnConfig.RuntimeParams["search_path"] = own
	config.ConnConfig.DialFunc = e.Wire.Dial
	config.MaxConns = int32(conns) //nolint:gosec // some hundreds
	if e.Pgx, err = pgxpool.NewWithConfig(ctx, config); err != nil {
		return err
	}
	e.later(func(context.Context) error { e.Pgx.Close(); return nil })
	e.SQL = stdlib.OpenDB(*config.ConnConfig)
	e.SQL.SetMaxOpenConns(conns)
	e.SQL.SetMaxIdleConns(conns)
	e.later(func(context.Context) error { return e.SQL.Close() })
	e.connect(holdfastpgx.Connector(stdlib.GetConnector(*config.ConnConfig)), conns)
	return nil
}
