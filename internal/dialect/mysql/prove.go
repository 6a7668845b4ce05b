package mysql

import "github.com/holdfast-go/holdfast/internal/dialect"

var prove = dialect.Prove{
	Remote: true,
	Server: []dialect.Fact{
		{Name: "server uuid", Query: `SELECT @@server_uuid`},
		{Name: "host", Query: `SELECT @@hostname`},
		{Name: "port", Query: `SELECT @@port`},
	},
	Session: `SELECT CONNECTION_ID()`,
	Blocked: `SELECT COUNT(*) FROM information_schema.INNODB_TRX WHERE trx_mysql_thread_id = $1 AND trx_state = 'LOCK WAIT'`,
	Share:   ` LOCK IN SHARE MODE`,
	Zones:   []string{`SET time_zone = '+09:00'`, `SET time_zone = '-03:30'`},
	Slow:    `SELECT SLEEP(1)`,
	Table:   ` ENGINE=InnoDB`,
}
