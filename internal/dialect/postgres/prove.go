package postgres

import "github.com/holdfast-go/holdfast/internal/dialect"

var prove = dialect.Prove{
	Remote: true,
	Server: []dialect.Fact{
		{Name: "system identifier", Query: `SELECT system_identifier::text FROM pg_control_system()`},
		{Name: "started", Query: `SELECT to_char(pg_postmaster_start_time() AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS.US')`},
		{Name: "in recovery", Query: `SELECT pg_is_in_recovery()::text`},
	},
	Session: `SELECT pg_backend_pid()::text`,
	Blocked: `SELECT count(*) FROM pg_stat_activity WHERE pid::text = $1::text AND wait_event_type = 'Lock'`,
	Share:   ` FOR SHARE`,
	Zones:   []string{`SET TIME ZONE 'Asia/Tokyo'`, `SET TIME ZONE 'America/St_Johns'`},
	Slow:    `SELECT pg_sleep(1)`,
}
