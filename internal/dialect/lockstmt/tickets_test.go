package lockstmt_test

import (
	"bytes"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/dialect/lockstmt"
	"github.com/holdfast-go/holdfast/internal/lockname"
)

// ticket is a row of the tickets.
type ticket struct {
	name     lockname.Name
	token    int64
	attempt  lockstmt.AttemptID
	granted  bool
	units    int
	capacity int
	left     time.Duration
}

// place is the key of a ticket's row.
type place struct {
	name  lockname.Name
	token int64
}

type seenTicket struct {
	attempt                  string
	units, capacity          int
	queued, granted, expires int64
}

func (e *env) layTickets(all ...ticket) {
	e.Helper()
	table := e.table("tickets")
	e.Must(`DELETE FROM ` + table)
	for _, c := range all {
		now := e.now()
		var granted any
		if c.granted {
			granted = now
		}
		if c.capacity == 0 {
			c.units, c.capacity = 1, 1
		}
		e.Must(`INSERT INTO `+table+` (owner, name, token, attempt, units, capacity, holder, queued_at, granted_at, expires_at) VALUES ($1, $2, $3, $4, $5, $6, 'h', $7, $8, $9)`,
			c.name.Owner, c.name.Row(), c.token, c.attempt[:], c.units, c.capacity, now, granted, now+c.left.Microseconds())
	}
}

func (e *env) tickets() map[place]seenTicket {
	e.Helper()
	rows, err := e.SQL.QueryContext(e.Ctx, `SELECT owner, name, token, attempt, units, capacity, queued_at, COALESCE(granted_at, 0), expires_at FROM `+e.table("tickets"))
	e.Check(err)
	defer func() { _ = rows.Close() }()
	all := map[place]seenTicket{}
	for rows.Next() {
		var owner string
		var row, attempt []byte
		var s seenTicket
		var token int64
		e.Check(rows.Scan(&owner, &row, &token, &attempt, &s.units, &s.capacity, &s.queued, &s.granted, &s.expires))
		s.attempt = string(attempt)
		n, _ := lockname.Parse(owner, row)
		all[place{n, token}] = s
	}
	e.Check(rows.Err())
	return all
}

// strangers are tickets beside the one with the token 5 of mine: of another name, owner, and of the same key.
func strangers(attempt lockstmt.AttemptID, left time.Duration) []ticket {
	all := []ticket{{name: mine, token: 6, attempt: id(6), left: left}, {name: mine, token: 4, attempt: id(4), left: left}}
	for i, n := range neighbours {
		of := attempt
		if n.Owner == mine.Owner { // an owner has no attempt twice
			of = id(byte(10 + i))
		}
		all = append(all, ticket{name: n, token: 5, attempt: of, left: left})
	}
	return all
}

func released(token int64, attempt lockstmt.AttemptID) lockstmt.Attempt {
	a := lockstmt.NewAttempt(mine, attempt, hour)
	a.Token = token
	return a
}

// TestTicketStatements checks each statement that writes one ticket, on a ticket of each state.
func TestTicketStatements(t *testing.T) {
	t.Parallel()
	run(t, func(e *env) {
		d := &e.d.Tickets
		confirm := e.tables.Compile("confirm", d.Confirm)
		leave := e.tables.List("leave", d.Leave, 1, 1)
		clears := e.tables.Compile("clear", strings.ReplaceAll(d.Clear, "{tokens}", "$2"))
		sql := e.tables.Tickets()
		affects := func(stmt core.Stmt, args func() []any) func(q core.Querier) (bool, error) {
			return func(q core.Querier) (bool, error) {
				r, err := stmt.Exec(e.Ctx, q, args()...)
				return r.Affected > 0, err
			}
		}
		type outcome int
		const (
			nothing outcome = iota
			gone
			lasts2 // two hours from now
			same   // as long as before, and confirmed
		)
		of := func(c ticket) bool { return c.attempt == me && c.token == 5 }
		renew := func(ttl time.Duration) func(q core.Querier) (bool, error) {
			return func(q core.Querier) (bool, error) {
				renewed, err := sql.Renew.Run(e.Ctx, q, ttl, []lockstmt.TermID{{Name: mine, Attempt: me}})
				return renewed[me], err
			}
		}
		for statement, s := range map[string]struct {
			run      func(q core.Querier) (bool, error)
			want     func(c ticket) outcome
			confirms bool
			quiet    bool // what it did not change it does not count, on some engines
		}{
			"confirm": {affects(confirm, func() []any { return mine.Args(int64(5), me[:], (2 * hour).Microseconds()) }), func(c ticket) outcome {
				if of(c) && c.left > 0 {
					return lasts2
				}
				return nothing
			}, true, false},
			"confirm for less": {affects(confirm, func() []any { return mine.Args(int64(5), me[:], minute.Microseconds()) }), func(c ticket) outcome {
				if of(c) && c.left > 0 {
					return same
				}
				return nothing
			}, true, true},
			"release": {func(q core.Querier) (bool, error) {
				was, _, err := sql.Release.Run(e.Ctx, q, released(5, me), "c", "p")
				return was, err
			}, func(c ticket) outcome {
				if of(c) {
					return gone
				}
				return nothing
			}, false, false},
			"leave": {affects(leave, func() []any { return mine.Args(me[:]) }), func(c ticket) outcome {
				if c.attempt == me {
					return gone
				}
				return nothing
			}, false, false},
			"clear": {affects(clears, func() []any { return mine.Args(int64(5)) }), func(c ticket) outcome {
				if c.token == 5 && c.left < 0 {
					return gone
				}
				return nothing
			}, false, false},
			"renew": {renew(2 * hour), func(c ticket) outcome {
				if c.attempt == me && c.left > 0 {
					return lasts2
				}
				return nothing
			}, false, false},
			"renew for less": {renew(minute), func(c ticket) outcome {
				if c.attempt == me && c.left > 0 {
					return same
				}
				return nothing
			}, false, true},
		} {
			for state, c := range map[string]ticket{
				"waits":            {mine, 5, me, false, 1, 1, hour},
				"granted":          {mine, 5, me, true, 1, 1, hour},
				"waits, over":      {mine, 5, me, false, 1, 1, -hour},
				"granted, over":    {mine, 5, me, true, 1, 1, -hour},
				"another's":        {mine, 5, theirs, true, 1, 1, hour},
				"another's, over":  {mine, 5, theirs, true, 1, 1, -hour},
				"another place":    {mine, 7, me, true, 1, 1, hour},
				"not another's":    {mine, 7, theirs, true, 1, 1, hour},
				"long gone":        {mine, 7, theirs, true, 1, 1, -hour},
				"another, at once": {mine, 8, me, false, 1, 1, -hour},
			} {
				what := statement + ": " + state
				e.layTickets(append(strangers(me, c.left), c)...)
				before, from := e.tickets(), e.now()
				var done bool
				if err := e.on(func(q core.Querier) (err error) { done, err = s.run(q); return err }); err != nil {
					e.Errorf("%s: %v", what, err)
					continue
				}
				to, after, want := e.now(), e.tickets(), s.want(c)
				if done != (want != nothing) && (done || !s.quiet || want != same) {
					e.Errorf("%s: done is %v", what, done)
				}
				at := place{mine, c.token}
				was, is := before[at], after[at]
				switch want {
				case gone:
					if _, there := after[at]; there {
						e.Errorf("%s: it is there", what)
					}
				case nothing:
					if is != was {
						e.Errorf("%s: it was %+v and is %+v", what, was, is)
					}
				case lasts2, same:
					if c.granted != (is.granted == was.granted) && s.confirms || s.confirms && is.granted == 0 || !s.confirms && is.granted != was.granted {
						e.Errorf("%s: granted at %d, before at %d", what, is.granted, was.granted)
					}
					ttl := (2 * hour).Microseconds()
					if want == same && is.expires != was.expires || want == lasts2 && (is.expires < from+ttl || is.expires > to+ttl) {
						e.Errorf("%s: expired at %d and does at %d, called at %d", what, was.expires, is.expires, from)
					}
				}
				delete(before, at)
				delete(after, at)
				if first := (place{mine, 4}); d.ReleaseGrants && statement == "release" && want == gone && c.left > 0 { // see TestReleaseGrants
					delete(before, first)
					delete(after, first)
				}
				if !maps.Equal(before, after) {
					e.Errorf("%s: other tickets were\n%v and are\n%v", what, before, after)
				}
			}
		}
	})
}

// TestTicketsEnter checks what a ticket finds when it enters: the units before it, and tickets of another
// capacity.
func TestTicketsEnter(t *testing.T) {
	t.Parallel()
	run(t, func(e *env) {
		sql := e.tables.Tickets()
		for what, c := range map[string]struct {
			before []ticket
			units  int
			now    bool
			want   int64
		}{
			"alone":                         {nil, 1, false, 2},
			"there is room":                 {[]ticket{{mine, 3, theirs, true, 1, 3, hour}}, 2, false, 2},
			"there is none":                 {[]ticket{{mine, 3, theirs, true, 2, 3, hour}}, 2, false, 1},
			"there is none, and at once":    {[]ticket{{mine, 3, theirs, true, 2, 3, hour}}, 2, true, 0},
			"there is room at once":         {[]ticket{{mine, 3, theirs, true, 2, 3, hour}}, 1, true, 2},
			"one that is over takes room":   {[]ticket{{mine, 3, theirs, true, 2, 3, -hour}}, 2, false, 1},
			"another capacity":              {[]ticket{{mine, 3, theirs, true, 1, 4, hour}}, 1, false, 0},
			"another name, another owner":   {[]ticket{{other, 3, theirs, true, 3, 3, hour}, {neighbours[0], 3, theirs, true, 4, 4, hour}}, 3, true, 2},
			"two of them, and exactly full": {[]ticket{{mine, 3, theirs, true, 1, 3, hour}, {mine, 4, me, false, 1, 3, hour}}, 1, false, 2},
		} {
			e.layTickets(c.before...)
			before, from := e.tickets(), e.now()
			a := lockstmt.NewAttempt(mine, id(3), hour)
			a.Token = 50
			var got int64
			e.Check(e.on(func(q core.Querier) (err error) {
				got, err = sql.Enter.Run(e.Ctx, q, mine, a, c.units, 3, "h", c.now)
				return err
			}))
			to, after := e.now(), e.tickets()
			if got != c.want {
				e.Errorf("%s: %d, want %d", what, got, c.want)
			}
			at := place{mine, 50}
			is, there := after[at]
			ttl := hour.Microseconds()
			if there != (c.want > 0) || there && ((is.granted >= from) != (c.want == 2) || is.attempt != string(a.ID[:]) || is.units != c.units || is.capacity != 3 ||
				is.queued < from || is.queued > to || is.expires < from+ttl || is.expires > to+ttl) {
				e.Errorf("%s: %v %+v", what, there, is)
			}
			if delete(after, at); !maps.Equal(before, after) {
				e.Errorf("%s: other tickets were %v and are %v", what, before, after)
			}
		}
	})
}

// TestDraw checks that new places come after all old ones, and at least at the clock.
func TestDraw(t *testing.T) {
	t.Parallel()
	run(t, func(e *env) {
		draw := e.tables.Tickets().Draw
		makes := e.tables.Compile("anchor", e.d.Tickets.Make)
		drawn := func(n int) (last int64) {
			e.Check(e.on(func(q core.Querier) (err error) { last, err = draw.Run(e.Ctx, q, mine.Args(n)...); return err }))
			return last
		}
		e.lay(nil)
		if last := drawn(1); last != 0 {
			e.Errorf("without a row: %d", last)
		}
		e.Must(`UPDATE `+e.table("floor")+` SET token = $1`, 41)
		anchor := func() {
			e.Check(e.on(func(q core.Querier) error { _, err := makes.Exec(e.Ctx, q, mine.Args()...); return err }))
		}
		anchor()
		if row := e.rows()[mine]; row.token != 41 || row.attempt != "" {
			e.Errorf("a new row: %+v", row)
		}
		for _, token := range []int64{5, farToken} {
			for _, n := range []int{1, 3} {
				rows := map[lockname.Name]lock{mine: {token: token, holder: "h", left: -hour}}
				for _, other := range neighbours {
					rows[other] = lock{token: token, holder: "h", left: -hour}
				}
				e.lay(rows)
				anchor() // changes nothing
				before, from := e.rows(), e.now()
				last, to := drawn(n), e.now()
				add := int64(n - 1)
				if least, most := max(token+1, from)+add, max(token+1, to)+add; last < least || last > most {
					e.Errorf("%d after %d: %d, want %d to %d", n, token, last, least, most)
				}
				after := e.rows()
				// The row is used now, and the reaper leaves it alone for a while.
				if row := after[mine]; row.token != last || row.attempt != "" || row.expires < from || row.expires > to {
					e.Errorf("%d after %d: %d, and the row is %+v", n, token, last, row)
				}
				delete(before, mine)
				if delete(after, mine); !maps.Equal(before, after) {
					e.Errorf("other rows were %v and are %v", before, after)
				}
			}
		}
	})
}

// TestTicketReads checks the statements that read tickets.
func TestTicketReads(t *testing.T) {
	t.Parallel()
	run(t, func(e *env) {
		d := &e.d.Tickets
		var store []byte
		e.Check(e.SQL.QueryRowContext(e.Ctx, `SELECT store FROM `+e.table("floor")).Scan(&store))
		queue := []ticket{
			{mine, 3, id(3), true, 2, 4, -hour}, {mine, 4, id(4), true, 1, 4, hour}, {mine, 5, me, false, 1, 4, hour}, {mine, 6, id(6), false, 3, 4, -hour},
		}
		for i, n := range neighbours {
			queue = append(queue, ticket{n, 2, id(byte(10 + i)), true, 4, 4, 2 * hour})
			of := me
			if n.Owner == mine.Owner {
				of = id(byte(20 + i))
			}
			queue = append(queue, ticket{n, 9, of, true, 4, 4, -hour})
		}
		e.layTickets(queue...)

		// The standing of a ticket: what is before it, and who is first.
		places := e.tables.Compile("places", strings.ReplaceAll(d.Places, "{attempts}", "$1"))
		e.Check(e.on(func(q core.Querier) error {
			rows, err := places.Query(e.Ctx, q, "a", me[:])
			if err != nil {
				return err
			}
			type standing struct {
				left, confirmed, before, live, tickets int64
				first                                  string
			}
			all, err := core.Collect(rows, func(row core.Row) (s standing, err error) {
				var attempt, first []byte
				err = row.Scan(&attempt, &s.left, &s.confirmed, &s.before, &s.live, &s.tickets, &first)
				s.first = string(first)
				s.left /= minute.Microseconds()
				return s, err
			})
			three := id(3)
			if want := []standing{{59, 0, 3, 1, 2, string(three[:])}}; !slices.Equal(all, want) {
				e.Errorf("places: %+v, want %+v", all, want)
			}
			return err
		}))

		// The holder, among the tickets that are not gone.
		look := e.tables.Compile("look in line", d.Look)
		e.Check(e.on(func(q core.Querier) error {
			var holder string
			var token, capacity, left, units, live int64
			_, err := look.QueryRow(e.Ctx, q, []any{&holder, &token, &capacity, &left, &units, &live}, mine.Args()...)
			if token != 4 || capacity != 4 || left <= 0 || units != 7 || live != 2 {
				e.Errorf("look: token %d of capacity %d, %d µs left, %d units, %d live", token, capacity, left, units, live)
			}
			return err
		}))

		dead := e.tables.Compile("dead", d.Dead)
		e.Check(e.on(func(q core.Querier) error {
			rows, err := dead.Query(e.Ctx, q, mine.Args()...)
			if err != nil {
				return err
			}
			tokens, err := core.Collect(rows, func(row core.Row) (n int64, err error) {
				err = row.Scan(&n)
				return n, err
			})
			if !slices.Equal(tokens, []int64{3, 6}) {
				e.Errorf("dead: %v", tokens)
			}
			return err
		}))

		e.Check(e.on(func(q core.Querier) error {
			left, err := e.tables.Tickets().Remaining.Run(e.Ctx, q, []lockstmt.TermID{{Name: mine, Attempt: me}})
			if len(left) != 1 || left[me] < 59*minute || left[me] > hour {
				e.Errorf("remaining: %v", left)
			}
			return err
		}))

		guard := e.tables.TicketGuard()
		for what, c := range map[string]struct {
			token int64
			store string
			want  lockstmt.GuardResult
		}{
			"granted": {4, string(store), lockstmt.Guarded}, "waits": {5, string(store), lockstmt.Over}, "none": {7, string(store), lockstmt.Over},
			"of another key": {2, string(store), lockstmt.Over}, "other tables": {4, strings.Repeat("x", 16), lockstmt.OtherStore},
		} {
			e.Check(e.on(func(q core.Querier) error {
				got, err := guard.Run(e.Ctx, q, lockstmt.TermID{Name: mine, Token: c.token}, c.store)
				if got != c.want {
					e.Errorf("guard: %s: %v, want %v", what, got, c.want)
				}
				return err
			}))
		}
	})
}

// TestReleaseGrants checks which tickets a release grants: those that have room without it, in the order of the queue,
// and that it moves no expiry.
func TestReleaseGrants(t *testing.T) {
	t.Parallel()
	run(t, func(e *env) {
		if !e.d.Tickets.ReleaseGrants {
			return
		}
		own := func(units int) ticket { return ticket{mine, 2, me, true, units, 3, hour} }
		waits := func(token int64, units int, left time.Duration) ticket {
			return ticket{mine, token, id(byte(30 + token)), false, units, 3, left}
		}
		holds := func(token int64, units int, left time.Duration) ticket {
			return ticket{mine, token, id(byte(30 + token)), true, units, 3, left}
		}
		for what, c := range map[string]struct {
			queue   []ticket
			granted []int64
			told    int64 // the first that waits, if none is granted
		}{
			"nobody waits":                   {[]ticket{own(3)}, nil, 0},
			"one waits":                      {[]ticket{own(3), waits(3, 3, hour)}, []int64{3}, 0},
			"the first of two":               {[]ticket{own(3), waits(3, 3, hour), waits(4, 1, hour)}, []int64{3}, 0},
			"all that have room":             {[]ticket{own(3), waits(3, 1, hour), waits(4, 2, hour), waits(5, 1, hour)}, []int64{3, 4}, 0},
			"none overtakes":                 {[]ticket{own(1), holds(3, 2, hour), waits(4, 2, hour), waits(5, 1, hour)}, nil, 4},
			"another still holds":            {[]ticket{own(1), holds(3, 1, hour), waits(4, 3, hour)}, nil, 4},
			"one in front that has room":     {[]ticket{own(3), waits(1, 1, hour), waits(3, 2, hour)}, []int64{1, 3}, 0},
			"an expired one is in the way":   {[]ticket{own(3), waits(3, 3, -hour), waits(4, 3, hour)}, nil, 4},
			"an expired holder is":           {[]ticket{own(1), holds(3, 2, -hour), waits(4, 2, hour)}, nil, 4},
			"an expired one beside it":       {[]ticket{own(3), waits(3, 1, -hour), waits(4, 2, hour)}, []int64{4}, 0},
			"it was not there":               {[]ticket{holds(1, 3, -hour), waits(3, 3, hour)}, nil, 0},
			"neighbours":                     {[]ticket{own(3), {neighbours[0], 3, theirs, false, 3, 3, hour}}, nil, 0},
			"it had expired, and has no row": {[]ticket{waits(3, 3, hour)}, nil, 0},
		} {
			e.layTickets(c.queue...)
			before := e.tickets()
			_, had := before[place{mine, 2}]
			var was bool
			var next []lockstmt.Next
			e.Check(e.on(func(q core.Querier) (err error) {
				was, next, err = e.tables.Tickets().Release.Run(e.Ctx, q, released(2, me), "c", "p")
				return err
			}))
			if was != had {
				e.Errorf("%s: it was there: %t", what, was)
			}
			var granted []int64
			after := e.tickets()
			delete(before, place{mine, 2})
			for at, is := range after {
				if was := before[at]; is.granted != was.granted {
					granted = append(granted, at.token)
					is.granted = was.granted
				}
				after[at] = is
			}
			if slices.Sort(granted); !slices.Equal(granted, c.granted) {
				e.Errorf("%s: %v were granted, want %v", what, granted, c.granted)
			}
			if !maps.Equal(before, after) {
				e.Errorf("%s: the tickets were %v and are %v", what, before, after)
			}
			var want []lockstmt.Next
			for _, token := range append(granted, c.told) {
				if token > 0 {
					of := id(byte(30 + token))
					want = append(want, lockstmt.Next{Attempt: of[:], Granted: token != c.told})
				}
			}
			slices.SortFunc(next, func(a, b lockstmt.Next) int { return bytes.Compare(a.Attempt, b.Attempt) })
			if !slices.EqualFunc(next, want, func(a, b lockstmt.Next) bool { return a.Granted == b.Granted && bytes.Equal(a.Attempt, b.Attempt) }) {
				e.Errorf("%s: it returned %v, want %v", what, next, want)
			}
		}
	})
}
