package main

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"testing"

	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/internal/test/conformance"
)

// cancelled executes the operation refund with a key, and reports whether it was refused because it is cancelled.
func (o operator) cancelled(store *idempotency.Store[*sql.Tx], key string) bool {
	o.Helper()
	op := idempotency.Op{Owner: "shop", Name: "refund", Key: key, NoFingerprint: true}
	_, err := idempotency.Do(o.Ctx, store, op, func(context.Context, *sql.Tx) (int, error) { return 1, nil })
	var rejection *idempotency.Rejection
	if errors.As(err, &rejection) && rejection.Code == idempotency.CodeVoided {
		return true
	}
	o.Check(err)
	return false
}

func cancelRefund(key string, more ...string) []string {
	return append([]string{"ops", "cancel", "--owner", "shop", "--name", "refund", "--key", key, "--by", "ada", "--reason", "the customer called"}, more...)
}

// TestCancelHashedKey cancels operations of a program that hashes its keys. The command cannot hash: it
// refuses a plain key rather than say that an operation is cancelled which is then executed.
func TestCancelHashedKey(t *testing.T) {
	onEveryEngine(t, func(o operator) {
		h, err := idempotency.NewKeyHasher(bytes.Repeat([]byte("s"), 32))
		o.Check(err)
		store := o.Store(idempotency.Options{HashKeys: h})
		if o.cancelled(store, "order-1") {
			o.Error("order-1 is cancelled, want executed")
		}
		for _, namespace := range [][]string{nil, {"--namespace", idempotency.DefaultNamespace}} {
			o.misused("the program hashes its keys", cancelRefund("order-42", namespace...)...)
		}
		if n := o.Int(`SELECT COUNT(*) FROM holdfast_records`); n != 1 {
			o.Errorf("%d records, want that of order-1 only", n)
		}
		if out := o.ok(cancelRefund(h.Key("order-42"))...); out != "cancelled\n" {
			o.Errorf("got %q", out)
		}
		if !o.cancelled(store, "order-42") {
			o.Error("order-42 was executed, though the command said that it is cancelled")
		}
		o.fails("too late", cancelRefund(h.Key("order-1"))...)
	})
}

// TestCancelHashedKeyOfStaged is TestCancelHashedKey where the program has staged operations only.
func TestCancelHashedKeyOfStaged(t *testing.T) {
	onEveryEngine(t, func(o operator) {
		h, err := idempotency.NewKeyHasher(bytes.Repeat([]byte("s"), 32))
		o.Check(err)
		runner := refunds[int](o, o.Store(idempotency.Options{HashKeys: h}))
		if _, err = runner.Do(o.Ctx, conformance.Op("order-1"), 1250); err == nil {
			o.Error("the first refund succeeded, want the error of its provider")
		}
		o.misused("the program hashes its keys", "ops", "cancel", "--owner", "another shop", "--name", "refund", "--key", "order-42", "--by", "ada", "--reason", "the customer called")
	})
}

// TestCancelInAnotherNamespace forgets the program's namespace: the command refuses where the name was
// never used, unless it is told that this is the namespace.
func TestCancelInAnotherNamespace(t *testing.T) {
	onEveryEngine(t, func(o operator) {
		payments := o.Store(idempotency.Options{Namespace: "payments"})
		o.misused("--namespace", cancelRefund("order-42")...)
		if out := o.ok(cancelRefund("order-42", "--namespace", "payments")...); out != "cancelled\n" {
			o.Errorf("got %q", out)
		}
		if !o.cancelled(payments, "order-42") {
			o.Error("order-42 was executed, though the command said that it is cancelled")
		}
		o.misused("--namespace", cancelRefund("order-43")...)
		for _, args := range [][]string{cancelRefund("order-43", "--namespace", "default"), cancelRefund("order-44")} {
			if out := o.ok(args...); out != "cancelled\n" {
				o.Errorf("%v: got %q", args, out)
			}
		}
	})
}
