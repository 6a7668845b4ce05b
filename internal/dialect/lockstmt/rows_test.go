package lockstmt_test

import (
	"bytes"
	"database/sql"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/dialect"
	"github.com/holdfast-go/holdfast/internal/dialect/lockstmt"
	"github.com/holdfast-go/holdfast/internal/lockname"
	"github.com/holdfast-go/holdfast/internal/test/conformance"
)

// The tests of this package lay rows of every state before each statement, and beside them the rows of
// another owner and of another name in the state in which the statement would take them, and compare
// all of them with what the statement's documentation says.

type env struct {
	*conformance.Env[*sql.Tx]

	d      *dialect.Dialect
	tables *lockstmt.Tables
	leases *lockstmt.LeaseStatements
	locks  string
	table  func(name string) string
}

func run(t *testing.T, f func(e *env)) {
	t.Helper()
	conformance.Run(t, conformance.SQL(), func(c *conformance.Env[*sql.Tx]) {
		a := access.Of(c.DB)
		tables := lockstmt.New(a.Dialect, a.Table)
		f(&env{c, a.Dialect, tables, tables.Leases(4, "new holder", self), a.Table("locks"), a.Table})
	})
}

const (
	hour   = time.Hour
	minute = time.Minute
)

var (
	self   = id(9) // this process, among the waiters
	me     = id(1)
	theirs = id(2)
)

func id(b byte) (id lockstmt.AttemptID) {
	for i := range id {
		id[i] = b
	}
	return id
}

func name(owner, key string) lockname.Name {
	n, err := lockname.Of(lockname.Lease, core.Owner{ID: owner}, key)
	if err != nil {
		panic(err)
	}
	return n
}

var (
	mine  = name("a", "key")
	other = name("a", "kez") // the next one in the index
	// neighbours have rows that differ in one thing from that of a statement.
	neighbours = []lockname.Name{name("b", "key"), name("", "key"), name("a", "key\x00"), name("a", "Key")}
)

// lock is a row of the locks. left is what was left when it was laid.
type lock struct {
	attempt, holder, value string
	token                  int64
	left                   time.Duration
}

func (e *env) now() (n int64) {
	e.Helper()
	e.Check(e.SQL.QueryRowContext(e.Ctx, strings.ReplaceAll("SELECT {now}", "{now}", e.d.Now)).Scan(&n))
	return n
}

// lay makes the table have these rows and no others.
func (e *env) lay(rows map[lockname.Name]lock) {
	e.Helper()
	e.Must(`DELETE FROM ` + e.locks)
	for n, l := range rows {
		e.layOne(n, l)
	}
}

func (e *env) layOne(n lockname.Name, l lock) {
	e.Helper()
	now := e.now()
	e.Must(`INSERT INTO `+e.locks+` (owner, name, token, attempt, holder, granted_at, expires_at, value) VALUES ($1, $2, $3, $4, $5, $6, $7, $8)`,
		n.Owner, n.Row(), l.token, null(l.attempt), l.holder, now, now+l.left.Microseconds(), null(l.value))
}

func null(s string) any {
	if s == "" {
		return nil
	}
	return []byte(s)
}

// seen is a row as it is stored.
type seen struct {
	attempt, holder, value         string
	token, terms, granted, expires int64
}

func (e *env) rows() map[lockname.Name]seen {
	e.Helper()
	rows, err := e.SQL.QueryContext(e.Ctx, `SELECT owner, name, token, terms, attempt, holder, granted_at, expires_at, value FROM `+e.locks)
	e.Check(err)
	defer func() { _ = rows.Close() }()
	all := map[lockname.Name]seen{}
	for rows.Next() {
		var owner string
		var row, attempt, value []byte
		var s seen
		e.Check(rows.Scan(&owner, &row, &s.token, &s.terms, &attempt, &s.holder, &s.granted, &s.expires, &value))
		s.attempt, s.value = string(attempt), string(value)
		n, _ := lockname.Parse(owner, row)
		all[n] = s
	}
	e.Check(rows.Err())
	return all
}

// on runs a statement on a connection.
func (e *env) on(f func(q core.Querier) error) error {
	return access.Of(e.DB).OnConn(e.Ctx, "", f)
}

// The states of a lock's row.
var states = map[string]lock{
	"free":            {token: 5, holder: "old holder", left: -hour},
	"mine":            {attempt: string(me[:]), token: 5, holder: "old holder", value: "said", left: hour},
	"mine, over":      {attempt: string(me[:]), token: 5, holder: "old holder", value: "said", left: -hour},
	"theirs":          {attempt: string(theirs[:]), token: 5, holder: "old holder", value: "said", left: hour},
	"theirs, over":    {attempt: string(theirs[:]), token: 5, holder: "old holder", value: "said", left: -hour},
	"free, far token": {token: farToken, holder: "old holder", left: -hour},
	"theirs, far":     {attempt: string(theirs[:]), token: farToken, holder: "old holder", value: "said", left: hour},
}

// farToken is above every time of the clock.
const farToken = 9_000_000_000_000_000

// change is what a statement does to a row.
type change struct {
	nothing bool
	term    string        // the attempt that has it afterwards
	next    bool          // a new term
	lasts   time.Duration // from the statement on; 0: as before
	ends    bool
}

func (e *env) check(what string, before, after seen, c change, from, to int64) {
	e.Helper()
	if c.nothing {
		if before != after {
			e.Errorf("%s: the row was %+v and is %+v", what, before, after)
		}
		return
	}
	if after.attempt != c.term {
		e.Errorf("%s: the term is of %x, want %x", what, after.attempt, c.term)
	}
	switch want := before.token; {
	case c.next && (after.token <= before.token || after.token < from && before.token < from || after.token > max(to, before.token+1)):
		e.Errorf("%s: the token was %d and is %d, at %d", what, before.token, after.token, from)
	case !c.next && after.token != want:
		e.Errorf("%s: the token was %d and is %d", what, before.token, after.token)
	}
	if begun := after.terms - before.terms; begun > 1 || c.next != (begun == 1) {
		e.Errorf("%s: it had %d terms and has %d", what, before.terms, after.terms)
	}
	if c.next && (after.holder != "new holder" || after.value != "" || after.granted < from || after.granted > to) {
		e.Errorf("%s: a new term has holder %q, value %q, and was granted at %d, between %d and %d", what, after.holder, after.value, after.granted, from, to)
	}
	if !c.next && after.value != before.value {
		e.Errorf("%s: its value was %q and is %q", what, before.value, after.value)
	}
	switch ttl := c.lasts.Microseconds(); {
	case c.ends && (after.expires < from || after.expires > to):
		e.Errorf("%s: it ended at %d, between %d and %d", what, after.expires, from, to)
	case c.lasts > 0 && (after.expires < from+ttl || after.expires > to+ttl):
		e.Errorf("%s: it expires at %d, want %v after %d to %d", what, after.expires, c.lasts, from, to)
	case c.lasts == 0 && !c.ends && after.expires != before.expires:
		e.Errorf("%s: it expired at %d and does at %d", what, before.expires, after.expires)
	}
}

// each runs a statement on a row of each state, and on none. want says what it does; of a state that it
// does not name, nothing. In the states of either, it may say that it did it or that it did not.
func (e *env) each(statement string, want map[string]change, stmt func(q core.Querier) (done bool, err error), either ...string) {
	e.Helper()
	for _, state := range append(slices.Sorted(maps.Keys(states)), "absent") {
		what := statement + ": " + state
		rows := map[lockname.Name]lock{}
		if l, there := states[state]; there {
			rows[mine] = l
		}
		c, does := want[state]
		c.nothing = !does
		// Others' rows are as this one would be taken, renewed or ended.
		for i, n := range neighbours {
			rows[n] = slices.Collect(maps.Values(states))[0]
			if l, there := states[state]; there {
				rows[n] = l
			} else if i > 0 {
				rows[n] = states["free"]
			} else {
				delete(rows, n)
			}
		}
		e.lay(rows)
		before := e.rows()
		from := e.now()
		var done bool
		err := e.on(func(q core.Querier) (err error) {
			done, err = stmt(q)
			return err
		})
		to := e.now()
		if e.d.Classify(err) == dialect.Duplicate && state != "absent" {
			err = nil // the row exists
		}
		if err != nil {
			e.Errorf("%s: %v", what, err)
			continue
		}
		if done != does && !slices.Contains(either, state) {
			e.Errorf("%s: done is %v", what, done)
		}
		after := e.rows()
		for _, n := range neighbours {
			if before[n] != after[n] {
				e.Errorf("%s: the row of %q in %q was %+v and is %+v", what, n.Key(), n.Owner, before[n], after[n])
			}
		}
		if _, there := after[mine]; does != there && state == "absent" {
			e.Errorf("%s: it is there: %v", what, there)
		}
		e.check(what, before[mine], after[mine], c, from, to)
	}
}

// TestLeaseStatements checks each statement that writes a lease.
func TestLeaseStatements(t *testing.T) {
	t.Parallel()
	run(t, func(e *env) {
		taken := change{term: string(me[:]), next: true, lasts: minute}
		attempt := lockstmt.NewAttempt(mine, me, minute)
		free := map[string]change{"free": taken, "free, far token": taken, "theirs, over": taken, "mine, over": taken}
		again := maps.Clone(free)
		again["mine"] = change{term: string(me[:])}
		makes := e.leases.MakeFirst(none{}, mine)
		if !makes {
			again["absent"] = taken
		}
		grant := func(g *lockstmt.Grant, a lockstmt.Attempt) func(core.Querier) (bool, error) {
			return func(q core.Querier) (bool, error) {
				outcome, s, err := g.Run(e.Ctx, q, a)
				if outcome == lockstmt.Granted {
					e.granted(mine, s.Token)
				}
				return outcome == lockstmt.Granted, err
			}
		}
		e.each("take", again, grant(&e.leases.Take, attempt))
		longer := maps.Clone(again)
		for state, c := range longer {
			c.lasts = 2 * hour
			longer[state] = c
		}
		e.each("take for longer", longer, grant(&e.leases.Take, lockstmt.NewAttempt(mine, me, 2*hour)))
		if makes {
			// What Make does to a row that exists is what Take does, or nothing.
			made := map[string]change{"absent": taken}
			e.lay(map[lockname.Name]lock{mine: states["free"]})
			var took bool
			_ = e.on(func(q core.Querier) (err error) {
				outcome, _, err := e.leases.Make.Run(e.Ctx, q, attempt)
				took = outcome == lockstmt.Granted
				return err
			})
			if took {
				made = again
				made["absent"] = taken
			}
			e.each("make", made, grant(&e.leases.Make, attempt))
		}
		e.each("hand over", map[string]change{"theirs": taken, "theirs, far": taken}, func(q core.Querier) (bool, error) {
			outcome, s, err := e.leases.HandOver.RunFrom(e.Ctx, q, theirs, attempt)
			if outcome == lockstmt.Granted {
				e.granted(mine, s.Token)
			}
			return outcome == lockstmt.Granted, err
		})
		e.each("release", map[string]change{"mine": {ends: true}, "mine, over": {ends: true}}, func(q core.Querier) (bool, error) {
			freed, err := e.leases.Release.Run(e.Ctx, q, attempt)
			return freed.Was, err
		})
		row := []lockstmt.TermID{{Name: mine, Attempt: me, Token: 5}}
		renew := func(ttl time.Duration) func(q core.Querier) (bool, error) {
			return func(q core.Querier) (bool, error) {
				renewed, err := e.leases.Renew.Run(e.Ctx, q, ttl, row)
				return renewed[me], err
			}
		}
		e.each("renew", map[string]change{"mine": {term: string(me[:]), lasts: 2 * hour}}, renew(2*hour))
		var unsaid []string
		if !e.d.Leases.Renewed { // the engine counts the rows that it changes
			unsaid = []string{"mine"}
		}
		e.each("renew for less", map[string]change{"mine": {term: string(me[:])}}, renew(minute), unsaid...)
	})
}

// granted fails unless a grant returned the token that the row has.
func (e *env) granted(n lockname.Name, token int64) {
	e.Helper()
	if got := e.rows()[n].token; got != token {
		e.Errorf("a grant returned the token %d, and the row has %d", token, got)
	}
}

type none struct{}

func (none) Has(lockname.Name) bool { return false }

// TestLeaseBatches checks the statements for several leases: each row gets what the statement for one
// does, and no other row anything.
func TestLeaseBatches(t *testing.T) {
	t.Parallel()
	run(t, func(e *env) {
		if e.d.Leases.Alone {
			return // the engine has none
		}
		attempts := []lockstmt.Attempt{lockstmt.NewAttempt(mine, me, minute), lockstmt.NewAttempt(other, id(3), 2*hour)}
		makes := e.leases.MakeFirst(none{}, mine)
		batch := func(g lockstmt.GrantMany) func(q core.Querier) (bool, error) {
			return func(q core.Querier) (bool, error) {
				tokens, _, err := g.Run(e.Ctx, q, attempts)
				if err == nil {
					for _, a := range attempts {
						if token, granted := tokens[a.ID]; granted {
							e.granted(a.Name, token)
						}
					}
				}
				_, granted := tokens[me]
				return granted, err
			}
		}
		taken := change{term: string(me[:]), next: true, lasts: minute}
		want := map[string]change{"free": taken, "free, far token": taken, "theirs, over": taken, "mine, over": taken}
		if !makes {
			want["absent"] = taken
		}
		// An attempt that was granted before finds its term, where a second statement reads it.
		var again []string
		if e.d.Leases.Granted != "" {
			again = []string{"mine", "mine, over"}
		}
		e.each("take many", want, batch(e.leases.TakeMany), again...)
		if makes {
			made := map[string]change{"absent": taken}
			e.each("make many", made, batch(e.leases.MakeMany), again...)
		}
		// The other one's row.
		e.lay(map[lockname.Name]lock{mine: states["theirs"], other: states["free"]})
		before, from := e.rows(), e.now()
		e.Check(e.on(func(q core.Querier) error { _, err := batch(e.leases.TakeMany)(q); return err }))
		e.check("take many: another", before[other], e.rows()[other], change{term: string(attempts[1].ID[:]), next: true, lasts: 2 * hour}, from, e.now())
		e.check("take many: another", before[mine], e.rows()[mine], change{nothing: true}, 0, 0)

		ids := []lockstmt.TermID{{Name: mine, Attempt: me, Token: 5}, {Name: other, Attempt: id(3), Token: 5}}
		ended := map[string]change{"mine": {ends: true}, "mine, over": {ends: true}}
		for n := range core.PowersOfTwo(len(ids)) {
			e.each("release many", ended, func(q core.Querier) (bool, error) {
				freed, _, err := e.leases.ReleaseMany.Run(e.Ctx, q, ids[:n], self, false)
				return freed[0].Was, err
			})
		}
	})
}

// TestReleasedByAnother checks that a batch does not say that it ended terms that another call has ended.
func TestReleasedByAnother(t *testing.T) {
	t.Parallel()
	run(t, func(e *env) {
		if e.d.Leases.Alone {
			return
		}
		ids := []lockstmt.TermID{{Name: mine, Attempt: me, Token: 5}, {Name: other, Attempt: id(3), Token: 5}}
		held := lock{attempt: string(ids[1].Attempt[:]), token: 5, holder: "old holder", left: hour}
		for what, c := range map[string]struct {
			mine, other lock
			was         [2]bool
		}{
			"both are held":        {states["mine"], held, [2]bool{true, true}},
			"both were taken away": {states["free"], lock{token: 5, holder: "h", left: -hour}, [2]bool{}},
			"both are others'":     {states["theirs"], lock{attempt: string(theirs[:]), token: 6, holder: "h", left: hour}, [2]bool{}},
			"one is another's":     {states["mine"], lock{attempt: string(theirs[:]), token: 6, holder: "h", left: hour}, [2]bool{true, false}},
		} {
			e.lay(map[lockname.Name]lock{mine: c.mine, other: c.other})
			e.Check(e.on(func(q core.Querier) error {
				freed, _, err := e.leases.ReleaseMany.Run(e.Ctx, q, ids, self, false)
				for i, want := range c.was {
					if freed[i].Was != want || freed[i].Ambiguous {
						e.Errorf("%s: %d: %+v", what, i, freed[i])
					}
				}
				return err
			}))
		}
	})
}

// TestFloor checks that a new row's token is above the floor, and at least the clock.
func TestFloor(t *testing.T) {
	t.Parallel()
	run(t, func(e *env) {
		for _, floor := range []int64{0, farToken} {
			e.Must(`UPDATE `+e.table("floor")+` SET token = $1`, floor)
			for statement, grant := range map[string]func(q core.Querier) error{
				"one": func(q core.Querier) error {
					g := &e.leases.Take
					if e.leases.MakeFirst(none{}, mine) {
						g = &e.leases.Make
					}
					_, _, err := g.Run(e.Ctx, q, lockstmt.NewAttempt(mine, me, minute))
					return err
				},
				"many": func(q core.Querier) error {
					if e.d.Leases.Alone {
						_, _, err := e.leases.Take.Run(e.Ctx, q, lockstmt.NewAttempt(mine, me, minute))
						return err
					}
					g := e.leases.TakeMany
					if e.leases.MakeFirst(none{}, mine) {
						g = e.leases.MakeMany
					}
					_, _, err := g.Run(e.Ctx, q, []lockstmt.Attempt{lockstmt.NewAttempt(mine, me, minute)})
					return err
				},
			} {
				e.lay(nil)
				from := e.now()
				e.Check(e.on(grant))
				to, token := e.now(), e.rows()[mine].token
				if least, most := max(floor+1, from), max(floor+1, to); token < least || token > most {
					e.Errorf("%s, with the floor %d: the token is %d, want %d to %d", statement, floor, token, least, most)
				}
			}
		}
	})
}

// TestWhoWaits checks of whom a release says that others wait, and whom a look for rivals finds.
func TestWhoWaits(t *testing.T) {
	t.Parallel()
	run(t, func(e *env) {
		for what, w := range map[string]struct {
			name   lockname.Name
			waiter lockstmt.AttemptID
			left   time.Duration
			waits  bool
		}{
			"another process": {mine, theirs, hour, true}, "this process": {mine, self, hour, false},
			"one that is gone": {mine, theirs, -hour, false}, "for another key": {other, theirs, hour, false},
			"of another owner": {neighbours[0], theirs, hour, false},
		} {
			now := e.now()
			waiters := e.table("waiters")
			e.Must(`DELETE FROM ` + waiters)
			e.Must(`INSERT INTO `+waiters+` (owner, name, waiter, holder, waiting, expires_at) VALUES ($1, $2, $3, 'p', 1, $4)`, w.name.Owner, w.name.Row(), w.waiter[:], now+w.left.Microseconds())
			e.Check(e.on(func(q core.Querier) error {
				found, err := e.leases.Rivals.Run(e.Ctx, q, []lockname.Name{mine}, self)
				if found[mine] != w.waits {
					e.Errorf("%s: rivals: %v", what, found)
				}
				return err
			}))
			e.lay(map[lockname.Name]lock{mine: states["mine"]})
			e.Check(e.on(func(q core.Querier) error {
				freed, err := e.leases.Release.Run(e.Ctx, q, lockstmt.NewAttempt(mine, me, minute))
				if want := (lockstmt.Freed{Was: true, Notify: w.waits, Alone: !w.waits}); e.d.Leases.ReleaseTells && freed != want {
					e.Errorf("%s: release: %+v", what, freed)
				}
				return err
			}))
			if e.d.Leases.Alone {
				continue
			}
			e.lay(map[lockname.Name]lock{mine: states["mine"]})
			e.Check(e.on(func(q core.Querier) error {
				freed, _, err := e.leases.ReleaseMany.Run(e.Ctx, q, []lockstmt.TermID{{Name: mine, Attempt: me, Token: 5}}, self, false)
				if want := (lockstmt.Freed{Was: true, Notify: w.waits, Alone: !w.waits}); e.d.Leases.ReleaseTells && freed[0] != want {
					e.Errorf("%s: release many: %+v", what, freed)
				}
				return err
			}))
		}
	})
}

// TestLeaseReads checks the statements that read leases.
func TestLeaseReads(t *testing.T) {
	t.Parallel()
	run(t, func(e *env) {
		for state, l := range states {
			rows := map[lockname.Name]lock{mine: l}
			for _, n := range neighbours {
				rows[n] = lock{attempt: string(me[:]), token: 77, holder: "neighbour", left: 3 * hour}
			}
			e.lay(rows)
			live := strings.Contains(state, "mine") && l.left > 0
			e.Check(e.on(func(q core.Querier) error {
				left, err := e.leases.Remaining.Run(e.Ctx, q, []lockstmt.TermID{{Name: mine, Attempt: me}})
				if d := left[me]; live != (d > hour-minute && d <= hour) || !live && d > 0 {
					e.Errorf("%s: remaining %v", state, left)
				}
				return err
			}))
			e.Check(e.on(func(q core.Querier) error {
				found, err := e.leases.Waits.Run(e.Ctx, q, []lockname.Name{mine})
				s := found[mine]
				if held := l.left > 0; len(found) != 1 || s.Token != l.token || held != (s.Left > hour-minute) || s.Left > hour || held && !bytes.Equal(s.Attempt, []byte(l.attempt)) {
					e.Errorf("%s: waits %+v", state, found)
				}
				return err
			}))
			e.Check(e.on(func(q core.Querier) error {
				s, there, err := e.tables.Look().Run(e.Ctx, q, mine)
				if held := l.left > 0; !there || s.Token != l.token || held != (s.Left > hour-minute) || s.Left > hour || held && s.Holder != l.holder {
					e.Errorf("%s: look %+v", state, s)
				}
				return err
			}))
		}
	})
}

// TestLeaseGuard checks which term a guard finds.
func TestLeaseGuard(t *testing.T) {
	t.Parallel()
	run(t, func(e *env) {
		var store []byte
		e.Check(e.SQL.QueryRowContext(e.Ctx, `SELECT store FROM `+e.table("floor")).Scan(&store))
		guard := e.tables.LeaseGuard()
		for what, c := range map[string]struct {
			state   string
			token   int64
			attempt lockstmt.AttemptID
			store   string
			want    lockstmt.GuardResult
		}{
			"its term":              {"mine", 5, me, string(store), lockstmt.Guarded},
			"that of any holder":    {"mine", 5, lockstmt.AttemptID{}, string(store), lockstmt.Guarded},
			"a later term":          {"mine", 4, me, string(store), lockstmt.Over},
			"an earlier term":       {"mine", 6, me, string(store), lockstmt.Over},
			"a term that ended":     {"free", 5, me, string(store), lockstmt.Over},
			"an ended one of any":   {"free", 5, lockstmt.AttemptID{}, string(store), lockstmt.Over},
			"resumed by others":     {"theirs", 5, me, string(store), lockstmt.Over},
			"that of others or any": {"theirs", 5, lockstmt.AttemptID{}, string(store), lockstmt.Guarded},
			"no row":                {"", 5, me, string(store), lockstmt.Over},
			"other tables":          {"mine", 5, me, strings.Repeat("x", 16), lockstmt.OtherStore},
			// Only the row's term counts, not its end: the guard's lock keeps others away.
			"a term that is over": {"mine, over", 5, me, string(store), lockstmt.Guarded},
		} {
			rows := map[lockname.Name]lock{}
			for _, n := range neighbours {
				rows[n] = states["mine"]
			}
			if c.state != "" {
				rows[mine] = states[c.state]
			}
			e.lay(rows)
			e.Check(e.on(func(q core.Querier) error {
				got, err := guard.Run(e.Ctx, q, lockstmt.TermID{Name: mine, Attempt: c.attempt, Token: c.token}, c.store)
				if got != c.want {
					e.Errorf("%s: %v, want %v", what, got, c.want)
				}
				return err
			}))
		}
	})
}
