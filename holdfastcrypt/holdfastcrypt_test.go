package holdfastcrypt_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/holdfastcrypt"
	"github.com/holdfast-go/holdfast/holdfasttest"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/idempotency/operators"
	"github.com/holdfast-go/holdfast/idempotency/staged"
)

const personal = "IBAN DE00 1234"

// bank is a database with the tables of Holdfast.
type bank struct {
	testing.TB
	kit *holdfasttest.Kit[*sql.Tx]
}

func key(id string) holdfastcrypt.Key {
	secret := make([]byte, holdfastcrypt.SecretSize)
	_, _ = rand.Read(secret)
	return holdfastcrypt.Key{ID: id, Secret: secret}
}

func (b *bank) store(newest holdfastcrypt.Key, older ...holdfastcrypt.Key) *idempotency.Store[*sql.Tx] {
	b.Helper()
	codec, former, err := holdfastcrypt.Codecs(newest, older...)
	if err != nil {
		b.Fatal(err)
	}
	s, err := idempotency.New(b.Context(), b.kit.DB, idempotency.Options{Codec: codec, FormerCodecs: former})
	if err != nil {
		b.Fatal(err)
	}
	return s
}

func (b *bank) do(s *idempotency.Store[*sql.Tx], key string) (idempotency.Result[string], error) {
	return idempotency.Do(b.Context(), s, idempotency.Op{Name: "refund", Key: key, NoFingerprint: true}, func(context.Context, *sql.Tx) (string, error) {
		return personal + " " + key, nil
	})
}

func (b *bank) text(query string, args ...any) (v []byte) {
	b.Helper()
	if err := b.kit.Pool.QueryRowContext(b.Context(), query, args...).Scan(&v); err != nil {
		b.Fatal(err)
	}
	return v
}

func (b *bank) must(query string, args ...any) {
	b.Helper()
	if _, err := b.kit.Pool.ExecContext(b.Context(), query, args...); err != nil {
		b.Fatal(err)
	}
}

// TestRotation checks that new values get the newest key, that old keys read, and that a key that is
// missing is named and nothing is executed again.
func TestRotation(t *testing.T) {
	t.Parallel()
	b := &bank{t, holdfasttest.SQLite(t, holdfast.Options{SingleOwner: true})}
	one, two := key("2025-07"), key("2026-07")
	if _, err := b.do(b.store(one), "a"); err != nil {
		t.Fatal(err)
	}
	rotated := b.store(two, one)
	if r, err := b.do(rotated, "a"); err != nil || r.Value != personal+" a" || r.Outcome != idempotency.Replayed {
		t.Errorf("after the rotation: %+v, %v", r, err)
	}
	if _, err := b.do(rotated, "b"); err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]string{"a": "json+aes256gcm:2025-07", "b": "json+aes256gcm:2026-07"} {
		if got := string(b.text(`SELECT codec FROM holdfast_records WHERE op_key = ?`, []byte(key))); got != want {
			t.Errorf("%s is stored as %q, want %q", key, got, want)
		}
		if stored := b.text(`SELECT result FROM holdfast_records WHERE op_key = ?`, []byte(key)); bytes.Contains(stored, []byte("IBAN")) {
			t.Errorf("%s is stored as %q", key, stored)
		}
	}
	// A program of the former version, which does not know the new key.
	_, err := b.do(b.store(one), "b")
	var missing *idempotency.MissingCodecError
	var result *idempotency.ResultError
	if !errors.As(err, &missing) || missing.Name != "aes256gcm:2026-07" || !errors.As(err, &result) {
		t.Errorf("without the key: %v", err)
	}
	// Another secret under the same id.
	if _, err := b.do(b.store(key("2026-07")), "b"); !errors.Is(err, holdfastcrypt.ErrTampered) {
		t.Errorf("with another secret: %v", err)
	}
}

// TestTampered changes what is stored by SQL. No call may replay it, and none executes again.
func TestTampered(t *testing.T) {
	t.Parallel()
	b := &bank{t, holdfasttest.SQLite(t, holdfast.Options{SingleOwner: true})}
	s := b.store(key("k"))
	result := func(key string) []byte {
		return b.text(`SELECT result FROM holdfast_records WHERE op_key = ?`, []byte(key))
	}
	put := func(key string, v []byte) {
		b.must(`UPDATE holdfast_records SET result = ? WHERE op_key = ?`, v, []byte(key))
	}
	for name, tamper := range map[string]func(key string){
		"swapped": func(key string) {
			mine, others := result(key), result("other "+key)
			put(key, others)
			put("other "+key, mine)
		},
		"a bit":     func(key string) { v := result(key); v[len(v)/2] ^= 1; put(key, v) },
		"the tag":   func(key string) { v := result(key); v[len(v)-1] ^= 1; put(key, v) },
		"the nonce": func(key string) { v := result(key); v[0] ^= 1; put(key, v) },
		"cut":       func(key string) { put(key, result(key)[:holdfastcrypt.Overhead-1]) },
		"empty":     func(key string) { put(key, []byte{}) },
		"rejected":  func(key string) { b.must(`UPDATE holdfast_records SET state = 3 WHERE op_key = ?`, []byte(key)) },
	} {
		t.Run(name, func(t *testing.T) {
			for _, key := range []string{name, "other " + name} {
				if _, err := b.do(s, key); err != nil {
					t.Fatal(err)
				}
			}
			tamper(name)
			r, err := b.do(s, name)
			var tampered *holdfastcrypt.TamperedError
			if !errors.Is(err, holdfastcrypt.ErrTampered) || !errors.As(err, &tampered) || tampered.KeyID != "k" || r.Value != "" {
				t.Errorf("%q, %v", r.Value, err)
			}
			if strings.Contains(fmt.Sprint(err), "IBAN") {
				t.Errorf("the error tells the result: %v", err)
			}
		})
	}
}

// TestStagedValues checks that nothing of a staged operation is stored in clear that goes through the
// codec, and that a swapped step's result parks the operation.
func TestStagedValues(t *testing.T) {
	t.Parallel()
	b := &bank{t, holdfasttest.SQLite(t, holdfast.Options{SingleOwner: true})}
	s := b.store(key("k"))
	late := true
	step := func(ctx context.Context, r *staged.Run[*sql.Tx], name string) (string, error) {
		return staged.Local(ctx, r, name, func(context.Context, *sql.Tx) (string, error) { return personal + name, nil })
	}
	runner, err := staged.New(s, staged.Workflow[string, string, *sql.Tx]{
		Name: "refund", Backoff: time.Millisecond,
		Run: func(ctx context.Context, r *staged.Run[*sql.Tx], _ string) (string, error) {
			one, err := step(ctx, r, "one")
			if err != nil {
				return "", err
			}
			two, err := step(ctx, r, "two")
			if err == nil && late {
				err = errors.New("not yet")
			}
			return one + two, err
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	do := func(key string) (string, error) {
		r, err := runner.Do(t.Context(), idempotency.Op{Key: key}, personal)
		return r.Value, err
	}
	ref := staged.Ref{Name: "refund", Key: "whole"}
	if _, err := do("whole"); err == nil {
		t.Fatal("it was to fail at first")
	}
	if _, err := staged.HandleEvent(t.Context(), s, staged.ProviderEvent{ID: "e", Kind: "paid", Ref: ref, Body: []byte(personal)}, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := do("swapped"); err == nil {
		t.Fatal("it was to fail at first")
	}
	late = false
	if v, err := do("whole"); err != nil || v != personal+"one"+personal+"two" {
		t.Errorf("%q, %v", v, err)
	}
	if op, err := operators.New(s).Show(t.Context(), ref); err != nil || len(op.Events) != 1 || string(op.Events[0].Body) != personal {
		t.Errorf("%+v, %v", op, err)
	}
	for _, column := range []string{"staged.request", "staged.result", "steps.result", "provider_events.body"} {
		table, name, _ := strings.Cut(column, ".")
		n := b.text(`SELECT COUNT(*) FROM holdfast_` + table + ` WHERE instr(` + name + `, CAST('IBAN' AS BLOB)) > 0`)
		if some := b.text(`SELECT COUNT(*) FROM holdfast_` + table + ` WHERE instr(` + name + `, CAST('+aes256gcm:k' AS BLOB)) > 0`); string(n) != "0" || string(some) == "0" {
			t.Errorf("%s: %s values in clear, %s encrypted", column, n, some)
		}
	}
	hash := b.text(`SELECT key_hash FROM holdfast_staged WHERE op_key = ?`, []byte("swapped"))
	b.must(`UPDATE holdfast_steps SET result = (SELECT result FROM holdfast_steps WHERE key_hash = ? AND name = 'one') WHERE key_hash = ? AND name = 'two'`, hash, hash)
	var parked *staged.ParkedError
	if v, err := do("swapped"); !errors.As(err, &parked) || v != "" {
		t.Errorf("a swapped step: %q, %v", v, err)
	}
}

// TestKeys checks what Codecs refuses, and that no form of printing tells a secret.
func TestKeys(t *testing.T) {
	t.Parallel()
	good := key("k")
	for name, keys := range map[string][]holdfastcrypt.Key{
		"no id":    {{Secret: good.Secret}},
		"long id":  {key(strings.Repeat("x", 33))},
		"twice":    {good, key("k")},
		"short":    {{ID: "k", Secret: good.Secret[:31]}},
		"long":     {{ID: "k", Secret: append(bytes.Clone(good.Secret), 1)}},
		"all zero": {{ID: "k", Secret: make([]byte, 32)}},
		"former":   {good, {ID: "old"}},
	} {
		if _, _, err := holdfastcrypt.Codecs(keys[0], keys[1:]...); !errors.Is(err, holdfast.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	told := bytes.Repeat([]byte{7}, 32)
	codec, former, err := holdfastcrypt.Codecs(holdfastcrypt.Key{ID: "k", Secret: told})
	if err != nil || len(former) != 0 {
		t.Fatal(former, err)
	}
	for _, v := range []any{holdfastcrypt.Key{ID: "k", Secret: told}, codec, idempotency.Options{Codec: codec}} {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s"} {
			if out := fmt.Sprintf(verb, v); strings.Contains(out, "7 7 7") || strings.Contains(out, "0x7, 0x7") || strings.Contains(out, string(told[:3])) {
				t.Errorf("%s tells the secret: %s", verb, out)
			}
		}
	}
}

// FuzzDecode checks that Decode returns what Encode got, and refuses all else.
func FuzzDecode(f *testing.F) {
	codec, _, err := holdfastcrypt.Codecs(key("k"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add([]byte("plain"), []byte("stored"), []byte("place"))
	f.Fuzz(func(t *testing.T, plain, stored, place []byte) {
		if _, err := codec.Decode(stored, place); !errors.Is(err, holdfastcrypt.ErrTampered) {
			t.Fatalf("made up: %v", err)
		}
		sealed, err := codec.Encode(plain, place)
		if err != nil || len(sealed) != len(plain)+holdfastcrypt.Overhead {
			t.Fatalf("%d bytes, %v", len(sealed), err)
		}
		back, err := codec.Decode(sealed, place)
		if err != nil || !bytes.Equal(back, plain) {
			t.Fatalf("%q, %v", back, err)
		}
		if _, err := codec.Decode(sealed, append(bytes.Clone(place), 0)); !errors.Is(err, holdfastcrypt.ErrTampered) {
			t.Fatalf("at another place: %v", err)
		}
	})
}

func BenchmarkCodec(b *testing.B) {
	codec, _, err := holdfastcrypt.Codecs(key("k"))
	if err != nil {
		b.Fatal(err)
	}
	plain, place := make([]byte, 1024), make([]byte, 32)
	for b.Loop() {
		stored, err := codec.Encode(plain, place)
		if err == nil {
			_, err = codec.Decode(stored, place)
		}
		if err != nil {
			b.Fatal(err)
		}
	}
}
