package dialect

// Tables lists Holdfast's own tables, without the prefix. The last of them is the one that the
// migrations create last.
var Tables = []string{
	"schema", "records", "locks", "floor", "registers", "waiters", "tickets", "staged", "steps", "interventions", "sweeps", "provider_events",
	"outbox", "outbox_keys", "similar", "limits", "limit_entries", "proposals", "servers", "audit",
}
