package simulation

import (
	"database/sql"
	"fmt"
	"maps"
	"reflect"
	"testing"

	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/dialect/sqlite"
	"github.com/holdfast-go/holdfast/internal/test/conformance"
)

// ticketColumns are the columns of a ticket, but for the owner.
const ticketColumns = `name, token, attempt, units, capacity, holder, queued_at, granted_at, expires_at`

// TestTicketsAreSQLite runs each statement of a sequence, and of some schedules, again on a new store and on SQLite with the
// store's clock, and compares each answer, the code of each error, and what is committed.
func TestTicketsAreSQLite(t *testing.T) {
	open(t)
	file, names, codes := onDisk(t), map[string]int{}, map[int]int{}
	inMemory, mine := &inStore{records: newTickets()}, ticketsOf(&sqlite.Dialect, quoted)
	inMemory.records.logs = true
	for i, of := range ticketSequence(1, 300) {
		if _, err := mine.run(t.Context(), inMemory, of); err != nil {
			t.Fatal(err)
		}
		for j := range inMemory.records.log[max(0, len(inMemory.records.log)-4):] { // time passes
			inMemory.records.log[len(inMemory.records.log)-1-j].now += int64(i) * hour.Microseconds() / 20
		}
	}
	runs := again(t, file, append([]logged{{name: "forget all"}}, inMemory.records.log...), names, codes)
	runs += simulateAgain(t, file, 6, ticketScene, func(s scene) *records { return s.(*tickets).records }, names, codes)
	for name := range ticketWrites {
		if names[name] == 0 {
			t.Errorf("nothing has sent %s: %v", name, names)
		}
	}
	for _, name := range []string{"look", "look in line", "places", "remaining", "dead"} {
		if names["locks."+name] == 0 {
			t.Errorf("nothing has sent %s: %v", name, names)
		}
	}
	t.Logf("tickets statements=%d kinds=%d codes=%v", runs, len(names), codes)
}

// sameTickets runs a sequence of statements on the store of tickets and on an engine, each with its own texts. Callers learn the
// same, and the rows are the same, but for tokens and times; and where a release grants, but for the grants.
func sameTickets(e *conformance.Env[*sql.Tx]) {
	a := access.Of(e.DB)
	for seed := range uint64(2) {
		e.Must(`DELETE FROM ` + a.Table("locks"))
		e.Must(`DELETE FROM ` + a.Table("tickets"))
		mine, theirs := ticketsOf(&sqlite.Dialect, quoted), ticketsOf(a.Dialect, a.Table)
		inMemory := &inStore{records: newTickets()}
		for i, of := range ticketSequence(seed, 80) {
			if i%7 == 6 { // time passes
				c := &inMemory.records.committed
				c.change(func(t record) record {
					t = append(record{}, t...)
					t[ticketExpires] = as[int64](t[ticketExpires]) - hour.Microseconds()*3/2
					return t
				})
				e.Must(`UPDATE ` + a.Table("tickets") + ` SET expires_at = expires_at - 5400000000`)
			}
			want, err := mine.run(e.Ctx, inMemory, of)
			e.Check(err)
			var got any
			e.Check(a.OnConn(e.Ctx, "", func(q core.Querier) (err error) {
				got, err = theirs.run(e.Ctx, q, of)
				return err
			}))
			if !reflect.DeepEqual(got, want) {
				e.Fatalf("seed %d, step %d, %+v: %v, and of the store %v", seed, i, of, got, want)
			}
			rows := [2]map[string]string{{}, {}}
			for _, t := range inMemory.records.committed.tickets {
				rows[0][string(blob(t[ticketAttempt]))] = fmt.Sprint(string(blob(t[ticketName])), t[ticketUnits], t[ticketCapacity], t[ticketHolder], t[ticketGranted] != nil || a.Dialect.Tickets.ReleaseGrants, t[ticketToken] == mine.tokens[attemptOf(t)])
			}
			e.Each(`SELECT attempt, name, units, capacity, holder, granted_at IS NOT NULL, token FROM `+a.Table("tickets"), func(r *sql.Rows) {
				var attempt, name []byte
				var units, capacity, token int64
				var holder string
				var granted bool
				e.Check(r.Scan(&attempt, &name, &units, &capacity, &holder, &granted, &token))
				rows[1][string(attempt)] = fmt.Sprint(string(name), units, capacity, holder, granted || a.Dialect.Tickets.ReleaseGrants, token == theirs.tokens[[16]byte(attempt)])
			})
			if !maps.Equal(rows[0], rows[1]) {
				e.Fatalf("seed %d, step %d, %+v:\n%v, and of the store\n%v", seed, i, of, rows[1], rows[0])
			}
		}
	}
}

func attemptOf(t record) [16]byte { return [16]byte(blob(t[ticketAttempt])) }
