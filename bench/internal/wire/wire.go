// Package wire counts round trips on the connection to the server, below every driver.
package wire

import (
	"context"
	"net"
	"sync/atomic"
	"syscall"
)

// Counter counts the round trips of all connections that it dialed.
type Counter struct{ trips atomic.Int64 }

// Trips returns the number of round trips so far: how often a client wrote after it had read.
func (c *Counter) Trips() int64 { return c.trips.Load() }

// Dial is net.Dialer.DialContext with counting.
func (c *Counter) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	var d net.Dialer
	inner, err := d.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return &conn{Conn: inner, counter: c}, nil
}

type conn struct {
	net.Conn

	counter *Counter
	asking  atomic.Bool // the last operation was a write
}

func (c *conn) Write(b []byte) (int, error) {
	if !c.asking.Swap(true) {
		c.counter.trips.Add(1)
	}
	return c.Conn.Write(b)
}

func (c *conn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 {
		c.asking.Store(false)
	}
	return n, err
}

// SyscallConn lets drivers check whether the server has closed the connection, as they do on
// an uncounted connection.
func (c *conn) SyscallConn() (syscall.RawConn, error) {
	if s, ok := c.Conn.(syscall.Conn); ok {
		return s.SyscallConn()
	}
	return nil, syscall.EINVAL
}
