//go:build unix

package campaign

import (
	"context"
	"os"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/internal/test/dbtest"
)

// canFillDisk reports whether the database's disk can be full. MySQL and MariaDB end with the
// signal that PostgreSQL ignores.
func (s *site) canFillDisk() bool {
	return dbtest.CanFillDisk() && (s.engine == dbtest.SQLite || s.engine == dbtest.Postgres && s.own != nil)
}

// fillDisk fills the disk of the server, or that of the clients where they are the database, for a
// while, and starts the server again if it has ended. It reports whether it did, and
// whether a server noticed.
func (c *campaign) fillDisk(enough <-chan time.Time) bool {
	c.crashing.Lock()
	defer c.crashing.Unlock()
	if c.site.own != nil {
		c.must(c.site.own.FillDisk(true))
		<-enough
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		_, err := c.site.audit.ExecContext(ctx, c.site.sql(`UPDATE campaign_orders SET seq = seq + 0 WHERE name = $1`), []byte(always))
		cancel()
		c.must(c.site.own.FillDisk(false))
		c.must(c.site.own.Start())
		return err != nil
	}
	// The clients' records must fit: they are smaller than the database, once that is not new.
	const least = 1 << 20
	path, _, _ := strings.Cut(strings.TrimPrefix(c.site.url, "sqlite://"), "?")
	file, err := os.Stat(path)
	if c.must(err); err != nil || file.Size() < least {
		return false
	}
	limit := func(most int64) {
		for _, p := range c.clients {
			c.must(p.limitFiles(most))
		}
	}
	limit(file.Size()) // so it cannot grow
	<-enough
	limit(-1)
	return true
}

func (p *process) limitFiles(most int64) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil {
		return nil
	}
	return dbtest.LimitFiles(p.cmd.Process.Pid, most)
}
