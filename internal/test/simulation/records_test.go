package simulation

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// records is what the statements of SQLite's records do to their table, and an effect to its own, in memory and on a clock that the
// caller gives; and those of staged operations and of tickets to theirs. TestRecordsAreSQLite compares it with SQLite, statement by statement, and TestStoreIsEachEngine with the statements
// of each engine.
type records struct {
	committed state
	commits   int  // that wrote a row
	writer    *txn // SQLite has one at a time
	log       []logged
	logs      bool // keep it
}

// logged is a statement that was run, to be run again.
type logged struct {
	session    *session
	inTx       bool
	name, text string
	args       []any
	now        int64
}

// state is what a transaction sees.
type state struct {
	rows    map[string]record  // by the hash of the key
	effects map[string][]int64 // by key
	ops     map[string]record  // staged operations, by the hash of the key
	steps   map[string]record  // by hash and name
	anchors map[string]record  // of lines, by name; nil in scenes without: a new map takes from the seed's chance
	tickets []record           // in the order of their tokens
	wrote   bool               // since it began, a row that was different
}

// record is a row, with its columns in the order of the table. It does not change.
type record []any

const (
	_ = iota // the owner
	ofHash
	_ // namespace
	_ // operation
	ofKey
	ofPrint
	ofPrintVersion
	ofAttempt
	ofState
	ofResult
	ofCodec
	ofBusiness
	ofCreated
	ofFinished
	ofResultEnd
	ofKeyEnd
	ofHolder
	ofProgram
	ofRequest
	width
)

// The states of a record.
const (
	claimedState   = int64(1)
	succeededState = int64(2)
	rejectedState  = int64(3)
)

// session is the server's side of a connection.
type session struct {
	txn        *txn         // nil: each statement commits on its own
	onCommit   func() int32 // SQLite's hooks
	onRollback func()
}

// txn is an open transaction.
type txn struct {
	state

	begun bool // it has read, and sees what was committed then
	at    int  // the number of commits then
	saved []savepoint
}

type savepoint struct {
	name string
	was  state
}

func newRecords() *records {
	return &records{committed: state{rows: map[string]record{}, effects: map[string][]int64{}, ops: map[string]record{}, steps: map[string]record{}}}
}

func (s *state) clone() state {
	return state{maps.Clone(s.rows), maps.Clone(s.effects), maps.Clone(s.ops), maps.Clone(s.steps), maps.Clone(s.anchors), s.tickets, s.wrote}
}

// writes reports whether a statement needs the only write lock.
func writes(name string) bool {
	switch name {
	case "records.claim", "records.renew", "records.finish", "effect", "effect.undo":
		return true
	}
	return stagedWrites[name] || ticketWrites[name]
}

// busy reports whether another connection has the write lock that a statement needs.
func (r *records) busy(c *session, name string) bool {
	return writes(name) && r.writer != nil && r.writer != c.txn
}

// run runs a statement of records, with its arguments in the order of SQLite's question marks. known is false for another
// statement.
func (r *records) run(c *session, name, text string, args []any, now int64) (a answer, known bool, err error) {
	if r.logs {
		r.log = append(r.log, logged{c, c.txn != nil, name, text, slices.Clone(args), now})
	}
	switch name {
	case "commit":
		if err = r.commit(c); r.logs && err == coded(531) { //nolint:errorlint // it is ours
			r.log[len(r.log)-1].name = "rollback" // the hook is not there when it runs again
		}
		return a, true, err
	case "rollback":
		return a, true, r.rollback(c)
	case "savepoint", "release", "rollback to":
		return a, true, c.save(name, text[strings.LastIndexByte(text, ' ')+1:])
	}
	if r.busy(c, name) {
		return a, true, errBusy
	}
	t := c.txn
	if t == nil {
		t = &txn{}
	}
	switch {
	case !t.begun:
		t.state, t.at, t.begun = r.committed.clone(), r.commits, true
	case writes(name) && r.writer != t && t.at != r.commits:
		return a, true, coded(517) // its snapshot is older than a commit
	}
	if a, known, err = t.ask(name, text, args, now); !known || !writes(name) || err != nil && c.txn == nil {
		return a, known, err
	}
	if r.writer = t; c.txn == nil {
		c.txn = t
		if err := r.commit(c); err != nil {
			return answer{}, true, err
		}
	}
	return a, true, err
}

// ask runs a statement on the state of its transaction.
func (s *state) ask(name, text string, args []any, now int64) (a answer, known bool, err error) {
	switch of, rest, _ := strings.Cut(name, "."); of {
	case "staged":
		return s.askStaged(rest, args, now)
	case "locks":
		a, known = s.askTickets(rest, text, args, now)
		return a, known, nil
	case "operators":
		return s.show(args, now), strings.Contains(text, "staged"), nil
	}
	switch update := strings.HasPrefix(text, "UPDATE"); name {
	case "records.look", "records.lock":
		return s.look(args, now), true, nil
	case "records.claim":
		if update {
			return answer{affected: int64(len(s.of(args[1])))}, true, nil
		}
		return s.insert(record{
			args[0], args[1], args[2], args[3], args[4], args[5], whole(args[6]), args[7], claimedState,
			nil, nil, nil, now, nil, nil, nil, nil, nil, nil,
		}), true, nil
	case "records.renew":
		return s.renew(args, now), true, nil
	case "records.finish":
		if update {
			return s.finish(args, now), true, nil
		}
		return s.insert(record{
			args[0], args[1], args[2], args[3], args[4], args[5], whole(args[6]), args[7], whole(args[8]),
			args[9], args[10], args[11], now - as[int64](args[12]), now, after(now, args[13]), after(now, args[14]), args[15], args[16], args[17],
		}), true, nil
	case "effect":
		key, value := as[string](args[0]), as[int64](args[1])
		if slices.Contains(s.effects[key], value) {
			return a, true, nil
		}
		s.wrote = true
		s.effects[key] = append(slices.Clip(s.effects[key]), value)
		return answer{affected: 1}, true, nil
	case "effect.undo":
		key := as[string](args[0])
		a.affected = int64(len(s.effects[key]))
		s.wrote = s.wrote || a.affected > 0
		delete(s.effects, key)
		return a, true, nil
	}
	return a, false, nil
}

// of returns the row of a key, in a list of one or none.
func (s *state) of(hash any) []record {
	if row, there := s.rows[string(blob(hash))]; there {
		return []record{row}
	}
	return nil
}

func (s *state) insert(row record) answer {
	if len(s.of(row[ofHash])) > 0 {
		return answer{}
	}
	s.rows[string(blob(row[ofHash]))], s.wrote = row, true
	return answer{affected: 1}
}

func (s *state) look(args []any, now int64) (a answer) {
	for _, row := range s.of(args[1]) {
		a.rows = append(a.rows, []any{
			row[ofState], row[ofPrint], row[ofPrintVersion], row[ofResult], text(row[ofCodec]), text(row[ofBusiness]), text(row[ofRequest]),
			over(row[ofResultEnd], now), over(row[ofKeyEnd], now),
		})
	}
	return a
}

func (s *state) renew(args []any, now int64) (a answer) {
	for _, row := range s.of(args[1]) {
		if over(row[ofKeyEnd], now) == int64(1) {
			delete(s.rows, string(blob(args[1])))
			a.affected, s.wrote = 1, true
		}
	}
	return a
}

func (s *state) finish(args []any, now int64) (a answer) {
	hash, attempt := args[10], blob(args[11])
	for _, row := range s.of(hash) {
		if row[ofState] != claimedState || !bytes.Equal(blob(row[ofAttempt]), attempt) {
			continue
		}
		row = slices.Clone(row)
		row[ofState], row[ofResult], row[ofCodec], row[ofBusiness], row[ofFinished] = whole(args[0]), args[1], args[2], args[3], now
		row[ofResultEnd], row[ofKeyEnd] = after(now, args[4]), after(now, args[5])
		row[ofHolder], row[ofProgram], row[ofRequest] = args[6], args[7], args[8]
		s.rows[string(blob(hash))] = row
		a.affected, s.wrote = 1, true
	}
	return a
}

// commit commits, unless the hook forbids it.
func (r *records) commit(c *session) error {
	t := c.txn
	switch {
	case t == nil:
		return errNoTx
	case r.writer != t:
		c.txn = nil
		return nil
	case c.onCommit != nil && c.onCommit() != 0:
		_ = r.rollback(c)
		return coded(531)
	}
	r.committed, r.writer, c.txn = t.state, nil, nil
	if r.committed.wrote {
		r.commits++
	}
	r.committed.wrote = false
	return nil
}

func (r *records) rollback(c *session) error {
	if c.txn == nil {
		return errNoTx
	}
	if r.writer == c.txn {
		r.writer = nil
	}
	if c.txn = nil; c.onRollback != nil {
		c.onRollback()
	}
	return nil
}

// save makes a savepoint, goes back to one, or removes one and those after it.
func (c *session) save(name, point string) error {
	if c.txn == nil || !c.txn.begun {
		return coded(1)
	}
	t := c.txn
	if name == "savepoint" {
		t.saved = append(t.saved, savepoint{point, t.clone()})
		return nil
	}
	for i, s := range slices.Backward(t.saved) {
		switch {
		case s.name != point:
			continue
		case name == "release":
			t.saved = t.saved[:i]
		default:
			t.saved, t.state = t.saved[:i+1], s.was.clone()
		}
		return nil
	}
	return coded(1)
}

// whole returns a number as the database has it.
func whole(v any) any {
	if n, is := v.(int); is {
		return int64(n)
	}
	return v
}

func text(v any) any {
	if v == nil {
		return ""
	}
	return v
}

// after returns the time that is so many microseconds from now; nil for never.
func after(now int64, micros any) any {
	if n, is := micros.(int64); is {
		return now + n
	}
	return nil
}

// over returns 1 if a time has come, and 0 if not, or never.
func over(at any, now int64) any {
	if n, is := at.(int64); is && n <= now {
		return int64(1)
	}
	return int64(0)
}

var errNoTx = noTxError{}

// noTxError is SQLite's error of a COMMIT or a ROLLBACK without a transaction.
type noTxError struct{}

func (noTxError) Error() string {
	return fmt.Sprint(coded(1), ": cannot end - no transaction is active")
}
func (noTxError) Code() int { return 1 }
