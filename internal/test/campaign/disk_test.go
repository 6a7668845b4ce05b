//go:build unix

package campaign

import (
	"context"
	"os"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/internal/test/dbtest"
)

// canFillDisk reports whether the database's disk can be full.
func (s *site) canFillDisk() bool {
	if s.engine == dbtest.SQLite {
		return dbtest.CanLimitFiles()
	}
	return s.own != nil && s.own.CanFillDisk()
}

// fillDisk fills the disk of the server, or that of the clients where they are the database, for a
// while. It starts the server again if it has ended, or still waits for space when there is some: MySQL
// and MariaDB look once a minute. It reports whether it did, and whether a server noticed.
func (c *campaign) fillDisk(ctx context.Context, enough <-chan time.Time) bool {
	c.crashing.Lock()
	defer c.crashing.Unlock()
	if ctx.Err() != nil {
		return false
	}
	if c.site.own != nil {
		c.must(c.site.own.FillDisk(true))
		<-enough
		err := c.grow(2 * time.Second)
		c.must(c.site.own.FillDisk(false))
		c.must(c.site.own.Start())
		if waits := c.grow(3 * time.Second); waits != nil {
			c.t.Logf("%s: after its disk was full (%v) the server still does not write, and is killed: %v", c.site.engine, err, waits)
			c.must(c.site.own.Kill())
			c.must(c.site.own.Start())
		}
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

// grow writes a row that needs more space than a table has in stock.
func (c *campaign) grow(patience time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	_, err := c.site.audit.ExecContext(ctx, `INSERT INTO campaign_filler (text) VALUES (REPEAT('x', 200000))`)
	return err
}

func (p *process) limitFiles(most int64) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil {
		return nil
	}
	return dbtest.LimitFiles(p.cmd.Process.Pid, most)
}
