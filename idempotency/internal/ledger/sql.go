package ledger

import (
	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/dialect"
)

// SQL holds the statements of the staged operations, which compile writes.
//
// A worker has an operation by attempt and token: each of its statements names both, and a new
// token takes the row away from it. Every statement changes the version of the row, so the
// number of affected rows is the number of matched rows, whichever of them a driver counts.
type SQL struct {
	// Those that may end a transaction.
	Own, Finish, StepInsert, StepBegin, StepEnd                 core.Bound
	Look, Latest, Insert, Claim, Renew, Accept                  core.Stmt
	Release, Park, ParkDue, Due, StepLook, StepFind, Steps      core.Stmt
	StepAccept, StepReverse, Reverse, ReferenceFind             core.Stmt
	Void, Cancel                                                core.Stmt
	StepType, StepCorrect, StepNames, StepRefer                 core.Stmt
	Touch, Unpark, Known, Closing, Contradict, Contradicted     core.Stmt
	EventRead, EventInsert, EventList, Intervene, Interventions core.Stmt
	Intervened, EventBegin, EventEnd                            core.Stmt
	Erase, EraseSteps, EraseEvents, EraseKey, EraseReferences   core.Stmt
	Forget, ForgetSteps, ForgetEvents                           core.Stmt

	lists
}

const (
	columns = `state, fingerprint, fingerprint_version, request, result, attempt, token, due_at - {now}, step, mode, started, finished, restored, COALESCE(reason, ''), COALESCE(result_type, ''),
 accepted, COALESCE(reversed_at, 0), CASE WHEN result_expires_at <= {now} THEN 1 ELSE 0 END, CASE WHEN key_expires_at <= {now} THEN 1 ELSE 0 END, COALESCE(program, ''), COALESCE(request_id, ''), namespace, operation`
	mine     = ` WHERE owner = $0 AND key_hash = $1 AND attempt = $2 AND token = $3 AND state = 1`
	moved    = `version = version + 1, moved_at = {now}`
	nextTerm = `token = {greatest}(token + 1, {now})`

	// Intervene has the parameters: id, key_hash, namespace, action, by_whom, reason.
	Intervene = `INSERT INTO {interventions} (owner, id, key_hash, namespace, action, by_whom, reason, happened_at) VALUES ($0, $1, $2, $3, $4, $5, $6, {now})`
)

// expires sets the expiry of an operation that ends. The parameters are in µs, or NULL.
func expires(result, key string) string {
	return `result_expires_at = {now} + ` + result + `, key_expires_at = {now} + ` + key + `, `
}

// compile compiles the statements. The comment of each lists its parameters. $0 is the owner, except in
// those of all owners.
func compile(d *dialect.Dialect, table func(string) string) SQL {
	r := d.Names(table)
	x := func(name, text string) core.Stmt { return d.Compile("staged."+name, r.Replace(text)) }
	last := func(name, text string) core.Bound { return d.Last("staged."+name, r.Replace(text)) }
	ignore := d.Fragments.OrIgnore("owner, key_hash", "version")
	return SQL{
		lists: compileLists(d, r),

		// key_hash.
		Look: x("look", `SELECT `+columns+` FROM {staged} WHERE owner = $0 AND key_hash = $1`),
		// key_hash. It reads the latest committed row, and locks it.
		Latest: x("latest", `SELECT `+columns+` FROM {staged} WHERE owner = $0 AND key_hash = $1{for update}`),
		// key_hash, namespace, operation, op_key, fingerprint, fingerprint_version, request, attempt, holder, lease (µs), result_type,
		// attempts started, program, request_id.
		Insert: x("insert", `INSERT INTO {staged} (owner, key_hash, namespace, operation, op_key, fingerprint, fingerprint_version, request, state, attempt, holder, token, due_at, step, mode, started, finished, restored, accepted, version, created_at, moved_at, result_type, program, request_id)
VALUES ($0, $1, $2, $3, $4, $5, $6, $7, 1, $8, $9, {greatest}((SELECT token + 1 FROM {floor} WHERE id = 1), {now}), {now} + $10, '', 1, $12, 0, 0, 0, 0, {now}, {now}, $11, $13, $14) `+ignore),
		// key_hash, namespace, operation, op_key, fingerprint_version, rejection, attempt, ResultTTL, KeyTTL (µs or NULL). It
		// writes the row of an operation that is never to begin.
		Void: x("void", `INSERT INTO {staged} (owner, key_hash, namespace, operation, op_key, fingerprint_version, result, state, attempt, token, due_at, step, mode, started, finished, restored, accepted, version, created_at, moved_at, finished_at, result_expires_at, key_expires_at)
VALUES ($0, $1, $2, $3, $4, $5, $6, 3, $7, {greatest}((SELECT token + 1 FROM {floor} WHERE id = 1), {now}), {now}, '', 1, 0, 0, 0, 0, 0, {now}, {now}, {now}, {now} + $8, {now} + $9) `+ignore),
		// key_hash, rejection, attempt, ResultTTL, KeyTTL (µs or NULL). An operation that has not ended ends.
		Cancel: x("cancel", `UPDATE {staged} SET state = 3, result = $2, attempt = $3, `+nextTerm+`, step = '', mode = 1, accepted = 0, reason = NULL, due_at = {now}, finished_at = {now}, `+expires("$4", "$5")+moved+` WHERE owner = $0 AND key_hash = $1 AND state IN (1, 6)`),
		// key_hash, attempt, holder, lease (µs), expected token, result_type, program, request_id. MySQL evaluates assignments
		// from left to right, so the attempt comes last. A claim that is sent again finds its own term.
		Claim: x("claim", `UPDATE {staged} SET token = CASE WHEN attempt = $2 THEN token ELSE {greatest}(token + 1, {now}) END,
 started = CASE WHEN attempt = $2 THEN started ELSE started + 1 END, holder = $3, due_at = {now} + $4, result_type = $6,
 program = $7, request_id = COALESCE($8, request_id), accepted = 0, `+moved+`, attempt = $2
WHERE owner = $0 AND key_hash = $1 AND state = 1 AND (attempt = $2 OR token = $5 AND due_at <= {now})`),
		// key_hash, attempt, token, step, mode, lease (µs).
		Own: last("own", `UPDATE {staged} SET step = $4, mode = $5, due_at = {now} + $6, `+moved+mine),
		// key_hash, attempt, token, lease (µs).
		Renew: x("renew", `UPDATE {staged} SET due_at = {now} + $4, `+moved+mine),
		// key_hash, attempt, token, time until the deadline (µs).
		Accept: x("accept", `UPDATE {staged} SET attempt = NULL, holder = NULL, accepted = 1, due_at = {now} + $4, reason = NULL, started = 0, finished = 0, `+moved+mine),
		// key_hash, attempt, token, state, result, ResultTTL, KeyTTL (µs or NULL).
		Finish: last("finish", `UPDATE {staged} SET state = $4, result = $5, step = '', mode = 1, reason = NULL, due_at = {now}, finished = finished + 1, finished_at = {now}, `+expires("$6", "$7")+moved+mine),
		// key_hash, attempt, token, pause (µs), reason, 1 not to count the attempt.
		Release: x("release", `UPDATE {staged} SET attempt = NULL, holder = NULL, due_at = {now} + $4, reason = $5, started = started - $6, finished = finished + 1 - $6, `+moved+mine),
		// key_hash, attempt, token, reason.
		Park: x("park", `UPDATE {staged} SET state = 6, attempt = NULL, `+nextTerm+`, due_at = {now}, reason = $4, finished = finished + 1, `+moved+mine),
		// key_hash, expected token, reason, the step that was read: an event may have answered it.
		ParkDue: x("park due", `UPDATE {staged} SET state = 6, attempt = NULL, `+nextTerm+`, reason = $3, accepted = 0, `+moved+` WHERE owner = $0 AND key_hash = $1 AND token = $2 AND step = $4 AND state = 1 AND due_at <= {now}`),
		// namespace, operation, limit (of all owners; returns owner and key_hash).
		Due: x("due", `SELECT owner, key_hash FROM {staged} WHERE namespace = $1 AND operation = $2 AND state = 1 AND due_at <= {now} ORDER BY due_at LIMIT $3`),

		// key_hash, name.
		StepLook: x("step.look", `SELECT state, token, result, COALESCE(result_type, ''), {now} - begun_at FROM {steps} WHERE owner = $0 AND key_hash = $1 AND name = $2`),
		// key_hash, name, state, provider_key, result, token, result_type.
		StepInsert: last("step.insert", `INSERT INTO {steps} (owner, key_hash, name, state, provider_key, result, token, starts, begun_at, moved_at, result_type)
VALUES ($0, $1, $2, $3, $4, $5, $6, 1, {now}, {now}, $7)`),
		// key_hash, name, token, result_type, 1 if it is a new call.
		StepBegin: last("step.begin", `UPDATE {steps} SET begun_at = CASE WHEN state = 0 OR $5 = 1 THEN {now} ELSE begun_at END, state = 1, starts = starts + 1, token = $3, result_type = $4, deadline_at = NULL, moved_at = {now} WHERE owner = $0 AND key_hash = $1 AND name = $2 AND state IN (0, 1, 4)`),
		// key_hash, name, state, result, provider, reference (of a step that has not ended; NULL keeps a provider and a reference).
		StepEnd: last("step.end", `UPDATE {steps} SET state = $3, result = $4, provider = COALESCE($5, provider), reference = COALESCE($6, reference), moved_at = {now} WHERE owner = $0 AND key_hash = $1 AND name = $2 AND state IN (0, 1, 4)`),
		// key_hash, name, provider, reference, time until the deadline (µs).
		StepAccept: x("step.accept", `UPDATE {steps} SET state = 4, provider = $3, reference = COALESCE($4, reference), deadline_at = {now} + $5, moved_at = {now} WHERE owner = $0 AND key_hash = $1 AND name = $2 AND state IN (0, 1, 4)`),
		// key_hash, name, state (of a step that was done; or has begun, if that is the state).
		StepReverse: x("step.reverse", `UPDATE {steps} SET reversed_at = COALESCE(reversed_at, {now}), moved_at = {now} WHERE owner = $0 AND key_hash = $1 AND name = $2 AND (state = 2 OR $3 = 1 AND state IN (1, 4))`),
		// key_hash.
		Reverse: x("reverse", `UPDATE {staged} SET reversed_at = COALESCE(reversed_at, {now}), `+moved+` WHERE owner = $0 AND key_hash = $1`),
		// provider, reference, namespace (returns key_hash and the step's name).
		ReferenceFind: x("reference.find", `SELECT p.key_hash, p.name FROM {steps} p JOIN {staged} s ON s.owner = p.owner AND s.key_hash = p.key_hash
WHERE p.owner = $0 AND p.provider = $1 AND p.reference = $2 AND s.namespace = $3 LIMIT 2`),
		// key_hash, name, result_type.
		StepType: x("step.type", `UPDATE {steps} SET result_type = $3 WHERE owner = $0 AND key_hash = $1 AND name = $2`),
		// key_hash, name, state, result (of a step that has ended).
		StepCorrect: x("step.correct", `UPDATE {steps} SET state = $3, result = $4, moved_at = {now} WHERE owner = $0 AND key_hash = $1 AND name = $2 AND state IN (2, 3)`),
		// key_hash, name, provider, reference (NULL keeps one, and a provider without a name is ''), 1 to replace an existing reference.
		StepRefer: x("step.refer", `UPDATE {steps} SET provider = CASE WHEN $5 = 1 OR reference IS NULL THEN COALESCE($3, provider, CASE WHEN COALESCE($4, reference) IS NULL THEN NULL ELSE '' END) ELSE provider END,
 reference = CASE WHEN $5 = 1 OR reference IS NULL THEN COALESCE($4, reference) ELSE reference END WHERE owner = $0 AND key_hash = $1 AND name = $2`),
		// key_hash.
		StepNames: x("step.names", `SELECT name FROM {steps} WHERE owner = $0 AND key_hash = $1 ORDER BY name`),
		// provider_key, namespace (of all owners; returns owner, key_hash and the step's name).
		StepFind: x("step.find", `SELECT p.owner, p.key_hash, p.name FROM {steps} p JOIN {staged} s ON s.owner = p.owner AND s.key_hash = p.key_hash WHERE p.provider_key = $1 AND p.provider_key <> '' AND s.namespace = $2`),
		// key_hash.
		Steps: x("steps", `SELECT name, state, provider_key, starts, token, begun_at, moved_at, COALESCE(result_type, ''), COALESCE(provider, ''), COALESCE(reference, ''), COALESCE(deadline_at, 0), COALESCE(reversed_at, 0) FROM {steps} WHERE owner = $0 AND key_hash = $1 ORDER BY begun_at, name`),

		// key_hash. It locks the row.
		Touch: x("touch", `UPDATE {staged} SET `+moved+` WHERE owner = $0 AND key_hash = $1`),
		// key_hash. An unknown operation continues.
		Unpark: x("unpark", `UPDATE {staged} SET state = 1, attempt = NULL, `+nextTerm+`, due_at = {now}, mode = 1, step = '', accepted = 0, reason = NULL, started = 0, finished = 0, `+moved+` WHERE owner = $0 AND key_hash = $1 AND state = 6`),
		// key_hash, step. The outcome of the step is no longer ambiguous.
		Known: x("known", `UPDATE {staged} SET step = '', mode = 1, due_at = CASE WHEN accepted = 1 OR attempt IS NULL THEN {now} ELSE due_at END, accepted = 0, `+moved+` WHERE owner = $0 AND key_hash = $1 AND state = 1 AND step = $2`),
		// key_hash, step, mode, reason. An operation that has not ended becomes unknown.
		Contradict: x("contradict", `UPDATE {staged} SET state = 6, finished = CASE WHEN attempt IS NULL THEN finished ELSE finished + 1 END, attempt = NULL, `+nextTerm+`, due_at = {now},
 step = $2, mode = $3, reason = $4, accepted = 0, `+moved+` WHERE owner = $0 AND key_hash = $1 AND state IN (1, 6)`),
		// key_hash, reason (of an operation that has ended).
		Contradicted: x("contradicted", `UPDATE {staged} SET mode = 5, reason = $2, `+moved+` WHERE owner = $0 AND key_hash = $1 AND state NOT IN (1, 6)`),
		// key_hash, state, result, ResultTTL, KeyTTL. An unknown operation ends.
		Closing: x("close", `UPDATE {staged} SET state = $2, result = $3, `+nextTerm+`, step = '', mode = 1, reason = NULL, finished_at = {now}, `+expires("$4", "$5")+moved+` WHERE owner = $0 AND key_hash = $1 AND state = 6`),

		// key_hash, event_id.
		EventRead: x("event.read", `SELECT received_at FROM {provider_events} WHERE owner = $0 AND key_hash = $1 AND event_id = $2`),
		// key_hash, event_id, kind, body.
		EventInsert: x("event.insert", `INSERT INTO {provider_events} (owner, key_hash, event_id, kind, body, received_at) VALUES ($0, $1, $2, $3, $4, {now})`),
		// As EventInsert, until EventEnd says that its function has succeeded.
		EventBegin: x("event.begin", `INSERT INTO {provider_events} (owner, key_hash, event_id, kind, body, received_at) VALUES ($0, $1, $2, $3, $4, 0)`),
		// key_hash, event_id.
		EventEnd: x("event.end", `UPDATE {provider_events} SET received_at = {now} WHERE owner = $0 AND key_hash = $1 AND event_id = $2 AND received_at = 0`),
		// key_hash.
		EventList: x("event.list", `SELECT event_id, kind, body, received_at FROM {provider_events} WHERE owner = $0 AND key_hash = $1 ORDER BY CASE WHEN received_at = 0 THEN 1 ELSE 0 END, received_at, event_id`),

		Intervene: x("intervene", Intervene),
		// id.
		Intervened: x("intervened", `SELECT 1 FROM {interventions} WHERE owner = $0 AND id = $1`),
		// key_hash.
		Interventions: x("interventions", `SELECT action, by_whom, reason, happened_at FROM {interventions} WHERE owner = $0 AND key_hash = $1 ORDER BY happened_at, id`),

		// key_hash, as those below.
		Erase: x("erase", `UPDATE {staged} SET state = state + 2, request = NULL, result = NULL, reason = NULL, request_id = NULL, result_expires_at = NULL, `+moved+` WHERE owner = $0 AND key_hash = $1 AND state IN (2, 3)`),
		// An empty value of the column's own type, which each engine writes differently.
		EraseKey: x("erase.key", `UPDATE {staged} SET op_key = substr(op_key, 1, 0), fingerprint = NULL, `+moved+`
WHERE owner = $0 AND key_hash = $1 AND state IN (4, 5) AND (length(op_key) > 0 OR fingerprint IS NOT NULL)`),
		EraseSteps:      x("erase.steps", `UPDATE {steps} SET result = NULL WHERE owner = $0 AND key_hash = $1`),
		EraseReferences: x("erase.references", `UPDATE {steps} SET reference = NULL WHERE owner = $0 AND key_hash = $1`),
		// key_hash, as those below. It deletes an operation whose KeyTTL is over.
		Forget:       x("forget", `DELETE FROM {staged} WHERE owner = $0 AND key_hash = $1 AND state IN (2, 3, 4, 5) AND key_expires_at <= {now}`),
		ForgetSteps:  x("forget.steps", `DELETE FROM {steps} WHERE owner = $0 AND key_hash = $1`),
		ForgetEvents: x("forget.events", `DELETE FROM {provider_events} WHERE owner = $0 AND key_hash = $1`),
		EraseEvents:  x("erase.events", `UPDATE {provider_events} SET body = NULL, kind = '' WHERE owner = $0 AND key_hash = $1`),
	}
}
