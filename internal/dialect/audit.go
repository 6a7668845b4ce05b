package dialect

// Audit is what differs between engines in the audit; package auditlog has its statements.
type Audit struct {
	// Lock is a statement that makes the transaction wait for another one that appends. {lockspace} is the
	// number of the chain's lock. Empty: the engine, or Last, makes it wait. Last ends the read of the last
	// committed row.
	Lock, Last string
	// SetsSession: the default of session_name is the session's user, and no grant lets an account name
	// another one.
	SetsSession bool
	// PerOwner: each owner has its own chain, because a transaction has one shard. Otherwise there is
	// one chain, with the name "".
	PerOwner bool
}

// AuditColumns are the columns that an account may write where the database sets session_name.
var AuditColumns = []string{"chain", "seq", "happened_at", "actor", "action", "kind", "owner", "namespace", "subject", "reason", "confirmed_by", "before_state", "after_state", "hash"}
