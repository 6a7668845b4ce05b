//go:build unix

package campaign

import (
	"context"
	"database/sql"
	"time"

	"github.com/holdfast-go/holdfast/internal/dsn"
)

// takeConnections takes all connections of the server for a while, so that the clients, whose own
// are cut, get no new ones. It reports whether the server has refused one.
func (c *campaign) takeConnections(ctx context.Context, enough <-chan time.Time) bool {
	c.crashing.Lock() // a server that is down refuses them, too
	defer c.crashing.Unlock()
	if ctx.Err() != nil {
		return false
	}
	pool, _, err := dsn.Open(c.site.url)
	if err != nil {
		c.must(err)
		return false
	}
	defer func() { _ = pool.Close() }()
	for _, w := range c.site.ways {
		w.proxy.CutAll()
	}
	const most = 1000
	var all []*sql.Conn
	for len(all) < most {
		one, cancel := context.WithTimeout(ctx, 2*time.Second)
		conn, err := pool.Conn(one)
		cancel()
		if err != nil {
			break
		}
		all = append(all, conn)
	}
	<-enough
	for _, conn := range all {
		_ = conn.Close()
	}
	return len(all) < most && ctx.Err() == nil
}
