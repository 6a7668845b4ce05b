package locks

import "github.com/holdfast-go/holdfast/bench/internal/sqlengine"

// Names of the floors: what the others of a group are compared with.
const (
	FloorPgx      = "bare upsert + delete, pgx"
	FloorSQL      = "bare upsert + delete, database/sql"
	FloorPrepared = "bare upsert + delete, prepared"
	FloorInterp   = "bare upsert + delete, interpolated"
)

// Alone lists who is compared where nobody waits, by the engine.
func Alone(engine string) []Competitor {
	switch engine {
	case sqlengine.Postgres:
		return []Competitor{
			{Name: FloorPgx, Kind: Floor, Against: FloorPgx, Statements: 2, Open: barePgx(false, never)},
			{Name: "bare upsert + update, pgx", Kind: Floor, Against: FloorPgx, Statements: 2, Open: barePgx(true, never)},
			{Name: FloorSQL, Kind: Floor, Against: FloorPgx, Statements: 2, Open: bareSQL(false, false, never)},
			{Name: "bare upsert + update, database/sql", Kind: Floor, Against: FloorSQL, Statements: 2, Open: bareSQL(false, true, never)},
			{Name: "Holdfast, pgx", Kind: Ours, Against: FloorPgx, Open: lease(onPgx)},
			{Name: "Holdfast, database/sql", Kind: Ours, Against: FloorSQL, Open: lease(onSQL)},
			{Name: "advisory lock, pgx", Kind: Raw, Against: FloorPgx, Statements: 2, Open: advisory},
		}
	case sqlengine.MySQL, sqlengine.MariaDB:
		return []Competitor{
			{Name: FloorPrepared, Kind: Floor, Against: FloorPrepared, Statements: 2, Open: bareSQL(true, false, never)},
			{Name: FloorInterp, Kind: Floor, Against: FloorPrepared, Statements: 2, Open: bareSQL(false, false, never)},
			{Name: "bare upsert + update, interpolated", Kind: Floor, Against: FloorInterp, Statements: 2, Open: bareSQL(false, true, never)},
			{Name: "Holdfast, interpolated", Kind: Ours, Against: FloorInterp, Open: lease(onSQL)},
			{Name: "Holdfast, driver's default", Kind: Ours, Against: FloorPrepared, Open: lease(onDefault)},
			{Name: "GET_LOCK, interpolated", Kind: Raw, Against: FloorPrepared, Statements: 2, Open: getLock},
		}
	case sqlengine.SQLite:
		return []Competitor{
			{Name: FloorSQL, Kind: Floor, Against: FloorSQL, Statements: 2, Open: bareSQL(false, false, never)},
			{Name: FloorPrepared, Kind: Floor, Against: FloorSQL, Statements: 2, Open: bareSQL(true, false, never)},
			{Name: "bare upsert + update, prepared", Kind: Floor, Against: FloorPrepared, Statements: 2, Open: bareSQL(true, true, never)},
			{Name: "Holdfast, database/sql", Kind: Ours, Against: FloorSQL, Open: lease(onSQL)},
		}
	}
	return nil
}

// Pairs lists who is measured in turns with whom, by the names of Alone. The
// first one of each engine is the control.
func Pairs(engine string) [][2]string {
	const pgxUpdate, sqlUpdate, update = "bare upsert + update, pgx", "bare upsert + update, database/sql", "bare upsert + update, interpolated"
	switch engine {
	case sqlengine.Postgres:
		const pgx, std = "Holdfast, pgx", "Holdfast, database/sql"
		return [][2]string{{FloorPgx, FloorPgx}, {pgx, FloorPgx}, {pgx, pgxUpdate}, {pgxUpdate, FloorPgx}, {std, FloorSQL}, {std, sqlUpdate}}
	case sqlengine.MySQL, sqlengine.MariaDB:
		const ours = "Holdfast, interpolated"
		return [][2]string{{FloorInterp, FloorInterp}, {ours, FloorInterp}, {ours, update}, {ours, FloorPrepared}, {update, FloorInterp}}
	case sqlengine.SQLite:
		const ours, prepared = "Holdfast, database/sql", "bare upsert + update, prepared"
		return [][2]string{{FloorSQL, FloorSQL}, {ours, FloorSQL}, {ours, prepared}}
	}
	return nil
}
