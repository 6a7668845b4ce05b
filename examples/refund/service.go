package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jmoiron/sqlx"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/adapters/holdfastsqlx"
	"github.com/holdfast-go/holdfast/internal/dsn"
	"github.com/holdfast-go/holdfast/sqllock"
)

// service is one replica of the payment service.
type service struct {
	pool       *sqlx.DB
	db         *holdfast.DB[*sqlx.Tx]
	locks      *sqllock.Locker[*sqlx.Tx] // one a process; see close
	merchant   string                    // whom the requests come from; see authenticate
	protect    string                    // the protection of a request that names none
	strategies map[string]strategy
	events     *eventLog
}

const (
	// maxWait bounds how long a request waits for another that is at work on the
	// same; then its client is told 409 and asks again.
	maxWait = 5 * time.Second

	// leaseTTL is how long the orders of a replica that was killed stay locked.
	// It is shorter than maxWait, so that a client hardly notices. Too short costs
	// speed, not money: the guard refuses who comes too late.
	leaseTTL = 2 * time.Second
)

// newService opens every protection on the pool. The tables must be there.
func newService(ctx context.Context, pool *sqlx.DB, merchant, protect string) (*service, error) {
	if _, err := findProtection(protect); err != nil {
		return nil, err
	}
	db, err := holdfastsqlx.Open(ctx, pool)
	if err != nil {
		return nil, fmt.Errorf("open the database: %w", err)
	}
	locks, err := sqllock.New(ctx, db, sqllock.Options{TTL: leaseTTL})
	if err != nil {
		return nil, fmt.Errorf("open the locks: %w", err)
	}
	s := &service{
		pool: pool, db: db, locks: locks,
		merchant: merchant, protect: protect, strategies: map[string]strategy{}, events: newEventLog(),
	}
	for _, p := range protections {
		if s.strategies[p.name], err = p.open(ctx, s); err != nil {
			return nil, errors.Join(fmt.Errorf("open protection %s: %w", p.name, err), s.close(ctx))
		}
	}
	return s, nil
}

// close releases the locks that are held, also when ctx has ended. It comes
// after the last request and before the pool's end.
func (s *service) close(ctx context.Context) error {
	return s.locks.Close(context.WithoutCancel(ctx))
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
