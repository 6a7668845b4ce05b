package locks

import (
	"time"

	"github.com/holdfast-go/holdfast/bench/internal/sqlengine"
	"github.com/holdfast-go/holdfast/sqllock"
)

// ShortTTL is the TTL of the leases whose holder is killed. It bounds what a takeover can take.
const ShortTTL = time.Second

// Names of the locks whose holder is killed.
const (
	OursDies     = "Holdfast, the holder is killed"
	OursFairDies = "Holdfast Fair, the holder is killed"
)

// mortal are the options of the leases whose holder is killed.
var mortal = sqllock.Options{TTL: ShortTTL}

// Killed lists the locks whose holder is a process that is killed.
func Killed(engine string) []Competitor {
	switch engine {
	case sqlengine.Postgres:
		return append(oursKilled(onPgx), Competitor{Name: "advisory lock, the holder is killed", Kind: Raw, Open: advisory})
	case sqlengine.MySQL, sqlengine.MariaDB:
		return append(oursKilled(onSQL), Competitor{Name: "GET_LOCK, the holder is killed", Kind: Raw, Open: getLock})
	case sqlengine.SQLite:
		return oursKilled(onSQL)
	}
	return nil
}

func oursKilled[Tx any](open opens[Tx]) []Competitor {
	return []Competitor{
		{Name: OursDies, Kind: Ours, Open: locker(open, mortal, leases[Tx])},
		{Name: OursFairDies, Kind: Ours, Open: locker(open, mortal, fairs[Tx])},
	}
}
