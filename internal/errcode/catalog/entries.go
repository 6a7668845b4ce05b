package catalog

// Entries lists the codes, by package.
var Entries = []Entry{
	// holdfast
	{
		"unknown-outcome",
		[]string{"holdfast.ErrUnknown", "holdfast.UnknownError", "idempotency.ErrUnknown"},
		"The commit was sent and its answer was lost: the effects are there, or they are not.",
		"With a key, call again with the same key: the call waits until the server has ended the first transaction, and then replays or executes. Without one (DB.InTx, Retry and Update of optimistic, a register, Lease.Release), do not call again before you have read what is there first. Work that must happen once belongs under idempotency.Do, or needs a row with a unique number in the same transaction.",
	},
	{
		"transaction-lost",
		[]string{"holdfast.ErrTxLost", "holdfast.TxLostError"},
		"The transaction ended before its commit. Holdfast committed nothing; what DDL or a COMMIT in the function committed stands.",
		"Look what is there before you run it again. Check the error of every statement in the function, end the transaction only by returning, and run no DDL in it.",
	},
	{
		"transaction-rolled-back",
		[]string{"holdfast.ErrRetry", "holdfast.RetryError"},
		"The engine rolled the transaction back on every attempt: a deadlock, a serialization failure, a lock timeout or a time limit of the server. Nothing happened.",
		"Call again. If it happens often, make the transaction shorter, take locks in one order, or raise the setting that the error names.",
	},
	{
		"rows-open",
		[]string{"holdfast.ErrRowsOpen"},
		"The function left rows open, so the driver could not send the commit. Nothing was committed.",
		"Close the rows before the function returns: defer rows.Close().",
	},
	{
		"read-only",
		[]string{"holdfast.ErrReadOnly"},
		"The session, its transaction or the server takes no writes: often a replica, or a primary after a failover.",
		"Connect to the primary, with a read-write transaction.",
	},
	{
		"permission-denied",
		[]string{"holdfast.ErrDenied"},
		"The account lacks a right on a table.",
		"Run what holdfast migrate grants prints for the account's role; holdfast doctor --role lists what is missing.",
	},
	{
		"no-transaction",
		[]string{"holdfast.ErrNoTx"},
		"A nil transaction was given to a function that joins the caller's. Nothing was sent.",
		"Pass the transaction that is open, or call the form without Tx, which opens its own.",
	},
	{
		"invalid-argument",
		[]string{"holdfast.ErrInvalid", "holdfast.InputError"},
		"An argument is invalid. Nothing was sent to the database.",
		"Correct the argument that the error names.",
	},
	{
		"wrong-schema",
		[]string{"holdfast.ErrSchema", "holdfast.SchemaError"},
		"The tables are missing, or are of a version that this build does not support.",
		"Run holdfast migrate status, then holdfast migrate up; if the tables are newer, deploy a newer build.",
	},
	{
		"connection-lost",
		[]string{"holdfast.ErrConnectionLost"},
		"The connection to the database ended, or the driver gave it up, before a statement was answered. A transaction that had not sent its COMMIT is rolled back.",
		"Call again with the same key. If it comes back: a readTimeout in the DSN must be longer than LockTimeout and Wait, and a function must not be idle for as long as wait_timeout.",
	},
	{
		"pool-exhausted",
		[]string{"holdfast.ErrPoolExhausted"},
		"The context of a call ended while every connection of the pool was in use. The call had no connection, so its statement was not sent.",
		"Inside the function of another call (a Do inside a Do or InTx), pass its transaction to the form with Tx, such as DoTx: the outer call keeps its connection until the function returns. Otherwise allow more connections (SetMaxOpenConns, pool_max_conns), or look for transactions and rows that stay open.",
	},
	{
		"statement-too-large",
		[]string{"holdfast.ErrTooLarge"},
		"A statement is larger than the driver or the server accepts. It had no effect.",
		"Send less, or raise max_allowed_packet on the server and maxAllowedPacket in the DSN.",
	},
	{
		"unsupported",
		[]string{"holdfast.ErrUnsupported", "holdfast.UnsupportedError"},
		"The engine, a setting or a table cannot keep a promise.",
		"Do what the error says about the setting; holdfast doctor lists all of them.",
	},
	// idempotency
	{
		"in-progress",
		[]string{"idempotency.ErrInProgress", "idempotency.InProgressError"},
		"Another call had the key and did not end within the wait.",
		"Call again later with the same key.",
	},
	{
		"key-mismatch",
		[]string{"idempotency.ErrMismatch", "idempotency.MismatchError"},
		"The key was used before with another request. Nothing was executed for this one.",
		"Use one key for one intent: a new key for a new request, and exactly the same request when you retry.",
	},
	{
		"too-many-new-keys",
		[]string{"idempotency.ErrTooMany", "idempotency.TooManyError"},
		"The owner has used more new keys than the store's MaxNew or MaxRecords. Nothing was executed.",
		"Call again later with the same key: the error says when. If the owner is right, raise the bound.",
	},
	{
		"result-expired",
		[]string{"idempotency.ErrExpired", "idempotency.ExpiredError"},
		"The operation ended (executed, or rejected if ExpiredError.Rejected), and its result is no longer kept. It is not executed again.",
		"Take the outcome from your own tables, for instance by the business id in the error; keep results longer with Options.ResultTTL.",
	},
	{
		"void-too-late",
		[]string{"idempotency.ErrTooLate", "idempotency.TooLateError"},
		"The operation was done, or refused, or its outside call has begun, before it was to be voided. Nothing was changed.",
		"Look at the state in the error: reverse what was done with an operation of its own, such as a refund, or wait for what is under way and look again.",
	},
	{
		"inner-outcome",
		[]string{"idempotency.InnerError"},
		"The function failed with the outcome of another operation, such as an inner DoTx that is in progress, expired, unknown or rejected. The outer operation was rolled back and its key is free.",
		"Handle the inner operation's error in the function: return nil if the inner operation is done, or a new error of idempotency.Reject to refuse the outer one too. The field Err is the inner error.",
	},
	{
		"key-nested",
		[]string{"idempotency.ErrNested"},
		"A function asked for the key that it runs under, and would wait for itself.",
		"Do the work in the function itself, or use another key for the inner operation.",
	},
	{
		"claim-unfinished",
		[]string{"idempotency.UnfinishedError"},
		"The key was claimed and committed without a result: the function ran DDL or a COMMIT. Its effects may be there.",
		"Look at the effects, then settle the record with holdfast ops resolve.",
	},
	{
		"rejected",
		[]string{"idempotency.Rejection"},
		"The function refused the operation, and the refusal is kept as the result of the key: by default for 30 days (Options.RejectionTTL).",
		"Tell the caller why (Rejection.Code and Message); a corrected request is a new intent with a new key.",
	},
	{
		"result-unreadable",
		[]string{"idempotency.ResultError"},
		"The operation was executed or rejected before, and this program cannot read what it stored. Nothing was executed now.",
		"Call with the type that was stored, and add the codec that wrote it to Options.FormerCodecs.",
	},
	{
		"codec-missing",
		[]string{"idempotency.MissingCodecError"},
		"A result was stored with a codec that the store does not have, such as that of a former encryption key.",
		"Add the codec that the error names to Options.FormerCodecs.",
	},
	{
		"similar",
		[]string{"idempotency.ErrSimilar", "idempotency.SimilarError"},
		"A similar operation was executed under another key within the window. Nothing was executed for this one.",
		"Ask the user. If it is meant, call again with Similar.Confirm set to the error's Token.",
	},
	{
		"business-row-unique",
		[]string{"businessrow.ErrUniqueViolation"},
		"Another unique key of the table refused the row, so a different row is in the way. This is no replay.",
		"Look at the row that has the value, and correct the request or the table's key.",
	},
	// idempotency/idemclient
	{
		"http-key-missing",
		[]string{"idemclient.ErrKeyMissing"},
		"The request has no Idempotency-Key header.",
		"Send one: a new value for each intent, the same value for each retry.",
	},
	{
		"http-key-malformed",
		[]string{"idemclient.ErrKeyMalformed"},
		"The Idempotency-Key header is empty, was given more than once, or is not a string.",
		"Send it once, as a string of at most 255 characters, in quotes or bare.",
	},
	{
		"request-unanswered",
		[]string{"idemclient.UnansweredError"},
		"The request was sent and no response arrived: the server executed it, or did not.",
		"Send it again with the same key (idemclient.WithKey).",
	},
	// idempotency/staged
	{
		"step-unknown",
		[]string{"staged.StepError"},
		"The outcome of an outside call is not known yet. The completer continues the operation as its step declares.",
		"Wait, or call again with the same key. Run a completer, so that operations whose callers are gone go on.",
	},
	{
		"operation-parked",
		[]string{"staged.ParkedError"},
		"The outcome of a step is unknown, and nothing is called again automatically.",
		"Ask the provider what happened, then holdfast ops resolve says it; an event of the provider does too (HandleEvent).",
	},
	{
		"step-accepted",
		[]string{"staged.AcceptedError"},
		"The provider accepted the call and settles it later.",
		"Answer that it is pending. The provider's event continues the operation; past the deadline the step is looked at again.",
	},
	{
		"worker-stale",
		[]string{"staged.ErrStale", "staged.StaleError"},
		"The lease of this worker ended and another took the operation over. Its write was refused.",
		"Call again with the same key. If it happens often, raise Workflow.Lease above the longest step.",
	},
	{
		"operation-state",
		[]string{"staged.ErrState", "staged.StateError"},
		"The state of the operation does not allow the action.",
		"Look at the operation with holdfast ops show, and do what the error's hint says.",
	},
	{
		"staged-in-transaction",
		[]string{"staged.ErrInTx", "staged.InTxError"},
		"A staged operation was called within a transaction. Nothing was done.",
		"Begin it there with StartTx, which commits it with the transaction, or call it after the transaction has ended.",
	},
	{
		"operation-not-found",
		[]string{"staged.ErrNotFound"},
		"There is no such operation in this namespace.",
		"Check namespace, owner, name and key: holdfast ops list shows what there is, and which other namespaces have some.",
	},
	// idempotency/operators
	{
		"resolution-unknown",
		[]string{"operators.ErrChoice"},
		"There is no resolution with this name.",
		"Use one that holdfast ops resolve --help lists.",
	},
	{
		"resolution-not-json",
		[]string{"operators.ErrResultJSON"},
		"The result of a resolution is not JSON.",
		"Give what the function would have returned, such as null, 12 or \"text\" with its quotes.",
	},
	{
		"resolution-no-code",
		[]string{"operators.ErrNoCode"},
		"A rejection has no code.",
		"Give a code for programs, and a message for people.",
	},
	{
		"resolution-result-unwanted",
		[]string{"operators.ErrResultUnwanted"},
		"A result was given with a resolution that takes none.",
		"Leave it out: only step-done and succeeded take one.",
	},
	// idempotency/outbox
	{
		"not-dead",
		[]string{"outbox.ErrNotDead"},
		"There is no such dead letter: it was requeued, discarded or published.",
		"List the dead letters again.",
	},
	// sqllock
	{
		"lock-held",
		[]string{"sqllock.ErrHeld", "sqllock.HeldError"},
		"Another holder has the lock.",
		"Try later, or wait with Acquire. holdfast locks list shows who has it, and holdfast locks release takes it away.",
	},
	{
		"lease-lost",
		[]string{"sqllock.ErrLost", "sqllock.LostError"},
		"The term ended: it was not renewed in time, the lock was granted again, or it was taken away.",
		"Stop the work. A guarded transaction that returned nil is committed and stands; one that returned ErrLost wrote nothing. Do may return this error after its transaction has committed, so look, or make the work an idempotent operation, before you run it again.",
	},
	{
		"lease-released",
		[]string{"sqllock.ErrReleased"},
		"Release ended the lease's context.",
		"Nothing, if the work was over; else release the lease after the work.",
	},
	{
		"locker-closed",
		[]string{"sqllock.ErrClosed"},
		"The Locker was closed.",
		"Close it when the program ends, after the work.",
	},
	{
		"other-store",
		[]string{"sqllock.ErrOtherStore"},
		"The term belongs to other tables, or to those of before holdfast after-restore.",
		"Acquire the lock again on the database that is written to. After holdfast after-restore the same Locker stays refused: close it and open another.",
	},
	{
		"fence-missing",
		[]string{"fence.ErrNotEnforced", "fence.EnforceError"},
		"The database does not refuse writes to this table without the token of a live term.",
		"Do what the error names, then Table.Enforce again.",
	},
	{
		"fence-refused",
		[]string{"fence.RefusedError"},
		"The trigger refused a write whose token is not that of the live term.",
		"Acquire the lock again, read the row again, and write the token of the new lease.",
	},
	{
		"lock-nested",
		[]string{"fairlock.ErrNested", "fairlock.NestedError"},
		"The context that asks for the lock has it already, and would wait for itself.",
		"Release that lease first, or ask in a context that does not come from it.",
	},
	{
		"semaphore-capacity",
		[]string{"fairlock.ErrCapacity", "fairlock.CapacityError"},
		"Others use the semaphore with another number of permits.",
		"Name the same number everywhere, or wait until none of the others is left.",
	},
	// sqllock/rowlock
	{
		"row-locked",
		[]string{"rowlock.ErrLockNotAvailable", "rowlock.LockNotAvailableError"},
		"Another transaction has the row lock. The transaction goes on.",
		"Try later, or wait for it.",
	},
	{
		"row-lock-timeout",
		[]string{"rowlock.ErrTimeout", "rowlock.TimeoutError"},
		"The row lock was not acquired in time. The transaction goes on.",
		"Try later or wait longer; the error's Blockers say which session has it.",
	},
	{
		"row-not-found",
		[]string{"rowlock.ErrNotFound", "rowlock.NotFoundError"},
		"The table has no row with this key. The transaction goes on.",
		"Check the key, or insert the row first.",
	},
	{
		"session-lock-lost",
		[]string{"rowlock.ErrLost", "rowlock.LostError"},
		"The session lock ended before its release: its connection is gone.",
		"Stop the work and acquire the lock again.",
	},
	{
		"session-lock-released",
		[]string{"rowlock.ErrReleased"},
		"Release ended the session lock's context.",
		"Nothing, if the work was over; else release the lock after the work.",
	},
	// optimistic
	{
		"version-conflict",
		[]string{"optimistic.ErrConflict", "optimistic.ConflictError", "register.ErrConflict", "register.ConflictError"},
		"The row or value was changed since it was read. Nothing was written.",
		"Read it again in a new transaction, and decide again: optimistic.Retry does.",
	},
	{
		"version-refused",
		[]string{"optimistic.RefusedError"},
		"A trigger or procedure refused an UPDATE that did not move the row's version by one.",
		"Write the row through its Table, or set the version to the one that was read plus one.",
	},
	{
		"version-not-found",
		[]string{"optimistic.ErrNotFound", "optimistic.NotFoundError", "register.ErrNotFound", "register.NotFoundError"},
		"No row, or no value, has this key: it never existed, or was deleted since it was read.",
		"Check the key, or create it.",
	},
	{
		"row-duplicate",
		[]string{"optimistic.ErrDuplicate", "optimistic.DuplicateError"},
		"A unique key of the table refused a new row.",
		"Read the row that is there, and update it or give the new one another key.",
	},
	{
		"versions-not-enforced",
		[]string{"optimistic.ErrNotEnforced", "optimistic.EnforceError"},
		"The database does not refuse updates that leave the version unchanged.",
		"Do what the error names, then Table.Enforce again.",
	},
	// limits
	{
		"limit-exceeded",
		[]string{"limits.ErrExceeded", "limits.ExceededError"},
		"The amount does not fit into the limit, or a new limit is below what is used. Nothing was reserved.",
		"Refuse the request, or void reservations first; the error says what is available.",
	},
	{
		"limit-not-found",
		[]string{"limits.ErrNotFound", "limits.NotFoundError"},
		"There is no such limit, or no reservation with this id.",
		"Create the limit with Set, or reserve first.",
	},
	{
		"limit-mismatch",
		[]string{"limits.ErrMismatch", "limits.MismatchError"},
		"The id was used before for something else.",
		"Use a new id for something new, and the same arguments for the same.",
	},
	{
		"reservation-expired",
		[]string{"limits.ErrExpired", "limits.EndedError"},
		"The reservation was not captured in time, and no longer counts.",
		"If the provider has not paid, reserve again with a new id. If it may have paid, do not call it again: take the amount under another id. It may not fit any more (ErrExceeded): then raise the limit, or reverse the payment.",
	},
	{
		"reservation-voided",
		[]string{"limits.ErrVoided"},
		"The reservation was voided.",
		"Reserve again with a new id.",
	},
	{
		"reservation-captured",
		[]string{"limits.ErrCaptured"},
		"The reservation was captured, so it cannot be voided.",
		"Take a captured amount back with a movement of its own.",
	},
	// reaper
	{
		"clock-jump",
		[]string{"reaper.ErrClockJump", "reaper.ClockJumpError"},
		"The database's clock was set, or the process stood still. Nothing was swept.",
		"Look at the clock, and set it right. A reaper that was running refuses until the clock is back, AcceptClock is called in that process, or it restarts. A new process accepts the clock as it is: do not restart programs or run holdfast reap before the clock is right.",
	},
	// operators and audit
	{
		"no-proposal",
		[]string{"operators.ErrNoProposal"},
		"There is no such proposal in this namespace: it was confirmed, has expired, or never was. Nothing was done.",
		"List what waits: holdfast ops proposals. Propose it again if it is still wanted.",
	},
	{
		"same-person",
		[]string{"operators.ErrSamePerson"},
		"The person who confirms is the one who proposed. Nothing was done.",
		"Let another person confirm, under a name and a database account of their own.",
	},
	{
		"lock-not-held",
		[]string{"operators.ErrNotHeld"},
		"The lock of the proposal is no longer held, or another has it now. Nothing was done.",
		"Look who has it: holdfast locks list. Propose again if that one is to be released.",
	},
	{
		"audit-broken",
		[]string{"audit.ErrBroken", "audit.BrokenError"},
		"The audit is not as it was written: the error names the first row that was changed, removed, added or cut off.",
		"Treat it as an attack until it is explained: keep a copy of the table, and compare it with a backup and with the last head that you kept.",
	},
	// holdfastcrypt
	{
		"value-tampered",
		[]string{"holdfastcrypt.ErrTampered", "holdfastcrypt.TamperedError"},
		"A stored value was changed, copied from another row, or encrypted with another secret under the same id.",
		"Treat it as an attack until it is explained: compare with a backup, and check that no key id was given to two secrets.",
	},
}
