package tidb

import "github.com/holdfast-go/holdfast/internal/dialect"

// prove returns MySQL's SQL, except that a TiDB server has no UUID, shows lock waits in a table of
// its own, and has no shared row lock.
func prove(p dialect.Prove) dialect.Prove {
	p.Server = []dialect.Fact{
		{Name: "host", Query: `SELECT @@hostname`},
		{Name: "port", Query: `SELECT @@port`},
		{Name: "version", Query: `SELECT VERSION()`},
	}
	p.Blocked = `SELECT COUNT(*) FROM information_schema.tidb_trx WHERE session_id = $1 AND state = 'LockWaiting'`
	p.Share = ` FOR UPDATE`
	return p
}
