package mariadb

import "github.com/holdfast-go/holdfast/internal/dialect"

// prove returns MySQL's SQL, except that a MariaDB server has no UUID.
func prove(p dialect.Prove) dialect.Prove {
	p.Server = []dialect.Fact{
		{Name: "host", Query: `SELECT @@hostname`},
		{Name: "port", Query: `SELECT @@port`},
		{Name: "server id", Query: `SELECT @@server_id`},
	}
	return p
}
