package main

import (
	"context"
	"fmt"

	"github.com/jmoiron/sqlx"

	"github.com/holdfast-go/holdfast/adapters/holdfastsqlx"
	"github.com/holdfast-go/holdfast/internal/dsn"
)

// service is one replica of the payment service.
type service struct {
	pool       *sqlx.DB
	merchant   string // whom the requests come from; see authenticate
	protect    string // the protection of a request that names none
	strategies map[string]strategy
	events     *eventLog
}

// newService opens every protection on the pool. The tables must be there.
func newService(ctx context.Context, pool *sqlx.DB, merchant, protect string) (*service, error) {
	if _, err := findProtection(protect); err != nil {
		return nil, err
	}
	db, err := holdfastsqlx.Open(ctx, pool)
	if err != nil {
		return nil, fmt.Errorf("open the database: %w", err)
	}
	s := &service{pool: pool, merchant: merchant, protect: protect, strategies: map[string]strategy{}, events: newEventLog()}
	for _, p := range protections {
		if s.strategies[p.name], err = p.open(ctx, pool, db); err != nil {
			return nil, fmt.Errorf("open protection %s: %w", p.name, err)
		}
	}
	return s, nil
}

const (
	serverConnections = 20
	// SQLite has one writer: more connections only wait for one another.
	sqliteConnections = 4
)

// openPool opens what a database URL names. A program of your own has its pool
// already; Holdfast works on that one.
func openPool(url string) (*sqlx.DB, error) {
	config, err := dsn.Parse(url)
	if err != nil {
		return nil, usagef("-dsn: %w", err)
	}
	pool, err := sqlx.Open(config.Driver, config.DSN)
	if err != nil {
		return nil, fmt.Errorf("open the pool: %w", err)
	}
	connections := serverConnections
	if config.Engine == dsn.SQLite {
		connections = sqliteConnections
	}
	pool.SetMaxOpenConns(connections)
	pool.SetMaxIdleConns(connections)
	return pool, nil
}
