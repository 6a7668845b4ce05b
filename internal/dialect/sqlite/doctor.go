package sqlite

import "github.com/holdfast-go/holdfast/internal/dialect"

var doctor = dialect.Doctor{
	Indexes:  `SELECT name FROM pragma_index_list($2) WHERE $1 = $1`,
	Prefixed: true,
	Probes: []dialect.Probe{
		dialect.Value("synchronous", `PRAGMA synchronous`, dialect.Broken, "use synchronous(FULL), or NORMAL with care: in WAL mode it may lose the last commits when the machine loses power",
			dialect.Is("synchronous is OFF: a crash of the machine may corrupt the database", "0")),
		dialect.Value("durability", `PRAGMA synchronous`, dialect.Notice, "use synchronous(FULL) if a commit is to survive a loss of power",
			dialect.Is("synchronous is NORMAL: in WAL mode the last commits may be lost when the machine loses power, though nothing is torn", "1")),
		dialect.Value("journal", `PRAGMA journal_mode`, dialect.Broken, "use journal_mode(WAL), or DELETE",
			dialect.Is("the rollback journal is in memory: a crash corrupts the database", "memory")),
		dialect.Value("busy_timeout", `PRAGMA busy_timeout`, dialect.Warning, "give busy_timeout(5000) in the DSN",
			dialect.Is("busy_timeout is 0: any writer beside another fails at once", "0")),
	},
}
