package locks

import (
	"github.com/holdfast-go/holdfast/bench/internal/servers"
	"github.com/holdfast-go/holdfast/bench/internal/sqlengine"
)

// Names of the floors, with which the other competitors are compared.
const (
	FloorPgx      = "bare upsert + delete, pgx"
	FloorSQL      = "bare upsert + delete, database/sql"
	FloorPrepared = "bare upsert + delete, prepared"
	FloorInterp   = "bare upsert + delete, interpolated"

	updatePgx    = "bare upsert + update, pgx"
	updateSQL    = "bare upsert + update, database/sql"
	updateInterp = "bare upsert + update, interpolated"
	updatePrep   = "bare upsert + update, prepared"

	// OursPgx, OursSQL and OursInterp are Holdfast's leases.
	OursPgx     = "Holdfast, pgx"
	OursSQL     = "Holdfast, database/sql"
	OursInterp  = "Holdfast, interpolated"
	oursDefault = "Holdfast, driver's default"

	// LockTx locks a key in a transaction, and Guarded has a lease and a guarded transaction.
	LockTx  = "Holdfast LockTx in a transaction"
	Guarded = "Holdfast lease, Guard in a transaction"

	rowSQL    = "row FOR UPDATE, database/sql"
	rowInterp = "row FOR UPDATE, interpolated"

	redisFloor = "bare SET NX + script"
	etcdFloor  = "bare put + delete (no exclusion)"
	zkFloor    = "bare create + delete"
)

// Alone lists the competitors without contention, by engine or server.
func Alone(group string) []Competitor {
	switch group {
	case sqlengine.Postgres:
		return []Competitor{
			{Name: FloorPgx, Kind: Floor, Against: FloorPgx, Statements: 2, Open: barePgx(false, never)},
			{Name: updatePgx, Kind: Floor, Against: FloorPgx, Statements: 2, Open: barePgx(true, never)},
			{Name: FloorSQL, Kind: Floor, Against: FloorPgx, Statements: 2, Open: bareSQL(false, false, never)},
			{Name: updateSQL, Kind: Floor, Against: FloorSQL, Statements: 2, Open: bareSQL(false, true, never)},
			{Name: OursPgx, Kind: Ours, Against: FloorPgx, Open: lease(onPgx)},
			{Name: OursSQL, Kind: Ours, Against: FloorSQL, Open: lease(onSQL)},
			{Name: "advisory lock, pgx", Kind: Raw, Against: FloorPgx, Statements: 2, Open: advisory},
			{Name: rowSQL, Kind: Raw, Against: FloorSQL, Statements: 3, Open: rowLock},
			{Name: LockTx, Kind: Ours, Against: FloorSQL, Open: lockTx},
			{Name: Guarded, Kind: Ours, Against: FloorSQL, Open: guarded},
			{Name: "like cirello.io/pglock, lib/pq", Kind: StandIn, Against: FloorPgx, Statements: 3, Open: likePglock},
			{Name: "like allisson/go-pglock, lib/pq", Kind: StandIn, Against: FloorPgx, Statements: 2, Open: likeGoPglock},
		}
	case sqlengine.MySQL, sqlengine.MariaDB:
		return []Competitor{
			{Name: FloorPrepared, Kind: Floor, Against: FloorPrepared, Statements: 2, Open: bareSQL(true, false, never)},
			{Name: FloorInterp, Kind: Floor, Against: FloorPrepared, Statements: 2, Open: bareSQL(false, false, never)},
			{Name: updatePrep, Kind: Floor, Against: FloorPrepared, Statements: 2, Open: bareSQL(true, true, never)},
			{Name: updateInterp, Kind: Floor, Against: FloorInterp, Statements: 2, Open: bareSQL(false, true, never)},
			{Name: OursInterp, Kind: Ours, Against: FloorInterp, Open: lease(onSQL)},
			{Name: oursDefault, Kind: Ours, Against: FloorPrepared, Open: lease(onDefault)},
			{Name: "GET_LOCK, interpolated", Kind: Raw, Against: FloorPrepared, Statements: 2, Open: getLock},
			{Name: rowInterp, Kind: Raw, Against: FloorPrepared, Statements: 3, Open: rowLock},
			{Name: LockTx, Kind: Ours, Against: FloorInterp, Open: lockTx},
			{Name: Guarded, Kind: Ours, Against: FloorInterp, Open: guarded},
		}
	case sqlengine.SQLite:
		return []Competitor{
			{Name: FloorSQL, Kind: Floor, Against: FloorSQL, Statements: 2, Open: bareSQL(false, false, never)},
			{Name: FloorPrepared, Kind: Floor, Against: FloorSQL, Statements: 2, Open: bareSQL(true, false, never)},
			{Name: updateSQL, Kind: Floor, Against: FloorSQL, Statements: 2, Open: bareSQL(false, true, never)},
			{Name: updatePrep, Kind: Floor, Against: FloorPrepared, Statements: 2, Open: bareSQL(true, true, never)},
			{Name: OursSQL, Kind: Ours, Against: FloorSQL, Open: lease(onSQL)},
			{Name: LockTx, Kind: Ours, Against: FloorSQL, Open: lockTx},
			{Name: Guarded, Kind: Ours, Against: FloorSQL, Open: guarded},
		}
	case servers.Redis, servers.RedisDurable:
		return []Competitor{
			{Name: redisFloor, Kind: Floor, Against: redisFloor, Statements: 2, Open: redisBare(group, never)},
			{Name: "redsync, 1 node", Kind: Peer, Against: redisFloor, Statements: 2, Open: redSync(group, 1)},
			{Name: "redsync, 5 nodes", Kind: Peer, Against: redisFloor, Statements: 10, Open: redSync(group, servers.Nodes)},
			{Name: "redislock", Kind: Peer, Against: redisFloor, Statements: 2, Open: redisLock(group)},
		}
	case servers.Etcd:
		return []Competitor{
			{Name: etcdFloor, Kind: Floor, Against: etcdFloor, Statements: 2, Open: etcdBare},
			{Name: "etcd concurrency.Mutex", Kind: Peer, Against: etcdFloor, Statements: 2, Open: etcdMutex},
		}
	case servers.ZooKeeper:
		return []Competitor{
			{Name: zkFloor, Kind: Floor, Against: zkFloor, Statements: 2, Open: zkBare},
			{Name: "ZooKeeper Lock", Kind: Peer, Against: zkFloor, Statements: 3, Open: zkLock},
		}
	}
	return nil
}

// Few returns the best floor of an engine, and Holdfast.
func Few(engine string) []Competitor {
	var few []Competitor
	for _, c := range Alone(engine) {
		switch c.Name {
		case FloorPgx, OursPgx:
		case FloorSQL, OursSQL:
			if engine != sqlengine.SQLite {
				continue
			}
		case FloorInterp, OursInterp:
			c.Against = FloorInterp
		default:
			continue
		}
		few = append(few, c)
	}
	return few
}

// Pairs lists the competitors that are measured in turns, by their names in Alone. The first
// pair of each engine is the control.
func Pairs(engine string) [][2]string {
	switch engine {
	case sqlengine.Postgres:
		return [][2]string{
			{FloorPgx, FloorPgx},
			{OursPgx, FloorPgx},
			{OursPgx, updatePgx},
			{updatePgx, FloorPgx},
			{OursSQL, FloorSQL},
			{OursSQL, updateSQL},
			{LockTx, rowSQL},
			{Guarded, FloorSQL},
		}
	case sqlengine.MySQL, sqlengine.MariaDB:
		return [][2]string{
			{FloorInterp, FloorInterp},
			{OursInterp, FloorInterp},
			{OursInterp, updateInterp},
			{OursInterp, updatePrep},
			{OursInterp, FloorPrepared},
			{updateInterp, FloorInterp},
			{LockTx, rowInterp},
			{Guarded, FloorInterp},
		}
	case sqlengine.SQLite:
		return [][2]string{
			{FloorSQL, FloorSQL},
			{OursSQL, FloorSQL},
			{OursSQL, updatePrep},
			{updatePrep, FloorSQL},
		}
	}
	return nil
}
