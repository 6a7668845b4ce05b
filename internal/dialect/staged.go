package dialect

import "strings"

// Staged is the SQL of the staged operations. {staged}, {steps}, {provider_events} and
// {interventions} are their tables. {records}, {locks}, {tickets}, {waiters} and {floor} are
// the tables of the other packages. {now} is the clock.
//
// A worker has an operation by attempt and token: each of its statements names both, and a new
// token takes the row away from it. Every statement changes the version of the row, so the
// number of affected rows is the number of matched rows, whichever of them a driver counts. $0 is
// the owner, except in the statements that read all owners. Parameters in order:
//
//	Look:        key_hash
//	Insert:      key_hash, namespace, operation, op_key, fingerprint, fingerprint_version,
//	             request, attempt, holder, lease (µs), result_type, attempts started, program,
//	             request_id
//	Latest:      key_hash (as Look, but reads the latest committed row, and locks it)
//	Claim:       key_hash, attempt, holder, lease (µs), expected token, result_type, program,
//	             request_id
//	Own:         key_hash, attempt, token, step, mode, lease (µs)
//	Renew:       key_hash, attempt, token, lease (µs)
//	Accept:      key_hash, attempt, token, time until the deadline (µs)
//	Finish:      key_hash, attempt, token, state, result, ResultTTL, KeyTTL (µs or NULL)
//	Release:     key_hash, attempt, token, pause (µs), reason, 1 not to count the attempt
//	Park:        key_hash, attempt, token, reason
//	ParkDue:     key_hash, expected token, reason
//	Due:         namespace, operation, limit (of all owners; returns owner and key_hash)
//	StepLook:    key_hash, name
//	StepInsert:  key_hash, name, state, provider_key, result, token, result_type
//	StepBegin:   key_hash, name, token, result_type, 1 if it is a new call
//	StepEnd:     key_hash, name, state, result, provider, reference (of a step that has not ended;
//	             NULL keeps a provider and a reference)
//	StepAccept:  key_hash, name, provider, reference, time until the deadline (µs)
//	StepReverse: key_hash, name (of a step that was done); Reverse: key_hash
//	StepType:    key_hash, name, result_type
//	StepCorrect: key_hash, name, state, result (of a step that has ended)
//	StepRefer:   key_hash, name, provider, reference (NULL keeps one), 1 to replace a reference
//	             that is there
//	StepFind:    provider_key, namespace (of all owners; returns owner, key_hash and the
//	             step's name)
//	ReferenceFind: provider, reference, namespace (returns key_hash and the step's name)
//	StepNames, Steps, EventList, Interventions: key_hash
//	Touch:       key_hash (locks the row)
//	Unpark:      key_hash (an unknown operation continues)
//	Known:       key_hash, step (the outcome of the step is no longer ambiguous)
//	Contradict:  key_hash, step, mode, reason (an operation that has not ended becomes unknown)
//	Contradicted: key_hash, reason (of an operation that has ended)
//	Close:       key_hash, state, result, ResultTTL, KeyTTL (an unknown operation ends)
//	EventRead:    key_hash, event_id
//	EventInsert:  key_hash, event_id, kind, body
//	Intervene:   id, key_hash, namespace, action, by_whom, reason
//	Intervened:  id
//	Erase:       key_hash; EraseSteps, EraseEvents, EraseKey, EraseReferences: the same
//	Forget:      key_hash (deletes an operation whose KeyTTL is over); ForgetSteps,
//	             ForgetEvents: the same
type Staged struct {
	Look, Latest, Insert, Claim, Own, Renew, Accept, Finish   string
	Release, Park, ParkDue, Due                               string
	StepLook, StepInsert, StepBegin, StepEnd, StepFind, Steps string
	StepAccept, StepReverse, Reverse, ReferenceFind           string
	StepType, StepCorrect, StepNames, StepRefer               string
	Touch, Unpark, Known, Close                               string
	Contradict, Contradicted                                  string
	EventRead, EventInsert, EventList                         string
	Intervene, Intervened, Interventions                      string
	Erase, EraseSteps, EraseEvents, EraseKey, EraseReferences string
	Forget, ForgetSteps, ForgetEvents                         string

	// List lists operations. Parameters: namespace, owner and operation ("" for all), for how
	// long they have been due (µs), owner and key_hash to continue after, limit, and bytes that the
	// key contains. {states} is a list of numbers. {of} is OfOwner if an owner is given: the alternative
	// alone would not let the engine use the key. Show returns one operation. Parameter:
	// key_hash. RecordList and RecordShow do the same on {records}; the fourth parameter of
	// RecordList is the age of the record (µs).
	List, Show, RecordList, RecordShow string
	// Reserved lists what an owner has reserved of limits between two times. Parameters: owner, from,
	// to (µs), limit.
	Reserved string
	// Namespaces counts the operations in {states} of each namespace, of {from}, among the first ones.
	// Parameter: how many at most.
	Namespaces string
	// RecordTouch locks the row of a record (key_hash). RecordClose ends a record, RecordFree
	// deletes it, and RecordErase removes its result. RecordClose takes the parameters of
	// Close and the codec; the other two take those of Erase.
	RecordTouch, RecordClose, RecordFree, RecordErase string

	Restore Restore
}

// Restore is the SQL that runs after the database was restored to an earlier point in time.
// Parameters in order:
//
//	Most:      margin (µs; returns the greatest of the clock plus the margin and the
//	           tokens in all tables)
//	Floor:     token, store (16 bytes)
//	Locks:     token, by, reason
//	Tickets:   none
//	Waiters:   none
//	Pending:   none (returns owner, key_hash and namespace of the operations that Park parks)
//	Park:      token, reason
type Restore struct{ Most, Floor, Locks, Tickets, Waiters, Pending, Park string }

// OfOwner restricts List and RecordList.
const OfOwner = ` AND owner = $2`

const (
	stagedColumns = `state, fingerprint, fingerprint_version, request, result, attempt, token, due_at - {now}, step, mode, started, finished, restored, COALESCE(reason, ''), COALESCE(result_type, ''),
 accepted, COALESCE(reversed_at, 0), CASE WHEN result_expires_at <= {now} THEN 1 ELSE 0 END, CASE WHEN key_expires_at <= {now} THEN 1 ELSE 0 END, COALESCE(program, ''), COALESCE(request_id, '')`
	mine       = ` WHERE owner = $0 AND key_hash = $1 AND attempt = $2 AND token = $3 AND state = 1`
	moved      = `version = version + 1, moved_at = {now}`
	nextTerm   = `token = {greatest}(token + 1, {now})`
	info       = `owner, key_hash, operation, op_key, state, step, started, finished, created_at, moved_at, due_at - {now}, token, COALESCE(reason, ''), COALESCE(holder, ''), COALESCE(result_type, ''), accepted, COALESCE(reversed_at, 0), COALESCE(program, ''), COALESCE(request_id, ''), mode, restored`
	recordInfo = `owner, key_hash, operation, op_key, state, '', 1, 0, created_at, COALESCE(finished_at, created_at), 0, 0, '', COALESCE(holder, ''), '', 0, 0, COALESCE(program, ''), COALESCE(request_id, ''), 0, 0`
)

// expires sets the expiry of an operation that ends. The parameters are in µs, or NULL.
func expires(result, key string) string {
	return `result_expires_at = {now} + ` + result + `, key_expires_at = {now} + ` + key + `, `
}

// NewStaged returns the SQL of the staged operations with the parts that differ between
// engines: the function for the greatest value, the clause that ignores an existing key on
// insert, the clause that locks a row, the test whether op_key contains the bytes $8,
// and the comparison of rows.
func NewStaged(greatest, ignore, forUpdate, holds string, compare Compare) Staged {
	after := compare([]string{"owner", "key_hash"}, ">", "$5", "$6")
	r := strings.NewReplacer("{greatest}", greatest, "{ignore}", ignore, "{for update}", forUpdate).Replace
	return Staged{
		Look:   r(`SELECT ` + stagedColumns + ` FROM {staged} WHERE owner = $0 AND key_hash = $1`),
		Latest: r(`SELECT ` + stagedColumns + ` FROM {staged} WHERE owner = $0 AND key_hash = $1{for update}`),
		Insert: r(`INSERT INTO {staged} (owner, key_hash, namespace, operation, op_key, fingerprint, fingerprint_version, request, state, attempt, holder, token, due_at, step, mode, started, finished, restored, accepted, version, created_at, moved_at, result_type, program, request_id)
VALUES ($0, $1, $2, $3, $4, $5, $6, $7, 1, $8, $9, {greatest}((SELECT token + 1 FROM {floor} WHERE id = 1), {now}), {now} + $10, '', 1, $12, 0, 0, 0, 0, {now}, {now}, $11, $13, $14) {ignore}`),
		// MySQL evaluates assignments from left to right, so the attempt comes last. A claim
		// that is sent again finds its own term.
		Claim: r(`UPDATE {staged} SET token = CASE WHEN attempt = $2 THEN token ELSE {greatest}(token + 1, {now}) END,
 started = CASE WHEN attempt = $2 THEN started ELSE started + 1 END, holder = $3, due_at = {now} + $4, result_type = $6,
 program = $7, request_id = COALESCE($8, request_id), accepted = 0, ` + moved + `, attempt = $2
WHERE owner = $0 AND key_hash = $1 AND state = 1 AND (attempt = $2 OR token = $5 AND due_at <= {now})`),
		Own:     `UPDATE {staged} SET step = $4, mode = $5, due_at = {now} + $6, ` + moved + mine,
		Renew:   `UPDATE {staged} SET due_at = {now} + $4, ` + moved + mine,
		Accept:  `UPDATE {staged} SET attempt = NULL, holder = NULL, accepted = 1, due_at = {now} + $4, reason = NULL, started = 0, finished = 0, ` + moved + mine,
		Finish:  `UPDATE {staged} SET state = $4, result = $5, step = '', mode = 1, reason = NULL, due_at = {now}, finished = finished + 1, finished_at = {now}, ` + expires("$6", "$7") + moved + mine,
		Release: `UPDATE {staged} SET attempt = NULL, holder = NULL, due_at = {now} + $4, reason = $5, started = started - $6, finished = finished + 1 - $6, ` + moved + mine,
		Park:    r(`UPDATE {staged} SET state = 6, attempt = NULL, ` + nextTerm + `, due_at = {now}, reason = $4, finished = finished + 1, ` + moved + mine),
		ParkDue: r(`UPDATE {staged} SET state = 6, attempt = NULL, ` + nextTerm + `, reason = $3, accepted = 0, ` + moved + ` WHERE owner = $0 AND key_hash = $1 AND token = $2 AND state = 1 AND due_at <= {now}`),
		Due:     `SELECT owner, key_hash FROM {staged} WHERE namespace = $1 AND operation = $2 AND state = 1 AND due_at <= {now} ORDER BY due_at LIMIT $3`,

		StepLook: `SELECT state, token, result, COALESCE(result_type, ''), {now} - begun_at FROM {steps} WHERE owner = $0 AND key_hash = $1 AND name = $2`,
		StepInsert: `INSERT INTO {steps} (owner, key_hash, name, state, provider_key, result, token, starts, begun_at, moved_at, result_type)
VALUES ($0, $1, $2, $3, $4, $5, $6, 1, {now}, {now}, $7)`,
		StepBegin:   `UPDATE {steps} SET begun_at = CASE WHEN state = 0 OR $5 = 1 THEN {now} ELSE begun_at END, state = 1, starts = starts + 1, token = $3, result_type = $4, deadline_at = NULL, moved_at = {now} WHERE owner = $0 AND key_hash = $1 AND name = $2 AND state IN (0, 1, 4)`,
		StepEnd:     `UPDATE {steps} SET state = $3, result = $4, provider = COALESCE($5, provider), reference = COALESCE($6, reference), moved_at = {now} WHERE owner = $0 AND key_hash = $1 AND name = $2 AND state IN (0, 1, 4)`,
		StepAccept:  `UPDATE {steps} SET state = 4, provider = $3, reference = COALESCE($4, reference), deadline_at = {now} + $5, moved_at = {now} WHERE owner = $0 AND key_hash = $1 AND name = $2 AND state IN (0, 1, 4)`,
		StepReverse: `UPDATE {steps} SET reversed_at = COALESCE(reversed_at, {now}), moved_at = {now} WHERE owner = $0 AND key_hash = $1 AND name = $2 AND state = 2`,
		Reverse:     `UPDATE {staged} SET reversed_at = COALESCE(reversed_at, {now}), ` + moved + ` WHERE owner = $0 AND key_hash = $1`,
		ReferenceFind: `SELECT p.key_hash, p.name FROM {steps} p JOIN {staged} s ON s.owner = p.owner AND s.key_hash = p.key_hash
WHERE p.owner = $0 AND p.provider = $1 AND p.reference = $2 AND s.namespace = $3 LIMIT 2`,
		StepType:    `UPDATE {steps} SET result_type = $3 WHERE owner = $0 AND key_hash = $1 AND name = $2`,
		StepCorrect: `UPDATE {steps} SET state = $3, result = $4, moved_at = {now} WHERE owner = $0 AND key_hash = $1 AND name = $2 AND state IN (2, 3)`,
		StepRefer: `UPDATE {steps} SET provider = CASE WHEN $5 = 1 OR reference IS NULL THEN COALESCE($3, provider) ELSE provider END,
 reference = CASE WHEN $5 = 1 OR reference IS NULL THEN COALESCE($4, reference) ELSE reference END WHERE owner = $0 AND key_hash = $1 AND name = $2`,
		StepNames: `SELECT name FROM {steps} WHERE owner = $0 AND key_hash = $1 ORDER BY name`,
		StepFind:  `SELECT p.owner, p.key_hash, p.name FROM {steps} p JOIN {staged} s ON s.owner = p.owner AND s.key_hash = p.key_hash WHERE p.provider_key = $1 AND p.provider_key <> '' AND s.namespace = $2`,
		Steps:     `SELECT name, state, provider_key, starts, token, begun_at, moved_at, COALESCE(result_type, ''), COALESCE(provider, ''), COALESCE(reference, ''), COALESCE(deadline_at, 0), COALESCE(reversed_at, 0) FROM {steps} WHERE owner = $0 AND key_hash = $1 ORDER BY begun_at, name`,

		Touch:  `UPDATE {staged} SET ` + moved + ` WHERE owner = $0 AND key_hash = $1`,
		Unpark: r(`UPDATE {staged} SET state = 1, attempt = NULL, ` + nextTerm + `, due_at = {now}, mode = 1, step = '', accepted = 0, reason = NULL, started = 0, finished = 0, ` + moved + ` WHERE owner = $0 AND key_hash = $1 AND state = 6`),
		Known:  `UPDATE {staged} SET step = '', mode = 1, due_at = CASE WHEN accepted = 1 THEN {now} ELSE due_at END, accepted = 0, ` + moved + ` WHERE owner = $0 AND key_hash = $1 AND state = 1 AND step = $2`,
		Contradict: r(`UPDATE {staged} SET state = 6, finished = CASE WHEN attempt IS NULL THEN finished ELSE finished + 1 END, attempt = NULL, ` + nextTerm + `, due_at = {now},
 step = $2, mode = $3, reason = $4, accepted = 0, ` + moved + ` WHERE owner = $0 AND key_hash = $1 AND state IN (1, 6)`),
		Contradicted: `UPDATE {staged} SET mode = 5, reason = $2, ` + moved + ` WHERE owner = $0 AND key_hash = $1 AND state NOT IN (1, 6)`,
		Close:        r(`UPDATE {staged} SET state = $2, result = $3, ` + nextTerm + `, step = '', mode = 1, reason = NULL, finished_at = {now}, ` + expires("$4", "$5") + moved + ` WHERE owner = $0 AND key_hash = $1 AND state = 6`),

		EventRead:   `SELECT 1 FROM {provider_events} WHERE owner = $0 AND key_hash = $1 AND event_id = $2`,
		EventInsert: `INSERT INTO {provider_events} (owner, key_hash, event_id, kind, body, received_at) VALUES ($0, $1, $2, $3, $4, {now})`,
		EventList:   `SELECT event_id, kind, body, received_at FROM {provider_events} WHERE owner = $0 AND key_hash = $1 ORDER BY received_at, event_id`,

		Intervene:     `INSERT INTO {interventions} (owner, id, key_hash, namespace, action, by_whom, reason, happened_at) VALUES ($0, $1, $2, $3, $4, $5, $6, {now})`,
		Intervened:    `SELECT 1 FROM {interventions} WHERE owner = $0 AND id = $1`,
		Interventions: `SELECT action, by_whom, reason, happened_at FROM {interventions} WHERE owner = $0 AND key_hash = $1 ORDER BY happened_at, id`,

		Erase: `UPDATE {staged} SET state = state + 2, request = NULL, result = NULL, reason = NULL, request_id = NULL, result_expires_at = NULL, ` + moved + ` WHERE owner = $0 AND key_hash = $1 AND state IN (2, 3)`,
		// This produces an empty value of the column's own type, which each engine writes
		// differently.
		EraseKey: `UPDATE {staged} SET op_key = substr(op_key, 1, 0), fingerprint = NULL, ` + moved + `
WHERE owner = $0 AND key_hash = $1 AND state IN (4, 5) AND (length(op_key) > 0 OR fingerprint IS NOT NULL)`,
		EraseSteps:      `UPDATE {steps} SET result = NULL WHERE owner = $0 AND key_hash = $1`,
		EraseReferences: `UPDATE {steps} SET reference = NULL WHERE owner = $0 AND key_hash = $1`,
		Forget:          `DELETE FROM {staged} WHERE owner = $0 AND key_hash = $1 AND state IN (2, 3, 4, 5) AND key_expires_at <= {now}`,
		ForgetSteps:     `DELETE FROM {steps} WHERE owner = $0 AND key_hash = $1`,
		ForgetEvents:    `DELETE FROM {provider_events} WHERE owner = $0 AND key_hash = $1`,
		EraseEvents:     `UPDATE {provider_events} SET body = NULL, kind = '' WHERE owner = $0 AND key_hash = $1`,

		List: `SELECT ` + info + ` FROM {staged} WHERE namespace = $1 AND ($2 = '' OR owner = $2){of} AND ($3 = '' OR operation = $3)
 AND due_at <= {now} - $4 AND ` + after + ` AND ` + holds + ` AND state IN ({states}) ORDER BY owner, key_hash LIMIT $7`,
		Show:       `SELECT ` + info + ` FROM {staged} WHERE owner = $0 AND key_hash = $1`,
		Reserved:   `SELECT name, limit_key, id, amount, created_at FROM {limit_entries} WHERE owner = $0 AND state = 1 AND created_at >= $1 AND created_at <= $2 ORDER BY created_at, id LIMIT $3`,
		Namespaces: `SELECT namespace, COUNT(*) FROM (SELECT namespace FROM {from} WHERE state IN ({states}) LIMIT $1) found GROUP BY namespace`,
		RecordList: `SELECT ` + recordInfo + ` FROM {records} WHERE namespace = $1 AND ($2 = '' OR owner = $2){of} AND ($3 = '' OR operation = $3)
 AND created_at <= {now} - $4 AND ` + after + ` AND ` + holds + ` AND state IN ({states}) ORDER BY owner, key_hash LIMIT $7`,
		RecordShow:  `SELECT ` + recordInfo + ` FROM {records} WHERE owner = $0 AND key_hash = $1`,
		RecordTouch: r(`SELECT state FROM {records} WHERE owner = $0 AND key_hash = $1{for update}`),
		RecordClose: `UPDATE {records} SET state = $2, result = $3, codec = $4, finished_at = {now} WHERE owner = $0 AND key_hash = $1 AND state = 1`,
		RecordFree:  `DELETE FROM {records} WHERE owner = $0 AND key_hash = $1 AND state = 1`,
		RecordErase: `UPDATE {records} SET ` + Tombstone + ` WHERE owner = $0 AND key_hash = $1 AND state IN (2, 3)`,

		Restore: Restore{
			Most: r(`SELECT {greatest}({now} + $1, (SELECT token FROM {floor} WHERE id = 1), COALESCE((SELECT MAX(token) FROM {locks}), 0),
 COALESCE((SELECT MAX(token) FROM {tickets}), 0), COALESCE((SELECT MAX(token) FROM {staged}), 0))`),
			Floor: `UPDATE {floor} SET token = $1, store = $2 WHERE id = 1 AND token < $1`,
			Locks: `UPDATE {locks} SET forced_at = CASE WHEN attempt IS NULL THEN forced_at ELSE {now} END,
 forced_by = CASE WHEN attempt IS NULL THEN forced_by ELSE $2 END, forced_reason = CASE WHEN attempt IS NULL THEN forced_reason ELSE $3 END,
 token = $1, attempt = NULL WHERE token < $1`,
			Tickets: `DELETE FROM {tickets}`,
			Waiters: `DELETE FROM {waiters}`,
			Pending: `SELECT owner, key_hash, namespace FROM {staged} WHERE state = 1`,
			Park: `UPDATE {staged} SET reason = CASE WHEN state = 1 THEN $2 ELSE reason END, restored = CASE WHEN state IN (1, 6) THEN 1 ELSE restored END,
 state = CASE WHEN state = 1 THEN 6 ELSE state END, attempt = NULL, token = $1, ` + moved + ` WHERE token < $1`,
		},
	}
}
