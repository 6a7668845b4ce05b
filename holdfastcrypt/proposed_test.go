package holdfastcrypt_test

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"testing"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/holdfastcrypt"
	"github.com/holdfast-go/holdfast/holdfasttest"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/idempotency/operators"
	"github.com/holdfast-go/holdfast/idempotency/staged"
	"github.com/holdfast-go/holdfast/internal/core"
)

// TestProposed checks what a proposal holds in clear, that it is bound to its row, and that an operator
// without the codec sees that there is a value, and cannot confirm it.
func TestProposed(t *testing.T) {
	t.Parallel()
	ctx, kit := t.Context(), holdfasttest.SQLite(t)
	want := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	codec, _, err := holdfastcrypt.Codecs(key("k"))
	want(err)
	hasher, err := idempotency.NewKeyHasher(key("").Secret)
	want(err)
	s, err := idempotency.New(ctx, kit.DB, idempotency.Options{Codec: codec, HashKeys: hasher})
	want(err)
	bare, err := idempotency.New(ctx, kit.DB)
	want(err)
	runner, err := staged.New(s, staged.Workflow[string, string, *sql.Tx]{Name: "payout", Run: func(ctx context.Context, r *staged.Run[*sql.Tx], _ string) (string, error) {
		return staged.Call(ctx, r, staged.ExternalCall[string]{Step: "bank"}, func(context.Context, string) (string, error) { return "", errors.New("no answer") })
	}})
	want(err)
	ops, olga := operators.New(s), holdfast.Actor{By: "olga", Reason: "asked"}
	propose := func(key string, r operators.Resolution) *operators.Proposal {
		t.Helper()
		op := idempotency.Op{Owner: "anna", Key: key}
		if _, err := runner.Do(ctx, op, ""); !errors.Is(err, idempotency.ErrUnknown) {
			t.Fatal(err)
		}
		p, err := ops.Propose(ctx, staged.Ref{Owner: "anna", Name: "payout", Key: key}, r, olga)
		want(err)
		return p
	}
	done := propose("the-key 1", operators.Resolution{Step: staged.StepDone, StepResult: "the-result"})
	refused := propose("the-key 2", operators.Resolution{Reject: true, Rejection: &idempotency.Rejection{Code: "the-code", Message: "the-refusal"}})
	if string(done.Resolution.StepResult.(json.RawMessage)) != `"the-result"` || refused.Resolution.Rejection.Message != "the-refusal" || done.Unreadable != nil {
		t.Errorf("%+v, %+v", done, refused)
	}
	db := kit.Pool
	for _, p := range []*operators.Proposal{done, refused} {
		var stored []byte
		want(db.QueryRowContext(ctx, `SELECT payload FROM holdfast_proposals WHERE id = ?`, p.ID[:operators.ProposalIDSize]).Scan(&stored))
		var payload struct{ Key, Value []byte }
		want(json.Unmarshal(stored, &payload))
		for _, mark := range []string{"the-key", "the-result", "the-code", "the-refusal"} {
			if all := bytes.Join([][]byte{stored, payload.Key, payload.Value}, nil); bytes.Contains(all, []byte(mark)) {
				t.Errorf("%s stands in %s", mark, all)
			}
		}
	}
	// An operator without the codec.
	list, err := core.First(99, operators.New(bare).Proposals(ctx))
	var missing *idempotency.MissingCodecError
	if err != nil || len(list) != 2 || !errors.As(list[0].Unreadable, &missing) {
		t.Errorf("%+v, %v", list, err)
	}
	if err := operators.New(bare).Confirm(ctx, done.ID, "ben"); !errors.As(err, &missing) {
		t.Error(err)
	}
	want(ops.Confirm(ctx, refused.ID, "ben"))
	// Another proposal's value.
	other := propose("the-key 3", operators.Resolution{Step: staged.StepDone, StepResult: "more"})
	if _, err := db.ExecContext(ctx, `UPDATE holdfast_proposals SET payload = (SELECT payload FROM holdfast_proposals WHERE id = ?) WHERE id = ?`,
		other.ID[:operators.ProposalIDSize], done.ID[:operators.ProposalIDSize]); err != nil {
		t.Fatal(err)
	}
	if err := ops.Confirm(ctx, done.ID, "ben"); !errors.Is(err, holdfastcrypt.ErrTampered) {
		t.Error(err)
	}
	want(ops.Confirm(ctx, other.ID, "ben"))
	if op, err := ops.Show(ctx, staged.Ref{Owner: "anna", Name: "payout", Key: "the-key 3"}); err != nil || op.State == idempotency.StateUnknown {
		t.Errorf("%+v, %v", op, err)
	}
}
