package dbtest

import (
	"database/sql"
	"net/url"
	"runtime"
	"testing"
)

// TestReadBeforeTheFirstWrite checks that a driver gets a kept session's greeting also if it reads
// before it writes, as pgx does when its write is slow.
func TestReadBeforeTheFirstWrite(t *testing.T) {
	Each(t, func(t *testing.T, e Engine) {
		if e != Postgres {
			return // sessions of the others are not kept
		}
		databaseURL, _ := Prepared(t, e, "early", func(*sql.DB) {})
		pool := OpenSQL(t, databaseURL)
		if err := pool.PingContext(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := pool.Close(); err != nil {
			t.Fatal(err)
		}
		u, err := url.Parse(databaseURL)
		if err != nil {
			t.Fatal(err)
		}
		dialed, err := keptDial(databaseURL)(t.Context(), "tcp", u.Host)
		if err != nil {
			t.Fatal(err)
		}
		c := dialed.(*keptConn)
		if !c.kept {
			t.Fatal("the session is new")
		}
		answer := make(chan byte)
		go func() {
			var kind [1]byte
			_, _ = c.Read(kind[:])
			answer <- kind[0]
		}()
		for reading := false; !reading; runtime.Gosched() {
			c.mu.Lock()
			reading = c.reading == 1
			c.mu.Unlock()
		}
		if _, err := c.Write([]byte{0, 0, 0, 8, 0, protocol3, 0, 0}); err != nil {
			t.Fatal(err)
		}
		select {
		case kind := <-answer:
			if kind != 'R' {
				t.Errorf("the driver read %q", kind)
			}
		case <-t.Context().Done():
		}
		_ = c.Close()
	})
}
