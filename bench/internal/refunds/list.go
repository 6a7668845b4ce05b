package refunds

import "github.com/holdfast-go/holdfast/bench/internal/sqlengine"

// Pair is a form and the form it is compared with, measured in turns.
type Pair struct {
	Variant, Floor Form
	// Replays is set if both forms repeat calls that were made before.
	Replays bool
}

// Pairs lists the pairs of an engine. The first pair of each engine is the control: a form
// against itself.
func Pairs(engine string) []Pair {
	switch engine {
	case sqlengine.Postgres:
		bare := Form{Name: "bare, pgx", Kind: "floor", Statements: 6, Open: barePgx(stepsPgx)}
		batch := Form{Name: "bare, pgx, BEGIN, batch, COMMIT", Kind: "floor", Statements: 5, Open: barePgx(batchPgx)}
		pipe := Form{Name: "bare, pgx, all pipelined", Kind: "floor", Statements: 5, Open: pipelinePgx}
		std := Form{Name: "bare, database/sql", Kind: "floor", Statements: 6, Open: bareSQL(false)}
		record := Form{Name: "Holdfast Do, pgx", Kind: "holdfast", Open: oursPgx(doPgx(stepsPgx))}
		doBatch := Form{Name: "Holdfast Do, pgx, one batch", Kind: "holdfast", Open: oursPgx(doPgx(batchPgx))}
		doStd := Form{Name: "Holdfast Do, database/sql", Kind: "holdfast", Open: ours(do, own, false)}
		return []Pair{
			{Variant: bare, Floor: bare},
			{Variant: record, Floor: bare},
			{Variant: doBatch, Floor: batch},
			{Variant: doBatch, Floor: pipe},
			{Variant: doBatch, Floor: bare},
			{Variant: pipe, Floor: bare},
			{Variant: Form{Name: "Holdfast DoTx, pgx", Kind: "holdfast", Open: oursPgx(doTxPgx)}, Floor: bare},
			{Variant: Form{Name: "Holdfast Table.Do, pgx", Kind: "holdfast", Open: oursPgx(tableDoPgx)}, Floor: bare},
			{Variant: doStd, Floor: std},
			{Variant: Form{Name: "Holdfast Do, database/sql, connector", Kind: "holdfast", Open: ours(do, connected, false)}, Floor: std},
			{Variant: Form{Name: "Holdfast Table.Do, database/sql, connector", Kind: "holdfast", Open: ours(tableDo, connected, false)}, Floor: std},
			{Variant: Form{Name: "Holdfast DoTx, database/sql", Kind: "holdfast", Open: ours(doTx, own, false)}, Floor: std},
			{Variant: Form{Name: "Holdfast DoTx, database/sql, connector", Kind: "holdfast", Open: ours(doTx, connected, false)}, Floor: std},
			{Variant: Form{Name: "Holdfast Table.Do, database/sql", Kind: "holdfast", Open: ours(tableDo, own, false)}, Floor: std},
			{Variant: Form{Name: "Holdfast UpdateTx, database/sql", Kind: "holdfast", Open: ours(version, own, false)}, Floor: Form{Name: "bare UPDATE of a version, database/sql", Kind: "floor", Statements: 4, Open: bareVersion}},
			{Variant: Form{Name: "Holdfast staged, two steps, pgx", Kind: "holdfast", Open: oursPgx(twoStepsPgx)}, Floor: bare},
			{Variant: record, Floor: Form{Name: "bare SELECT by key, pgx", Kind: "floor", Statements: 1, Open: lookPgx}, Replays: true},
			{Variant: doStd, Floor: Form{Name: "bare SELECT by key, database/sql", Kind: "floor", Statements: 1, Open: lookSQL}, Replays: true},
		}
	case sqlengine.MySQL, sqlengine.MariaDB:
		prepared := Form{Name: "bare, prepared", Kind: "floor", Statements: 6, Open: bareSQL(true)}
		interp := Form{Name: "bare, interpolated", Kind: "floor", Statements: 6, Open: bareSQL(false)}
		record := Form{Name: "Holdfast Do, interpolated", Kind: "holdfast", Open: ours(do, own, false)}
		return []Pair{
			{Variant: interp, Floor: interp},
			{Variant: record, Floor: interp},
			{Variant: Form{Name: "Holdfast Do, interpolated, connector", Kind: "holdfast", Open: ours(do, connected, false)}, Floor: interp},
			{Variant: Form{Name: "Holdfast DoTx, interpolated", Kind: "holdfast", Open: ours(doTx, own, false)}, Floor: interp},
			{Variant: Form{Name: "Holdfast DoTx, interpolated, connector", Kind: "holdfast", Open: ours(doTx, connected, false)}, Floor: interp},
			{Variant: Form{Name: "Holdfast Table.Do, interpolated", Kind: "holdfast", Open: ours(tableDo, own, false)}, Floor: interp},
			{Variant: Form{Name: "Holdfast Table.Do, interpolated, connector", Kind: "holdfast", Open: ours(tableDo, connected, false)}, Floor: interp},
			{Variant: Form{Name: "Holdfast Do, its function prepared", Kind: "holdfast", Open: ours(do, own, true)}, Floor: prepared},
			{Variant: Form{Name: "Holdfast UpdateTx, interpolated", Kind: "holdfast", Open: ours(version, own, false)}, Floor: Form{Name: "bare UPDATE of a version, interpolated", Kind: "floor", Statements: 4, Open: bareVersion}},
			{Variant: Form{Name: "Holdfast staged, two steps, interpolated", Kind: "holdfast", Open: ours(twoStepsSQL, own, false)}, Floor: interp},
			{Variant: record, Floor: Form{Name: "bare SELECT by key, interpolated", Kind: "floor", Statements: 1, Open: lookSQL}, Replays: true},
		}
	case sqlengine.SQLite:
		bare := Form{Name: "bare, database/sql", Kind: "floor", Statements: 6, Open: bareSQL(false)}
		record := Form{Name: "Holdfast Do, database/sql", Kind: "holdfast", Open: ours(do, own, false)}
		return []Pair{
			{Variant: bare, Floor: bare},
			{Variant: record, Floor: bare},
			{Variant: Form{Name: "Holdfast Do, connector", Kind: "holdfast", Open: ours(do, connected, false)}, Floor: bare},
			{Variant: Form{Name: "Holdfast DoTx, database/sql", Kind: "holdfast", Open: ours(doTx, own, false)}, Floor: bare},
			{Variant: Form{Name: "Holdfast Table.Do, database/sql", Kind: "holdfast", Open: ours(tableDo, own, false)}, Floor: bare},
			{Variant: Form{Name: "Holdfast Do, its function prepared", Kind: "holdfast", Open: ours(do, own, true)}, Floor: Form{Name: "bare, prepared", Kind: "floor", Statements: 6, Open: bareSQL(true)}},
			{Variant: Form{Name: "Holdfast UpdateTx, database/sql", Kind: "holdfast", Open: ours(version, own, false)}, Floor: Form{Name: "bare UPDATE of a version, database/sql", Kind: "floor", Statements: 4, Open: bareVersion}},
			{Variant: Form{Name: "Holdfast staged, two steps, database/sql", Kind: "holdfast", Open: ours(twoStepsSQL, own, false)}, Floor: bare},
			{Variant: record, Floor: Form{Name: "bare SELECT by key, database/sql", Kind: "floor", Statements: 1, Open: lookSQL}, Replays: true},
		}
	}
	return nil
}
