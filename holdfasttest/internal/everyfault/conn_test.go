package everyfault

import (
	"context"
	"database/sql/driver"
	"testing"
)

// slow is a connection whose methods wait for leave.
type slow struct {
	driver.Conn
	entered, leave chan struct{}
	left           bool
	rolledBack     bool
}

func (s *slow) wait() {
	close(s.entered)
	<-s.leave
	s.left = true
}

func (s *slow) IsValid() bool {
	s.wait()
	return true
}

func (s *slow) ResetSession(context.Context) error {
	s.wait()
	return nil
}

func (s *slow) Ping(context.Context) error { return s.ResetSession(context.Background()) }

func (s *slow) Rollback() error { return s.ResetSession(context.Background()) }

func (s *slow) Commit() error { return nil }

func (s *slow) BeginTx(context.Context, driver.TxOptions) (driver.Tx, error) {
	s.wait()
	return s, nil
}

func (s *slow) ExecContext(context.Context, string, []driver.NamedValue) (driver.Result, error) {
	s.rolledBack = s.left
	return nil, driver.ErrSkip
}

// TestDropWaits drops a connection while it is used: the driver's is not used by two goroutines.
func TestDropWaits(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	for name, use := range map[string]func(c *Conn, inner *slow) error{
		"IsValid":      func(c *Conn, _ *slow) error { c.IsValid(); return nil },
		"ResetSession": func(c *Conn, _ *slow) error { return c.ResetSession(ctx) },
		"Ping":         func(c *Conn, _ *slow) error { return c.Ping(ctx) },
		"Rollback":     func(c *Conn, inner *slow) error { return transaction{inner, c}.Rollback() },
		"BeginTx": func(c *Conn, _ *slow) error {
			_, err := c.BeginTx(ctx, driver.TxOptions{})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inner := &slow{entered: make(chan struct{}), leave: make(chan struct{})}
			c := &Conn{Conn: inner, p: newProcess(&plan{}), kill: func() { close(inner.leave) }}
			used := make(chan error)
			go func() { used <- use(c, inner) }()
			<-inner.entered
			c.Drop()
			if !inner.rolledBack {
				t.Error("the transaction was rolled back while the connection was used")
			}
			if err := <-used; err != nil {
				t.Error(err)
			}
		})
	}
}
