package holdfastcrypt_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"database/sql"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/holdfastcrypt"
	"github.com/holdfast-go/holdfast/holdfasttest"
	"github.com/holdfast-go/holdfast/idempotency"
)

func openStore(ctx context.Context, db *holdfast.DB[*sql.Tx], newest, older, secret []byte) (*idempotency.Store[*sql.Tx], error) {
	codec, former, err := holdfastcrypt.Codecs( // its own module: go get github.com/holdfast-go/holdfast/holdfastcrypt
		holdfastcrypt.Key{ID: "2026-07", Secret: newest}, // encrypts
		holdfastcrypt.Key{ID: "2025-07", Secret: older})  // decrypts what is stored with it
	if err != nil {
		return nil, err
	}
	hasher, err := idempotency.NewKeyHasher(secret) // keys as keyed hashes only
	if err != nil {
		return nil, err
	}
	return idempotency.New(ctx, db, idempotency.Options{
		Codec: codec, FormerCodecs: former, HashKeys: hasher,
		ResultTTL: 30 * 24 * time.Hour, KeyTTL: 400 * 24 * time.Hour,
	})
}

func eraseMerchant(ctx context.Context, store *idempotency.Store[*sql.Tx], merchant string) error {
	_, err := store.EraseScope(ctx, idempotency.Erasure{Owner: merchant, Keys: true, Actor: holdfast.Actor{By: "olga", Reason: "ticket 12"}})
	return err
}

// TestHowTo runs what docs/howto/privacy.md shows: nothing is readable in the table, and neither key nor
// result stays of an owner who is erased.
func TestHowTo(t *testing.T) {
	t.Parallel()
	ctx, kit := t.Context(), holdfasttest.SQLite(t)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	secret := func() []byte {
		b := make([]byte, 32)
		_, err := rand.Read(b)
		must(err)
		return b
	}
	store, err := openStore(ctx, kit.DB, secret(), secret(), secret())
	must(err)
	op := idempotency.Op{Owner: "shop-7", Name: "refund", Key: "order of ana", Request: 1}
	_, err = idempotency.Do(ctx, store, op, func(context.Context, *sql.Tx) (string, error) { return "to ana", nil })
	must(err)
	var key, result []byte
	must(kit.Pool.QueryRowContext(ctx, `SELECT op_key, result FROM holdfast_records`).Scan(&key, &result))
	if bytes.Contains(key, []byte("ana")) || bytes.Contains(result, []byte("ana")) {
		t.Errorf("in clear: %q %q", key, result)
	}
	must(eraseMerchant(ctx, store, "shop-7"))
	must(kit.Pool.QueryRowContext(ctx, `SELECT op_key, result FROM holdfast_records`).Scan(&key, &result))
	if len(key) > 0 || len(result) > 0 {
		t.Errorf("left: %q %q", key, result)
	}
}
