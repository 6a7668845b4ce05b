package holdfastcrypt_test

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/holdfastcrypt"
	"github.com/holdfast-go/holdfast/holdfasttest"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/idempotency/operators"
	"github.com/holdfast-go/holdfast/idempotency/outbox"
	"github.com/holdfast-go/holdfast/idempotency/staged"
	"github.com/holdfast-go/holdfast/limits"
	"github.com/holdfast-go/holdfast/optimistic/register"
	"github.com/holdfast-go/holdfast/sqllock"
)

// marks are what a program gives to Holdfast, each in its own words.
var marks = []string{
	"the-owner", "the-operation", "the-key", "the-question", "the-result", "the-business-id", "the-similar", "the-code", "the-refusal",
	"the-request-id", "the-order", "the-outcome", "the-step", "the-paid", "the-provider", "the-reference", "the-event-id", "the-kind", "the-body", "the-error", "the-field",
	"the-person", "the-why", "the-rest",
}

type receipt struct {
	Text string `json:"the-field"`
}

func (receipt) BusinessID() string { return "the-business-id" }

// clear returns for each mark the columns of Holdfast's tables in which it stands in clear.
func (b *bank) clear() map[string]string {
	b.Helper()
	found := map[string]map[string]bool{}
	names, err := b.kit.Pool.QueryContext(b.Context(), `SELECT name FROM sqlite_master WHERE type = 'table' AND name LIKE 'holdfast%'`)
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = names.Close() }()
	var tables []string
	for names.Next() {
		var name string
		if err := names.Scan(&name); err != nil {
			b.Fatal(err)
		}
		tables = append(tables, name)
	}
	if err := names.Err(); err != nil || len(tables) < 10 {
		b.Fatal(tables, err)
	}
	for _, table := range tables {
		b.scan(table, found)
	}
	out := map[string]string{}
	for mark, columns := range found {
		out[mark] = strings.Join(slices.Sorted(maps.Keys(columns)), " ")
	}
	return out
}

func (b *bank) scan(table string, found map[string]map[string]bool) {
	b.Helper()
	rows, err := b.kit.Pool.QueryContext(b.Context(), `SELECT * FROM `+table)
	if err != nil {
		b.Fatal(err)
	}
	defer rows.Close()
	columns, err := rows.Columns()
	if err != nil {
		b.Fatal(err)
	}
	values, into := make([]sql.RawBytes, len(columns)), make([]any, len(columns))
	for i := range values {
		into[i] = &values[i]
	}
	for rows.Next() {
		if err := rows.Scan(into...); err != nil {
			b.Fatal(err)
		}
		for i, v := range values {
			for _, mark := range marks {
				if bytes.Contains(v, []byte(mark)) {
					if found[mark] == nil {
						found[mark] = map[string]bool{}
					}
					found[mark][strings.TrimPrefix(table, "holdfast_")+"."+columns[i]] = true
				}
			}
		}
	}
	if err := rows.Err(); err != nil {
		b.Fatal(err)
	}
}

// fill makes an operation of each kind, with all marks.
func (b *bank) fill(s *idempotency.Store[*sql.Tx]) {
	b.Helper()
	ctx := holdfast.WithRequestID(b.Context(), "the-request-id")
	want := func(err error) {
		b.Helper()
		if err != nil {
			b.Fatal(err)
		}
	}
	op := func(key string) idempotency.Op {
		return idempotency.Op{Owner: "the-owner", Name: "the-operation", Key: "the-key " + key, Request: "the-question"}
	}
	ok := func(context.Context, *sql.Tx) (receipt, error) { return receipt{"the-result"}, nil }
	similar := op("1")
	similar.Similar = &idempotency.Similar{By: []string{"the-similar"}, Window: time.Hour}
	_, err := idempotency.Do(ctx, s, similar, ok)
	want(err)
	_, err = idempotency.Do(ctx, s, op("2"), func(context.Context, *sql.Tx) (receipt, error) {
		return receipt{}, idempotency.Reject("the-code", "the-refusal")
	})
	var rejection *idempotency.Rejection
	if !errors.As(err, &rejection) {
		b.Fatal(err)
	}
	_, err = idempotency.Do(ctx, s, op("3"), ok)
	want(err)
	want(operators.New(s).Erase(ctx, staged.Ref{Owner: "the-owner", Name: "the-operation", Key: "the-key 3"}, holdfast.Actor{By: "the-person", Reason: "the-why"}))

	runner, err := staged.New(s, staged.Workflow[string, receipt, *sql.Tx]{
		Name: "the-operation",
		Run: func(ctx context.Context, r *staged.Run[*sql.Tx], request string) (receipt, error) {
			if request == "pending" {
				return receipt{}, errors.New("the-error")
			}
			_, err := staged.Call(ctx, r, staged.ExternalCall[string]{Step: "the-step", Provider: "the-provider"}, func(ctx context.Context, _ string) (string, error) {
				staged.SetReference(ctx, "the-reference")
				return "the-paid", nil
			})
			return receipt{"the-outcome"}, err
		},
	})
	want(err)
	stagedOp := func(key string) idempotency.Op { return idempotency.Op{Owner: "the-owner", Key: "the-key " + key} }
	_, err = runner.Do(ctx, stagedOp("4"), "the-order")
	want(err)
	_, err = staged.HandleEvent(ctx, s, staged.ProviderEvent{
		ID: "the-event-id", Kind: "the-kind", Body: []byte("the-body"),
		Ref: staged.Ref{Owner: "the-owner", Name: "the-operation", Key: "the-key 4"},
	}, nil)
	want(err)
	if _, err := runner.Do(ctx, stagedOp("5"), "pending"); err == nil {
		b.Fatal("it was to wait")
	}
}

// TestInClear checks which columns hold in clear what a program gives to Holdfast: without options, with
// the codec and hashed keys, and after the owner was erased. docs/howto/privacy.md has the list.
func TestInClear(t *testing.T) {
	t.Parallel()
	codec, _, err := holdfastcrypt.Codecs(key("k"))
	if err != nil {
		t.Fatal(err)
	}
	hasher, err := idempotency.NewKeyHasher(key("").Secret)
	if err != nil {
		t.Fatal(err)
	}
	always := map[string]string{
		"the-owner":     "audit.owner interventions.owner provider_events.owner records.owner similar.owner staged.owner steps.owner",
		"the-operation": "records.operation similar.operation staged.operation",
		"the-step":      "steps.name", "the-provider": "steps.provider", "the-event-id": "provider_events.event_id",
		"the-person": "audit.actor interventions.by_whom", "the-why": "audit.reason interventions.reason",
		"the-field": "staged.result_type",
		// Of the operation that has not ended, which EraseScope leaves.
		"the-error": "staged.reason", "the-request-id": "staged.request_id",
	}
	protected := maps.Clone(always)
	maps.Copy(protected, map[string]string{
		"the-business-id": "records.business_id", "the-request-id": "records.request_id staged.request_id",
		"the-reference": "steps.reference", "the-kind": "provider_events.kind",
	})
	plain := maps.Clone(protected)
	maps.Copy(plain, map[string]string{
		"the-key": "records.op_key similar.op_key staged.op_key", "the-field": "records.result staged.result staged.result_type",
		"the-result": "records.result", "the-code": "records.result", "the-refusal": "records.result",
		"the-order": "staged.request", "the-outcome": "staged.result", "the-paid": "steps.result", "the-body": "provider_events.body",
	})
	// The owner's operation that has not ended keeps its key.
	erasedPlain, erasedProtected := maps.Clone(always), maps.Clone(always)
	erasedPlain["the-key"] = "staged.op_key"
	erased := func(m map[string]string) map[string]string {
		m["the-owner"] = strings.Replace(m["the-owner"], "similar.owner ", "", 1)
		m["the-operation"] = strings.Replace(m["the-operation"], "similar.operation ", "", 1)
		return m
	}
	for name, c := range map[string]struct {
		o            idempotency.Options
		want, erased map[string]string
	}{
		"plain":     {idempotency.Options{}, plain, erased(erasedPlain)},
		"protected": {idempotency.Options{Codec: codec, HashKeys: hasher}, protected, erased(erasedProtected)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := &bank{t, holdfasttest.SQLite(t)}
			s, err := idempotency.New(t.Context(), b.kit.DB, c.o)
			if err != nil {
				t.Fatal(err)
			}
			b.fill(s)
			same(t, "stored", b.clear(), c.want)
			if _, err := s.EraseScope(t.Context(), idempotency.Erasure{Owner: "the-owner", Keys: true, Actor: holdfast.Actor{By: "olga", Reason: "asked"}}); err != nil {
				t.Fatal(err)
			}
			same(t, "erased", b.clear(), c.erased)
		})
	}
}

// TestInClearElsewhere checks what the packages without operations hold in clear: they have no codec.
func TestInClearElsewhere(t *testing.T) {
	t.Parallel()
	b := &bank{t, holdfasttest.SQLite(t)}
	ctx, db, rest := t.Context(), b.kit.DB, "the-rest"
	want := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	locker, err := sqllock.New(ctx, db, sqllock.Options{Holder: rest})
	want(err)
	lease, err := locker.For(rest).Acquire(ctx, rest)
	want(err)
	want(lease.SetValue(ctx, []byte(rest)))
	r, err := register.New(ctx, db)
	want(err)
	_, err = r.For(rest).Create(ctx, rest, []byte(rest))
	want(err)
	box, err := outbox.New(ctx, db, rest)
	want(err)
	want(db.InTx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		return box.Write(ctx, tx, outbox.Message{Owner: rest, Key: rest, ID: rest, Topic: rest, Headers: map[string]string{"h": rest}, Body: []byte(rest)})
	}))
	l, err := limits.New(ctx, db, rest)
	want(err)
	_, err = l.For(rest).Set(ctx, rest, 2)
	want(err)
	_, err = l.For(rest).Take(ctx, limits.Request{Key: rest, ID: rest, Amount: 1})
	want(err)
	same(t, "stored", b.clear(), map[string]string{rest: "limit_entries.id limit_entries.limit_key limit_entries.name limit_entries.owner " +
		"limits.limit_key limits.name limits.owner locks.holder locks.name locks.owner locks.value " +
		"outbox.body outbox.headers outbox.id outbox.message_key outbox.name outbox.owner outbox.topic outbox_keys.message_key outbox_keys.name outbox_keys.owner " +
		"registers.name registers.owner registers.value"})
	want(lease.Release(ctx))
	want(locker.Close(ctx))
}

func same(t *testing.T, what string, got, want map[string]string) {
	t.Helper()
	for _, mark := range marks {
		if got[mark] != want[mark] {
			t.Errorf("%s: %s stands in %q, want %q", what, mark, got[mark], want[mark])
		}
	}
}
