package ledger

import (
	"cmp"
	"context"
	"strconv"
	"strings"

	"github.com/holdfast-go/holdfast/idempotency/internal/once"
	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/dialect"
)

// The columns of an operation for operators.
const (
	info       = `owner, key_hash, operation, op_key, ` + seen + `, step, started, finished, created_at, moved_at, due_at - {now}, token, COALESCE(reason, ''), COALESCE(holder, ''), COALESCE(result_type, ''), COALESCE(reversed_at, 0), COALESCE(program, ''), COALESCE(request_id, ''), mode, restored`
	recordInfo = `owner, key_hash, operation, op_key, ` + RecordSeen + `, '', 1, 0, created_at, COALESCE(finished_at, created_at), 0, created_at, '', COALESCE(holder, ''), '', 0, COALESCE(program, ''), COALESCE(request_id, ''), 0, 0`
)

// lists are the statements that list and show operations. Those with Record in their names do the same on
// the records of Do.
type lists struct {
	Show, RecordShow core.Stmt
	// Texts. {states} are numbers of states as they are seen, {rows} those of such rows, and {of} is
	// ofOwner if an owner is given: the alternative alone would not let the engine use the key.
	list, recordList string
	// The next two count the operations of each namespace, among the first ones. Parameter: how many at
	// most.
	namespaces, recordNamespaces string
}

const ofOwner = ` AND owner = $2`

func compileLists(d *dialect.Dialect, r *strings.Replacer) lists {
	show := func(text string) core.Stmt { return d.Compile("operators.show", r.Replace(text)) }
	// Parameters: namespace, owner and operation ("" for all), for how long they have been due, or how
	// long the record exists (µs), owner and key_hash to continue after, limit, bytes that the key contains.
	const in = `state IN ({rows}) AND `
	list := func(from, since, seen string) string {
		return r.Replace(`SELECT ` + from + ` WHERE namespace = $1 AND ($2 = '' OR owner = $2){of} AND ($3 = '' OR operation = $3)
 AND ` + since + ` <= {now} - $4 AND ` + d.Compare([]string{"owner", "key_hash"}, ">", "$5", "$6") + ` AND ` + d.Fragments.Has("op_key", "$8") +
			` AND ` + in + seen + ` IN ({states}) ORDER BY owner, key_hash LIMIT $7`)
	}
	namespaces := func(from, seen string) string {
		return r.Replace(`SELECT namespace, COUNT(*) FROM (SELECT namespace FROM ` + from + ` WHERE ` + in + seen + ` IN ({states}) LIMIT $1) found GROUP BY namespace`)
	}
	return lists{
		Show:       show(`SELECT ` + info + ` FROM {staged} WHERE owner = $0 AND key_hash = $1`),
		RecordShow: show(`SELECT ` + recordInfo + ` FROM {records} WHERE owner = $0 AND key_hash = $1`),
		list:       list(info+` FROM {staged}`, `due_at`, seen),
		recordList: list(recordInfo+` FROM {records}`, `created_at`, RecordSeen),

		namespaces: namespaces(`{staged}`, seen), recordNamespaces: namespaces(`{records}`, RecordSeen),
	}
}

// Selection picks operations.
type Selection struct {
	// Records selects records of Do instead of staged operations.
	Records                bool
	Namespace, Owner, Name string
	States                 []int  // as they are seen
	Rows                   string // of these, only rows with these states; empty means all
	// Least is the minimum time since an operation became due, in µs.
	Least int64
	After once.ID
	Limit int
	Key   []byte
}

// List lists operations. The caller reads and closes the rows.
func (l *Ledger[Tx]) List(ctx context.Context, q core.Querier, s Selection) (core.Rows, error) {
	text := l.SQL.list
	if s.Records {
		text = l.SQL.recordList
	}
	of := ""
	if s.Owner != "" {
		of = ofOwner
	}
	text = strings.NewReplacer("{of}", of).Replace(inStates(text, s.States, s.Rows))
	return l.Access.Dialect.Compile("operators.list", text).Query(ctx, q, s.Namespace, s.Owner, s.Name, s.Least, s.After.Owner, s.afterHash(), s.Limit, notNil(s.Key))
}

// Namespaces counts operations in states by namespace, most of them. The caller reads and closes the rows.
func (l *Ledger[Tx]) Namespaces(ctx context.Context, q core.Querier, records bool, states []int, most int) (core.Rows, error) {
	text := l.SQL.namespaces
	if records {
		text = l.SQL.recordNamespaces
	}
	return l.Access.Dialect.Compile("operators.namespaces", inStates(text, states, "")).Query(ctx, q, most)
}

// inStates fills in the states of a text of lists.
func inStates(text string, states []int, rows string) string {
	seen, all := make([]string, len(states)), make([]string, len(states))
	for i, s := range states {
		seen[i], all[i] = strconv.Itoa(s), rowStates[s]
	}
	return strings.NewReplacer("{states}", strings.Join(seen, ", "), "{rows}", cmp.Or(rows, strings.Join(all, ", "))).Replace(text)
}

// afterHash returns the hash to continue after, which is empty at the beginning.
func (s *Selection) afterHash() []byte {
	if s.After == (once.ID{}) {
		return []byte{}
	}
	return s.After.Hash[:]
}

func notNil(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}
