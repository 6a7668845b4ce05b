package dialect

import "strings"

// Staged is the SQL of the staged operations. {staged}, {steps}, {news} and
// {interventions} are their tables, {records}, {locks}, {claims}, {waiters} and
// {floor} those of the rest, {now} is the clock.
//
// Whoever works on an operation has its row by owner and token: every statement
// of a worker names both, and a new token is what takes the row away from it. A
// row's version moves with every statement, so that the rows affected are the
// rows found, whatever a driver counts. Parameters in order:
//
//	Look:        key_hash
//	Insert:      key_hash, namespace, tenant, operation, op_key, fingerprint,
//	             fingerprint_version, request, owner, holder, lease (µs)
//	Claim:       key_hash, owner, holder, lease (µs), token that was seen
//	Own:         key_hash, owner, token, step, mode, lease (µs)
//	Finish:      key_hash, owner, token, state, result
//	Release:     key_hash, owner, token, pause (µs), reason
//	Park:        key_hash, owner, token, reason
//	ParkDue:     key_hash, token that was seen, reason
//	Due:         namespace, operation, limit (returns key_hash)
//	StepLook:    key_hash, name
//	StepInsert:  key_hash, name, state, provider_key, result, token
//	StepBegin:   key_hash, name, token
//	StepEnd:     key_hash, name, state, result (of a step that has not ended)
//	StepFind:    provider_key, namespace (returns key_hash and the step's name)
//	Steps, NewsList, Interventions: key_hash
//	Touch:       key_hash (locks the row)
//	Settle:      key_hash (an unknown operation goes on)
//	Known:       key_hash, step (it is not in doubt any more)
//	Close:       key_hash, state, result (an unknown operation ends)
//	NewsLook:    key_hash, news_id
//	NewsInsert:  key_hash, news_id, kind, body
//	Intervene:   id, key_hash, namespace, action, by_whom, reason
//	Intervened:  id
//	Erase:       key_hash; EraseSteps, EraseNews, EraseKey: the same
type Staged struct {
	Look, Insert, Claim, Own, Finish, Release, Park, ParkDue, Due string
	StepLook, StepInsert, StepBegin, StepEnd, StepFind, Steps     string
	Touch, Settle, Known, Close                                   string
	NewsLook, NewsInsert, NewsList                                string
	Intervene, Intervened, Interventions                          string
	Erase, EraseSteps, EraseNews, EraseKey                        string

	// List lists operations: namespace, tenant and operation ("" for all), who
	// was due so long ago (µs), key_hash to go on after, limit, bytes that the key
	// has in it; {states} are numbers.
	// Show is one of them: key_hash. RecordList and RecordShow are the same of
	// {records}; their fourth parameter is how long ago they were claimed.
	List, Show, RecordList, RecordShow string
	// RecordTouch locks the row of a record (key_hash). RecordClose, RecordFree
	// and RecordErase end, free and empty one; their parameters are those of
	// Close (and the codec) and Erase.
	RecordTouch, RecordClose, RecordFree, RecordErase string

	Restore Restore
}

// Restore is the SQL of what follows a restore to an earlier point in time.
// Parameters in order:
//
//	Most:      margin (µs; returns the clock with the margin, or the greatest token in any table)
//	Floor:     token
//	Locks:     token, by, reason
//	Claims:    none
//	Waiters:   none
//	Pending:   none (returns key_hash and namespace of what Park parks)
//	Park:      token, reason
type Restore struct{ Most, Floor, Locks, Claims, Waiters, Pending, Park string }

const (
	stagedColumns = `state, fingerprint, fingerprint_version, request, result, owner, token, due_at - {now}, step, mode, started, finished, restored, COALESCE(reason, '')`
	mine          = ` WHERE key_hash = $1 AND owner = $2 AND token = $3 AND state = 1`
	moved         = `version = version + 1, moved_at = {now}`
	nextTerm      = `token = {greatest}(token + 1, {now})`
	info          = `key_hash, tenant, operation, op_key, state, step, started, finished, created_at, moved_at, due_at - {now}, token, COALESCE(reason, ''), COALESCE(holder, '')`
	recordInfo    = `key_hash, tenant, operation, op_key, state, '', 1, 0, created_at, COALESCE(finished_at, created_at), 0, 0, '', ''`
)

// NewStaged is the SQL of the staged operations with what differs: the greater
// of two values, the end of an insert whose key may be there, the lock of a row,
// and the test whether op_key has the bytes $7 in it.
func NewStaged(greatest, ignore, forUpdate, holds string) Staged {
	r := strings.NewReplacer("{greatest}", greatest, "{ignore}", ignore, "{for update}", forUpdate).Replace
	return Staged{
		Look: r(`SELECT ` + stagedColumns + ` FROM {staged} WHERE key_hash = $1`),
		Insert: r(`INSERT INTO {staged} (key_hash, namespace, tenant, operation, op_key, fingerprint, fingerprint_version, request, state, owner, holder, token, due_at, step, mode, started, finished, restored, version, created_at, moved_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, 1, $9, $10, {greatest}((SELECT token + 1 FROM {floor} WHERE id = 1), {now}), {now} + $11, '', 1, 1, 0, 0, 0, {now}, {now}) {ignore}`),
		// Assignments go from left to right on MySQL: the owner comes last. A
		// claim that is sent again finds its own term.
		Claim: r(`UPDATE {staged} SET token = CASE WHEN owner = $2 THEN token ELSE {greatest}(token + 1, {now}) END,
 started = CASE WHEN owner = $2 THEN started ELSE started + 1 END, holder = $3, due_at = {now} + $4, ` + moved + `, owner = $2
WHERE key_hash = $1 AND state = 1 AND (owner = $2 OR token = $5 AND due_at <= {now})`),
		Own:     `UPDATE {staged} SET step = $4, mode = $5, due_at = {now} + $6, ` + moved + mine,
		Finish:  `UPDATE {staged} SET state = $4, result = $5, step = '', mode = 1, reason = NULL, due_at = {now}, finished = finished + 1, finished_at = {now}, ` + moved + mine,
		Release: `UPDATE {staged} SET owner = NULL, holder = NULL, due_at = {now} + $4, reason = $5, finished = finished + 1, ` + moved + mine,
		Park:    r(`UPDATE {staged} SET state = 6, owner = NULL, ` + nextTerm + `, due_at = {now}, reason = $4, finished = finished + 1, ` + moved + mine),
		ParkDue: r(`UPDATE {staged} SET state = 6, owner = NULL, ` + nextTerm + `, reason = $3, ` + moved + ` WHERE key_hash = $1 AND token = $2 AND state = 1 AND due_at <= {now}`),
		Due:     `SELECT key_hash FROM {staged} WHERE namespace = $1 AND operation = $2 AND state = 1 AND due_at <= {now} ORDER BY due_at LIMIT $3`,

		StepLook: `SELECT state, token, result FROM {steps} WHERE key_hash = $1 AND name = $2`,
		StepInsert: `INSERT INTO {steps} (key_hash, name, state, provider_key, result, token, starts, begun_at, moved_at)
VALUES ($1, $2, $3, $4, $5, $6, 1, {now}, {now})`,
		StepBegin: `UPDATE {steps} SET state = 1, starts = starts + 1, token = $3, moved_at = {now} WHERE key_hash = $1 AND name = $2 AND state IN (0, 1)`,
		StepEnd:   `UPDATE {steps} SET state = $3, result = $4, moved_at = {now} WHERE key_hash = $1 AND name = $2 AND state IN (0, 1)`,
		StepFind:  `SELECT p.key_hash, p.name FROM {steps} p JOIN {staged} s ON s.key_hash = p.key_hash WHERE p.provider_key = $1 AND p.provider_key <> '' AND s.namespace = $2`,
		Steps:     `SELECT name, state, provider_key, starts, token, begun_at, moved_at FROM {steps} WHERE key_hash = $1 ORDER BY begun_at, name`,

		Touch:  `UPDATE {staged} SET ` + moved + ` WHERE key_hash = $1`,
		Settle: r(`UPDATE {staged} SET state = 1, owner = NULL, ` + nextTerm + `, due_at = {now}, mode = 1, step = '', reason = NULL, started = 0, finished = 0, ` + moved + ` WHERE key_hash = $1 AND state = 6`),
		Known:  `UPDATE {staged} SET step = '', mode = 1, ` + moved + ` WHERE key_hash = $1 AND state = 1 AND step = $2`,
		Close:  r(`UPDATE {staged} SET state = $2, result = $3, ` + nextTerm + `, step = '', reason = NULL, finished_at = {now}, ` + moved + ` WHERE key_hash = $1 AND state = 6`),

		NewsLook:   `SELECT 1 FROM {news} WHERE key_hash = $1 AND news_id = $2`,
		NewsInsert: `INSERT INTO {news} (key_hash, news_id, kind, body, received_at) VALUES ($1, $2, $3, $4, {now})`,
		NewsList:   `SELECT news_id, kind, body, received_at FROM {news} WHERE key_hash = $1 ORDER BY received_at, news_id`,

		Intervene:     `INSERT INTO {interventions} (id, key_hash, namespace, action, by_whom, reason, happened_at) VALUES ($1, $2, $3, $4, $5, $6, {now})`,
		Intervened:    `SELECT 1 FROM {interventions} WHERE id = $1`,
		Interventions: `SELECT action, by_whom, reason, happened_at FROM {interventions} WHERE key_hash = $1 ORDER BY happened_at, id`,

		Erase: `UPDATE {staged} SET state = state + 2, request = NULL, result = NULL, reason = NULL, ` + moved + ` WHERE key_hash = $1 AND state IN (2, 3)`,
		// The empty value of the column's own type, which each engine writes differently.
		EraseKey: `UPDATE {staged} SET op_key = substr(op_key, 1, 0), fingerprint = NULL, ` + moved + `
WHERE key_hash = $1 AND state IN (4, 5) AND (length(op_key) > 0 OR fingerprint IS NOT NULL)`,
		EraseSteps: `UPDATE {steps} SET result = NULL WHERE key_hash = $1`,
		EraseNews:  `UPDATE {news} SET body = NULL WHERE key_hash = $1`,

		List: `SELECT ` + info + ` FROM {staged} WHERE namespace = $1 AND ($2 = '' OR tenant = $2) AND ($3 = '' OR operation = $3)
 AND due_at <= {now} - $4 AND key_hash > $5 AND ` + holds + ` AND state IN ({states}) ORDER BY key_hash LIMIT $6`,
		Show: `SELECT ` + info + ` FROM {staged} WHERE key_hash = $1`,
		RecordList: `SELECT ` + recordInfo + ` FROM {records} WHERE namespace = $1 AND ($2 = '' OR tenant = $2) AND ($3 = '' OR operation = $3)
 AND created_at <= {now} - $4 AND key_hash > $5 AND ` + holds + ` AND state IN ({states}) ORDER BY key_hash LIMIT $6`,
		RecordShow:  `SELECT ` + recordInfo + ` FROM {records} WHERE key_hash = $1`,
		RecordTouch: r(`SELECT state FROM {records} WHERE key_hash = $1{for update}`),
		RecordClose: `UPDATE {records} SET state = $2, result = $3, codec = $4, finished_at = {now} WHERE key_hash = $1 AND state = 1`,
		RecordFree:  `DELETE FROM {records} WHERE key_hash = $1 AND state = 1`,
		RecordErase: `UPDATE {records} SET ` + Tombstone + ` WHERE key_hash = $1 AND state IN (2, 3)`,

		Restore: Restore{
			Most: r(`SELECT {greatest}({now} + $1, (SELECT token FROM {floor} WHERE id = 1), COALESCE((SELECT MAX(token) FROM {locks}), 0),
 COALESCE((SELECT MAX(token) FROM {claims}), 0), COALESCE((SELECT MAX(token) FROM {staged}), 0))`),
			Floor: `UPDATE {floor} SET token = $1 WHERE id = 1 AND token < $1`,
			Locks: `UPDATE {locks} SET forced_at = CASE WHEN owner IS NULL THEN forced_at ELSE {now} END,
 forced_by = CASE WHEN owner IS NULL THEN forced_by ELSE $2 END, forced_reason = CASE WHEN owner IS NULL THEN forced_reason ELSE $3 END,
 token = $1, owner = NULL WHERE token < $1`,
			Claims:  `DELETE FROM {claims}`,
			Waiters: `DELETE FROM {waiters}`,
			Pending: `SELECT key_hash, namespace FROM {staged} WHERE state = 1`,
			Park: `UPDATE {staged} SET reason = CASE WHEN state = 1 THEN $2 ELSE reason END, restored = CASE WHEN state IN (1, 6) THEN 1 ELSE restored END,
 state = CASE WHEN state = 1 THEN 6 ELSE state END, owner = NULL, token = $1, ` + moved + ` WHERE token < $1`,
		},
	}
}
