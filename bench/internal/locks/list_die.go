package locks

import (
	"time"

	"github.com/holdfast-go/holdfast/bench/internal/sqlengine"
	"github.com/holdfast-go/holdfast/sqllock"
)

// ShortTTL is the TTL of the leases whose holder is killed. It bounds what a takeover can take.
const ShortTTL = 3 * time.Second

// Names of the locks whose holder is killed.
const (
	OursDies     = "Holdfast, the holder is killed"
	OursFairDies = "Holdfast Fair, the holder is killed"
)

// Killed lists the locks whose holder is a process that is killed. SQLite cannot tell when a
// process has ended.
func Killed(engine string) []Competitor {
	noticed := sqllock.Options{TTL: ShortTTL, ReleaseOnDisconnect: true}
	switch engine {
	case sqlengine.Postgres:
		return append(oursKilled(onPgx, noticed), Competitor{Name: "advisory lock, the holder is killed", Kind: Raw, Open: advisory})
	case sqlengine.MySQL, sqlengine.MariaDB:
		return append(oursKilled(onSQL, noticed), Competitor{Name: "GET_LOCK, the holder is killed", Kind: Raw, Open: getLock})
	case sqlengine.SQLite:
		return oursKilled(onSQL, sqllock.Options{TTL: ShortTTL})
	}
	return nil
}

func oursKilled[Tx any](open opens[Tx], opts sqllock.Options) []Competitor {
	return []Competitor{
		{Name: OursDies, Kind: Ours, Open: locker(open, opts, leases[Tx])},
		{Name: OursFairDies, Kind: Ours, Open: locker(open, opts, fairs[Tx])},
	}
}
