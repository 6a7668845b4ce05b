package simulation

import (
	"bytes"
	"cmp"
	"maps"
	"slices"
	"strings"
)

// What the statements of staged operations do to their two tables. TestStagedIsSQLite compares it with SQLite, statement by statement,
// and TestStoreIsEachEngine what comes of operations with each engine.

// The columns of an operation after the owner and the hash of its key, in the order of the table.
const (
	opNamespace = iota + 2
	opName
	opKey
	opPrint
	opPrintVersion
	opRequest
	opState
	opResult
	opResultType
	opAttempt
	opHolder
	opToken
	opDue
	opStep
	opMode
	opStarted
	opFinished
	opAccepted
	opRestored
	opVersion
	opReason
	opCreated
	opMoved
	opEnded
	opReversed
	opProgram
	opRequestID
	opResultEnd
	opKeyEnd
	opWidth
)

// The columns of a step, likewise.
const (
	stepName = iota + 2
	stepState
	stepKey
	stepResult
	stepResultType
	stepToken
	stepStarts
	stepBegun
	stepMoved
	stepProvider
	stepReference
	stepDeadline
	stepReversed
)

// The states of a step, and that of an operation which is parked.
const (
	notDoneStep  = int64(0)
	begunStep    = int64(1)
	doneStep     = int64(2)
	refusedStep  = int64(3)
	acceptedStep = int64(4)
	parkedState  = int64(6)
)

// stagedWrites are the statements that need the write lock.
var stagedWrites = map[string]bool{
	"staged.insert": true, "staged.void": true, "staged.cancel": true, "staged.claim": true, "staged.own": true, "staged.renew": true, "staged.accept": true,
	"staged.finish": true, "staged.release": true, "staged.park": true, "staged.park due": true, "staged.touch": true,
	"staged.step.insert": true, "staged.step.begin": true, "staged.step.end": true, "staged.step.accept": true, "staged.step.refer": true,
}

// askStaged runs a statement on the state of its transaction.
func (s *state) askStaged(name string, args []any, now int64) (a answer, known bool, err error) {
	switch name {
	case "look", "latest":
		return s.lookOp(args, now), true, nil
	case "due":
		return s.due(args, now), true, nil
	case "insert":
		return s.insertOp(args, now), true, nil
	case "void":
		return s.void(args, now), true, nil
	case "step.look":
		return s.lookStep(args, now), true, nil
	case "steps":
		return s.listSteps(args), true, nil
	case "event.list", "interventions": // there are none
		return a, true, nil
	case "step.insert":
		return s.insertStep(args, now)
	}
	if rest, of := strings.CutPrefix(name, "step."); of {
		a, known = s.moveStep(rest, args, now)
		return a, known, nil
	}
	a, known = s.moveOp(name, args, now)
	return a, known, nil
}

// stepID is the key of a step in the store.
func stepID(hash, name any) string { return string(blob(hash)) + as[string](name) }

func (s *state) lookOp(args []any, now int64) (a answer) {
	row := s.ops[string(blob(args[1]))]
	if row == nil {
		return a
	}
	return answer{rows: [][]any{{
		row[opState], row[opPrint], row[opPrintVersion], row[opRequest], row[opResult], row[opAttempt], row[opToken], as[int64](row[opDue]) - now,
		row[opStep], row[opMode], row[opStarted], row[opFinished], row[opRestored], text(row[opReason]), text(row[opResultType]),
		row[opAccepted], orZero(row[opReversed]), over(row[opResultEnd], now), over(row[opKeyEnd], now), text(row[opProgram]), text(row[opRequestID]),
		row[opNamespace], row[opName],
	}}}
}

// show is what an operator sees.
func (s *state) show(args []any, now int64) (a answer) {
	row := s.ops[string(blob(args[1]))]
	if row == nil {
		return a
	}
	seen := int64(4)
	switch state := as[int64](row[opState]); {
	case state == claimedState && row[opAccepted] == int64(1):
		seen = 3
	case state == claimedState && row[opAttempt] != nil && as[int64](row[opDue]) > now:
		seen = 1
	case state == claimedState:
		seen = 2
	case state < 4 && over(row[opResultEnd], now) == int64(1):
		seen = state + 5
	case state < parkedState:
		seen = state + 3
	}
	return answer{rows: [][]any{{
		row[0], row[1], row[3], row[opKey], seen, row[opStep], row[opStarted], row[opFinished], row[opCreated], row[opMoved], as[int64](row[opDue]) - now, row[opToken],
		text(row[opReason]), text(row[opHolder]), text(row[opResultType]), orZero(row[opReversed]), text(row[opProgram]), text(row[opRequestID]), row[opMode], row[opRestored],
	}}}
}

func orZero(v any) any { return as[int64](v) }

func (s *state) due(args []any, now int64) (a answer) {
	var rows []record
	for _, row := range s.ops {
		if row[2] == args[0] && row[3] == args[1] && row[opState] == claimedState && as[int64](row[opDue]) <= now {
			rows = append(rows, row)
		}
	}
	slices.SortFunc(rows, func(a, b record) int {
		return cmp.Or(cmp.Compare(as[int64](a[opDue]), as[int64](b[opDue])), bytes.Compare(blob(a[1]), blob(b[1])))
	})
	for _, row := range rows[:min(len(rows), as[int](args[2]))] {
		a.rows = append(a.rows, []any{row[0], row[1]})
	}
	return a
}

// begun is a new row of an operation: owner, hash, namespace, operation, key.
func begunOp(identity []any, now int64) record {
	row := make(record, opWidth)
	copy(row, identity)
	for _, zero := range []int{opStarted, opFinished, opAccepted, opRestored, opVersion} {
		row[zero] = int64(0)
	}
	row[opToken], row[opDue], row[opStep], row[opMode] = now, now, "", int64(1)
	row[opCreated], row[opMoved] = now, now
	return row
}

// put adds the row of an operation, unless there is one.
func (s *state) put(row record) (a answer) {
	hash := string(blob(row[1]))
	if s.ops[hash] != nil {
		return a
	}
	s.ops[hash], s.wrote = row, true
	return answer{affected: 1}
}

func (s *state) insertOp(args []any, now int64) answer {
	row := begunOp(args[:5], now)
	row[opPrint], row[opPrintVersion], row[opRequest], row[opState] = args[5], whole(args[6]), args[7], claimedState
	row[opAttempt], row[opHolder], row[opDue] = args[8], args[9], now+as[int64](args[10])
	row[opStarted], row[opResultType], row[opProgram], row[opRequestID] = whole(args[11]), args[12], args[13], args[14]
	return s.put(row)
}

func (s *state) void(args []any, now int64) answer {
	row := begunOp(args[:5], now)
	row[opPrintVersion], row[opResult], row[opState], row[opAttempt] = whole(args[5]), args[6], rejectedState, args[7]
	row[opEnded], row[opResultEnd], row[opKeyEnd] = now, after(now, args[8]), after(now, args[9])
	return s.put(row)
}

// moveOp runs an update of an operation.
func (s *state) moveOp(name string, args []any, now int64) (a answer, known bool) {
	// those of a worker end with the owner, the hash, the attempt and the token
	at := map[string]int{"cancel": 4, "claim": 8, "own": 3, "renew": 1, "accept": 1, "finish": 4, "release": 4, "park": 1, "park due": 1, "touch": 0}
	n, known := at[name]
	if !known {
		return a, false
	}
	old := s.ops[string(blob(args[n+1]))]
	if old == nil || !matches(name, old, args, args[n+2:], now) {
		return a, true
	}
	row := slices.Clone(old)
	update(name, row, args, now)
	row[opVersion], row[opMoved] = as[int64](row[opVersion])+1, now
	s.ops[string(blob(args[n+1]))], s.wrote = row, true
	return answer{affected: 1}, true
}

// matches is the condition of an update. rest is what follows the hash.
func matches(name string, row record, args, rest []any, now int64) bool {
	pending, due := row[opState] == claimedState, as[int64](row[opDue]) <= now
	attempt := func(v any) bool { return row[opAttempt] != nil && bytes.Equal(blob(row[opAttempt]), blob(v)) }
	switch name {
	case "touch":
		return true
	case "cancel":
		return pending || row[opState] == parkedState
	case "claim":
		return pending && (attempt(args[0]) || row[opToken] == rest[1] && due)
	case "park due":
		return pending && row[opToken] == rest[0] && due
	}
	return pending && attempt(rest[0]) && row[opToken] == rest[1]
}

// update sets the columns of an operation.
func update(name string, row record, args []any, now int64) {
	rises := func() { row[opToken] = max(as[int64](row[opToken])+1, now) }
	add := func(column int, n int64) { row[column] = as[int64](row[column]) + n }
	switch name {
	case "cancel":
		rises()
		row[opState], row[opResult], row[opAttempt], row[opAccepted] = rejectedState, args[0], args[1], int64(0)
		closed(row, now, args[2], args[3])
	case "claim":
		if row[opAttempt] == nil || !bytes.Equal(blob(row[opAttempt]), blob(args[0])) {
			rises()
			add(opStarted, 1)
		}
		row[opHolder], row[opDue], row[opResultType], row[opProgram] = args[2], now+as[int64](args[3]), args[4], args[5]
		if args[6] != nil {
			row[opRequestID] = args[6]
		}
		row[opAccepted], row[opAttempt] = int64(0), args[7]
	case "own":
		row[opStep], row[opMode], row[opDue] = args[0], whole(args[1]), now+as[int64](args[2])
	case "renew":
		row[opDue] = now + as[int64](args[0])
	case "accept":
		row[opAttempt], row[opHolder], row[opAccepted], row[opDue], row[opReason] = nil, nil, int64(1), now+as[int64](args[0]), nil
		row[opStarted], row[opFinished] = int64(0), int64(0)
	case "finish":
		row[opState], row[opResult] = whole(args[0]), args[1]
		add(opFinished, 1)
		closed(row, now, args[2], args[3])
	case "release":
		uncounted := as[int64](whole(args[2]))
		row[opAttempt], row[opHolder], row[opDue], row[opReason] = nil, nil, now+as[int64](args[0]), args[1]
		add(opStarted, -uncounted)
		add(opFinished, 1-uncounted)
	case "park":
		rises()
		row[opState], row[opAttempt], row[opDue], row[opReason] = parkedState, nil, now, args[0]
		add(opFinished, 1)
	case "park due":
		rises()
		row[opState], row[opAttempt], row[opReason], row[opAccepted] = parkedState, nil, args[0], int64(0)
	}
}

// closed sets what every end of an operation sets.
func closed(row record, now int64, resultTTL, keyTTL any) {
	row[opStep], row[opMode], row[opReason], row[opDue], row[opEnded] = "", int64(1), nil, now, now
	row[opResultEnd], row[opKeyEnd] = after(now, resultTTL), after(now, keyTTL)
}

func (s *state) lookStep(args []any, now int64) (a answer) {
	if row := s.steps[stepID(args[1], args[2])]; row != nil {
		a.rows = append(a.rows, []any{row[stepState], row[stepToken], row[stepResult], text(row[stepResultType]), now - as[int64](row[stepBegun])})
	}
	return a
}

func (s *state) listSteps(args []any) (a answer) {
	rows := slices.SortedFunc(maps.Values(s.steps), func(a, b record) int {
		return cmp.Or(cmp.Compare(as[int64](a[stepBegun]), as[int64](b[stepBegun])), strings.Compare(as[string](a[stepName]), as[string](b[stepName])))
	})
	for _, row := range rows {
		if bytes.Equal(blob(row[1]), blob(args[1])) {
			a.rows = append(a.rows, []any{
				row[stepName], row[stepState], row[stepKey], row[stepStarts], row[stepToken], row[stepBegun], row[stepMoved], text(row[stepResultType]),
				text(row[stepProvider]), text(row[stepReference]), orZero(row[stepDeadline]), orZero(row[stepReversed]),
			})
		}
	}
	return a
}

func (s *state) insertStep(args []any, now int64) (a answer, known bool, err error) {
	id := stepID(args[1], args[2])
	if s.steps[id] != nil {
		return a, true, coded(1555) // of the primary key
	}
	s.steps[id] = record{args[0], args[1], args[2], whole(args[3]), args[4], args[5], args[7], args[6], int64(1), now, now, nil, nil, nil, nil}
	s.wrote = true
	return answer{affected: 1}, true, nil
}

// moveStep runs an update of a step.
func (s *state) moveStep(name string, args []any, now int64) (a answer, known bool) {
	at := map[string]int{"begin": 3, "end": 4, "accept": 3, "refer": 5}
	n, known := at[name]
	if !known {
		return a, false
	}
	id := stepID(args[n+1], args[n+2])
	row := s.steps[id]
	if row == nil || name != "refer" && (row[stepState] == doneStep || row[stepState] == refusedStep) {
		return a, true
	}
	row = slices.Clone(row)
	keep := func(column int, v any) {
		if v != nil {
			row[column] = v
		}
	}
	switch name {
	case "begin":
		if row[stepState] == notDoneStep || whole(args[0]) == int64(1) {
			row[stepBegun] = now
		}
		row[stepState], row[stepStarts], row[stepToken] = begunStep, as[int64](row[stepStarts])+1, args[1]
		row[stepResultType], row[stepDeadline] = args[2], nil
	case "end":
		row[stepState], row[stepResult] = whole(args[0]), args[1]
		keep(stepProvider, args[2])
		keep(stepReference, args[3])
	case "accept":
		row[stepState], row[stepProvider], row[stepDeadline] = acceptedStep, args[0], now+as[int64](args[2])
		keep(stepReference, args[1])
	case "refer":
		if whole(args[0]) == int64(1) || row[stepReference] == nil {
			keep(stepProvider, args[1])
			keep(stepReference, args[4])
			if row[stepProvider] == nil && row[stepReference] != nil {
				row[stepProvider] = ""
			}
		}
	}
	if name != "refer" {
		row[stepMoved] = now
	}
	s.steps[id], s.wrote = row, true
	return answer{affected: 1}, true
}
