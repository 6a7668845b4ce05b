package simulation

import (
	"bytes"
	"slices"
	"strings"
)

// What the statements of SQLite's tickets do to their tables: that of the tickets, and the rows of their keys in that of the
// locks. TestTicketsAreSQLite compares it with SQLite, statement by statement.

// The columns of a ticket, in the order of the table.
const (
	_ = iota // the owner
	ticketName
	ticketToken
	ticketAttempt
	ticketUnits
	ticketCapacity
	ticketHolder
	ticketQueued
	ticketGranted
	ticketExpires
)

// The columns of the row of a key that are not always the same: it is always free.
const (
	_ = iota // the owner
	anchorName
	anchorToken
	anchorExpires
)

// ticketWrites are the statements that need the write lock.
var ticketWrites = map[string]bool{
	"locks.anchor": true, "locks.draw": true, "locks.enter": true, "locks.confirm": true, "locks.clear": true, "locks.leave": true, "locks.renew": true,
}

// askTickets runs a statement on the state of its transaction.
func (s *state) askTickets(name, text string, args []any, now int64) (a answer, known bool) {
	switch name {
	case "anchor":
		return s.makeAnchor(args, now), true
	case "draw":
		return s.draw(args, now), true
	case "enter":
		return s.enter(args, now), true
	case "look":
		return s.lookAnchor(args), true
	case "look in line":
		return s.lookInLine(args, now), true
	case "places":
		return s.places(args, now), true
	case "remaining":
		return s.remaining(args, now), true
	case "dead":
		return s.dead(args, now), true
	case "confirm":
		return s.change(func(t record) record { return confirmed(t, args, now) }), true
	case "renew":
		return s.renewTickets(args, now), true
	case "clear":
		return s.remove(func(t record) bool {
			return same(t[ticketName], args[1]) && slices.Contains(args[2:], t[ticketToken]) && expired(t, now)
		}), true
	case "leave":
		if strings.Contains(text, " IN (") {
			names, attempts := halves(args[1:])
			return s.remove(func(t record) bool { return has(names, blob(t[ticketName])) && has(attempts, blob(t[ticketAttempt])) }), true
		}
		return s.remove(func(t record) bool {
			return same(t[ticketName], args[1]) && t[ticketToken] == args[2] && same(t[ticketAttempt], args[3])
		}), true
	}
	return a, false
}

func same(a, b any) bool { return bytes.Equal(blob(a), blob(b)) }

func expired(t record, now int64) bool { return as[int64](t[ticketExpires]) <= now }

// newTickets is a store of tickets.
func newTickets() *records {
	r := newRecords()
	r.committed.anchors = map[string]record{}
	return r
}

func (s *state) makeAnchor(args []any, now int64) answer {
	name := string(blob(args[1]))
	if s.anchors[name] != nil {
		return answer{}
	}
	s.anchors[name], s.wrote = record{args[0], args[1], int64(0), now}, true // the floor is not raised
	return answer{affected: 1}
}

func (s *state) draw(args []any, now int64) answer {
	name := string(blob(args[2]))
	row := slices.Clone(s.anchors[name])
	if row == nil {
		return answer{}
	}
	row[anchorToken], row[anchorExpires] = max(as[int64](row[anchorToken])+1, now)+as[int64](whole(args[0]))-1, now
	s.anchors[name], s.wrote = row, true
	return answer{1, [][]any{{row[anchorToken]}}}
}

// line returns the tickets of a key, which are in the order of their tokens.
func (s *state) line(name any) (list []record) {
	for _, t := range s.tickets {
		if same(t[ticketName], name) {
			list = append(list, t)
		}
	}
	return list
}

// units are those of all tickets of a list, and of those that last.
func units(list []record, now int64) (all, live int64) {
	for _, t := range list {
		n := as[int64](t[ticketUnits])
		if all += n; !expired(t, now) {
			live += n
		}
	}
	return all, live
}

func (s *state) enter(args []any, now int64) answer {
	units0, capacity := as[int64](whole(args[4])), as[int64](whole(args[5]))
	line := s.line(args[1])
	before, _ := units(line, now)
	room := before+units0 <= capacity
	if slices.ContainsFunc(line, func(t record) bool { return t[ticketCapacity] != capacity }) || whole(args[13]) != int64(0) && !room {
		return answer{}
	}
	t := record{args[0], args[1], args[2], args[3], units0, capacity, args[6], now, nil, now + as[int64](args[9])}
	state := int64(1)
	if room {
		t[ticketGranted], state = now, 2
	}
	s.tickets, s.wrote = append(slices.Clip(s.tickets), t), true
	return answer{1, [][]any{{state}}}
}

// lookAnchor is LookLease on the row of a key.
func (s *state) lookAnchor(args []any) answer {
	row := s.anchors[string(blob(args[1]))]
	if row == nil {
		return answer{}
	}
	return answer{rows: [][]any{{nil, row[anchorToken], int64(0), ""}}}
}

func (s *state) lookInLine(args []any, now int64) answer {
	line := s.line(args[1])
	if len(line) == 0 {
		return answer{}
	}
	first := line[0]
	if i := slices.IndexFunc(line, func(t record) bool { return !expired(t, now) }); i >= 0 {
		first = line[i]
	}
	before, live := units(line, now)
	return answer{rows: [][]any{{first[ticketHolder], first[ticketToken], first[ticketCapacity], max(0, as[int64](first[ticketExpires])-now), before, live}}}
}

func (s *state) places(args []any, now int64) (a answer) {
	attempts := blobs(args[3:])
	for _, t := range s.tickets {
		if !has(attempts, blob(t[ticketAttempt])) {
			continue
		}
		line := s.line(t[ticketName])
		at := slices.IndexFunc(line, func(o record) bool { return o[ticketToken] == t[ticketToken] })
		before, live := units(line[:at], now)
		granted := int64(0)
		if t[ticketGranted] != nil {
			granted = 1
		}
		a.rows = append(a.rows, []any{t[ticketAttempt], as[int64](t[ticketExpires]) - now, granted, before, live, int64(at), line[0][ticketAttempt]})
	}
	return a
}

func (s *state) remaining(args []any, now int64) (a answer) {
	names, attempts := halves(args[1:])
	for _, t := range s.tickets {
		if has(names, blob(t[ticketName])) && has(attempts, blob(t[ticketAttempt])) {
			a.rows = append(a.rows, []any{t[ticketAttempt], as[int64](t[ticketExpires]) - now})
		}
	}
	return a
}

func (s *state) dead(args []any, now int64) (a answer) {
	for _, t := range s.line(args[1]) {
		if expired(t, now) && len(a.rows) < 100 {
			a.rows = append(a.rows, []any{t[ticketToken]})
		}
	}
	return a
}

// confirmed returns the ticket as the statement leaves it; nil if it is another one's, or over.
func confirmed(t record, args []any, now int64) record {
	if !same(t[ticketName], args[2]) || t[ticketToken] != args[3] || !same(t[ticketAttempt], args[4]) || expired(t, now) {
		return nil
	}
	t = slices.Clone(t)
	if t[ticketGranted] == nil {
		t[ticketGranted] = now
	}
	t[ticketExpires] = max(as[int64](t[ticketExpires]), now+as[int64](args[0]))
	return t
}

func (s *state) renewTickets(args []any, now int64) (a answer) {
	names, attempts := halves(args[2:])
	var rows [][]any
	a = s.change(func(t record) record {
		if !has(names, blob(t[ticketName])) || !has(attempts, blob(t[ticketAttempt])) || expired(t, now) {
			return nil
		}
		t = slices.Clone(t)
		t[ticketExpires] = max(as[int64](t[ticketExpires]), now+as[int64](args[0]))
		rows = append(rows, []any{t[ticketAttempt], t[ticketExpires]})
		return t
	})
	a.rows = rows
	return a
}

// change puts what is not nil in the place of a ticket.
func (s *state) change(to func(record) record) (a answer) {
	tickets := slices.Clone(s.tickets)
	for i, t := range tickets {
		if t = to(t); t != nil {
			tickets[i] = t
			a.affected++
		}
	}
	s.tickets, s.wrote = tickets, s.wrote || a.affected > 0
	return a
}

func (s *state) remove(is func(record) bool) answer {
	tickets := slices.DeleteFunc(slices.Clone(s.tickets), is)
	n := int64(len(s.tickets) - len(tickets))
	s.tickets, s.wrote = tickets, s.wrote || n > 0
	return answer{affected: n}
}
