package main

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"net"
	"time"

	"github.com/holdfast-go/holdfast/internal/dsn"
)

// answersWithin bounds the wait for a server that accepts a connection and says nothing.
const answersWithin = 10 * time.Second

// openWithin opens a pool whose connections fail if the server has not let the client in by then.
func openWithin(url string, dial func(ctx context.Context, network, address string) (net.Conn, error), within time.Duration) (*sql.DB, error) {
	c, err := dsn.Connector(url, dial)
	if err != nil {
		return nil, err
	}
	return sql.OpenDB(answering{c, dsn.Address(url), within}), nil
}

// answering is a connector that waits only so long for an answer.
type answering struct {
	driver.Connector

	address string
	within  time.Duration
}

func (a answering) Connect(ctx context.Context) (driver.Conn, error) {
	bounded, cancel := context.WithTimeout(ctx, a.within)
	defer cancel()
	conn, err := a.Connector.Connect(bounded)
	if err != nil && bounded.Err() != nil && ctx.Err() == nil {
		return nil, fmt.Errorf("no answer from %s within %v: it must be the address of a database server that runs", a.address, a.within)
	}
	return conn, err
}
