package idempotency

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/dialect"
	"github.com/holdfast-go/holdfast/internal/lockname"
)

var updateVectors = flag.Bool("update", false, "write docs/reference/protocol/vectors.json")

const vectorsFile = "../docs/reference/protocol/vectors.json"

// vectors are the test vectors of docs/reference/protocol.md. Inputs that are not UTF-8 are in hexadecimal digits.
type vectors struct {
	Version     int                 `json:"version"`
	KeyHash     []keyHashVector     `json:"key_hash"`
	KeyOf       []keyOfVector       `json:"key_of"`
	Canonical   []canonicalVector   `json:"canonical"`
	Refused     []refusedVector     `json:"canonical_refused"`
	Fingerprint []fingerprintVector `json:"fingerprint"`
	LockName    []lockNameVector    `json:"lock_name"`
	KeyLock     []keyLockVector     `json:"postgres_key_lock"`
	Result      []resultVector      `json:"result"`
}

type (
	keyHashVector struct {
		Namespace string `json:"namespace"`
		Owner     string `json:"owner"`
		Operation string `json:"operation"`
		Key       string `json:"key,omitempty"`
		KeyHex    string `json:"key_hex,omitempty"`
		KeyHash   string `json:"key_hash"`
	}
	keyOfVector struct {
		Parts []string `json:"parts"`
		Key   string   `json:"key"`
	}
	canonicalVector struct {
		JSON      string `json:"json"`
		Canonical string `json:"canonical"`
	}
	refusedVector struct {
		JSON    string `json:"json,omitempty"`
		JSONHex string `json:"json_hex,omitempty"`
	}
	fingerprintVector struct {
		JSON               string `json:"json,omitempty"`
		BytesHex           string `json:"bytes_hex,omitempty"`
		RequestVersion     int    `json:"request_version"`
		Fingerprint        string `json:"fingerprint"`
		FingerprintVersion int    `json:"fingerprint_version"`
	}
	lockNameVector struct {
		Kind   string `json:"kind"`
		Key    string `json:"key,omitempty"`
		KeyHex string `json:"key_hex,omitempty"`
		Name   string `json:"name"`
	}
	keyLockVector struct {
		Table     string `json:"table"`
		Lockspace string `json:"lockspace"`
		KeyHash   string `json:"key_hash"`
		Lock      string `json:"lock"`
	}
	resultVector struct {
		State  string          `json:"state"`
		Value  json.RawMessage `json:"value,omitempty"`
		Bytes  string          `json:"bytes_hex,omitempty"`
		Column int             `json:"state_column"`
		Codec  string          `json:"codec"`
		Stored string          `json:"stored_hex"`
	}
)

var lockKinds = map[string]lockname.Kind{"lease": lockname.Lease, "row": lockname.Row, "fair": lockname.Fair, "semaphore": lockname.Semaphore}

// compute returns v with the outputs that this package computes from its inputs.
func (v vectors) compute(t *testing.T) vectors {
	t.Helper()
	check := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	bytesOf := func(text, digits string) []byte {
		if digits == "" {
			return []byte(text)
		}
		b, err := hex.DecodeString(digits)
		check(err)
		return b
	}
	v.Version = 2
	v.KeyHash, v.KeyOf, v.Canonical = clone(v.KeyHash), clone(v.KeyOf), clone(v.Canonical)
	v.Fingerprint, v.LockName, v.KeyLock, v.Result = clone(v.Fingerprint), clone(v.LockName), clone(v.KeyLock), clone(v.Result)
	for i := range v.KeyHash {
		c := &v.KeyHash[i]
		o := Options{Namespace: c.Namespace, owners: core.AnyOwner}
		call, err := o.check(Op{Owner: c.Owner, Name: c.Operation, Key: string(bytesOf(c.Key, c.KeyHex)), NoFingerprint: true})
		check(err)
		c.KeyHash = hex.EncodeToString(call.hash[:])
	}
	for i := range v.KeyOf {
		v.KeyOf[i].Key = KeyOf(v.KeyOf[i].Parts...)
	}
	for i := range v.Canonical {
		form, err := Canonical(json.RawMessage(v.Canonical[i].JSON))
		check(err)
		v.Canonical[i].Canonical = string(form)
	}
	for i, c := range v.Refused {
		if form, err := Canonical(json.RawMessage(bytesOf(c.JSON, c.JSONHex))); err == nil {
			t.Errorf("canonical_refused %d is %s", i, form)
		}
	}
	for i := range v.Fingerprint {
		c := &v.Fingerprint[i]
		op := Op{RequestVersion: c.RequestVersion, Request: json.RawMessage(c.JSON)}
		if c.JSON == "" {
			op.Request, op.Fingerprint = nil, bytesOf("", c.BytesHex)
		}
		p, err := takeFingerprints(op)
		check(err)
		c.Fingerprint, c.FingerprintVersion = hex.EncodeToString(p.own), p.version
	}
	for i := range v.LockName {
		c := &v.LockName[i]
		name, err := lockname.Of(lockKinds[c.Kind], core.Owner{}, string(bytesOf(c.Key, c.KeyHex)))
		check(err)
		c.Name = hex.EncodeToString(name.Row())
	}
	for i := range v.KeyLock {
		c := &v.KeyLock[i]
		c.Lockspace = dialect.Lockspace(c.Table)
		space, err := strconv.ParseUint(c.Lockspace, 10, 64)
		check(err)
		c.Lock = strconv.FormatInt(int64(binary.BigEndian.Uint64(bytesOf("", c.KeyHash))^space), 10)
	}
	for i := range v.Result {
		c := &v.Result[i]
		var value any = c.Value
		state := succeeded
		switch {
		case c.Bytes != "":
			value = bytesOf("", c.Bytes)
		case c.State == "rejected":
			var r Rejection
			check(json.Unmarshal(c.Value, &r))
			value, state = &r, rejected
		}
		o := Options{MaxResult: defaultMaxResult}
		out, err := o.encode(&call{}, state, value)
		check(err)
		c.Column, c.Codec, c.Stored = out.state, out.codec, hex.EncodeToString(out.result)
	}
	return v
}

func clone[T any](s []T) []T { return append([]T(nil), s...) }

// inputs are the vectors without their outputs.
func inputs() vectors {
	const hash = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"
	rejection := json.RawMessage(`{"code":"over_refund","message":"more than was paid","detail":{"paid":100}}`)
	return vectors{
		KeyHash: []keyHashVector{
			{Namespace: "default", Owner: "t", Operation: "refund", Key: "42/1"},
			{Namespace: "default", Operation: "refund", Key: "42/1"},
			{Namespace: "default", Owner: "merchant-7", Operation: "refund", Key: "order-42/refund-1"},
			{Namespace: "a", Owner: "bc", Operation: "d", Key: "e"},
			{Namespace: "ab", Owner: "c", Operation: "d", Key: "e"},
			{Namespace: "Zahlungen", Owner: "händler-ß", Operation: "erstattung", Key: "auftrag-é-😀"},
			{Namespace: "default", Owner: "t", Operation: "refund", Key: "key "},
			{Namespace: "default", Owner: "t", Operation: "refund", Key: "KEY"},
			{Namespace: "default", Owner: "t", Operation: "refund", Key: `a\b'"; DROP TABLE x; --`},
			{Namespace: "default", Owner: "t", Operation: "refund", KeyHex: "fffe00"},
			{Namespace: "default", Owner: "t", Operation: "refund", Key: strings.Repeat("k", MaxKey)},
		},
		KeyOf: []keyOfVector{{Parts: []string{"order-42", "1"}}, {Parts: []string{"a/b", "c"}}, {Parts: []string{"a", "b/c"}}, {Parts: []string{"100%", ""}}},
		Canonical: []canonicalVector{
			{JSON: `{"b":1,"a":[1,2]}`},
			{JSON: " { \"order\" : \"42\" ,\n\t\"amount\" : \"12.50\" } "},
			{JSON: `{"a":1,"a":2}`},
			{JSON: `[null,true,false,"",{},[]]`},
			{JSON: `{"\u20ac":"Euro Sign","\r":"Carriage Return","\ufb33":"Hebrew Letter Dalet With Dagesh","1":"One","\ud83d\ude00":"Emoji: Grinning Face","\u0080":"Control","\u00f6":"Latin Small Letter O With Diaeresis"}`},
			{JSON: `"\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/"`},
			{JSON: `"\u0000\b\t\n\u000b\f\r\u001f\u007f<>&\u2028\u2029\u00e9e\u0301"`},
			{JSON: `[333333333.33333329,1E30,4.50,2e-3,0.000000000000000000000000001]`},
			{JSON: `[0,-0,0.0,-0.0,1,-1,1.0,1e0,10e-1,100,1e2]`},
			{JSON: `[5e-324,1.7976931348623157e308,1e-400,0.1,0.1000000000000000055,123456.789]`},
			{JSON: `[9007199254740991,9007199254740992,9007199254740993,-9007199254740993,9223372036854775807,18446744073709551615]`},
			{JSON: `[1152921504606846976,1152921504606847000,1152921504606846976.0,123456789012345678901,1234567890123456789012,1e20,1e21,1e23]`},
			{JSON: `[1234567890123456789012,1234567890123456789013,1234567890123456789012.0,12345678901234567890120e-1,-1234567890123456789012]`},
			{JSON: `[9007199254740993.10,9007199254740993.90,9007199254740993.0,1.000000000000000001,1.000000000000000002,0.1000000000000000055]`},
			{JSON: `[0e99999999999999999999,-0.000E-99999999999999999999,1e-9999,0.00000012345678901234567890,123456789012345678901234567890e-24]`},
			{JSON: `[9.999999999999997e22,1.0000000000000001e23,999999999999999700000.0,9.999999999999997e-7,0.000001,0.0000001,-0.0000033333333333333333]`},
		},
		Refused: []refusedVector{
			{JSON: `{"a":1,}`},
			{JSON: `01`},
			{JSON: `1e400`},
			{JSON: `1e99999999999999999999`},
			{JSON: `1e-10000`},
			{JSON: `1e-99999999999999999999`},
			{JSON: `NaN`},
			{JSON: `"\ud800"`},
			{JSON: `"\ude00\ud83d"`},
			{JSON: `"\ufffd"`},
			{JSONHex: "22ff22"},
			{JSONHex: "22eda08022"},
		},
		Fingerprint: []fingerprintVector{
			{JSON: `{"order":"42","amount":"12.50"}`},
			{JSON: ` { "amount" : "12.50", "order" : "42" } `},
			{JSON: `{"amount":1250,"currency":"EUR","order":"42"}`},
			{JSON: `{"amount":1.25E3,"currency":"EUR","order":"42"}`},
			{JSON: `{"amount":9007199254740993}`},
			{JSON: `{"amount":9007199254740993.10}`},
			{JSON: `{"amount":9007199254740993.90}`},
			{JSON: `{"customer":"Zoë 😀"}`, RequestVersion: 3},
			{BytesHex: "00ff", RequestVersion: maxRequestVersion},
		},
		LockName: []lockNameVector{
			{Kind: "lease", Key: "order-42"},
			{Kind: "row", Key: "order-42"},
			{Kind: "fair", Key: "order-42"},
			{Kind: "semaphore", Key: "order-42"},
			{Kind: "lease", Key: "aufträge 😀"},
			{Kind: "lease", KeyHex: "00ff"},
		},
		KeyLock: []keyLockVector{
			{Table: `"public"."holdfast_records"`, KeyHash: hash},
			{Table: `"public"."holdfast_records"`, KeyHash: "ff" + hash[2:]},
			{Table: `"Pay ""x"""."p_records"`, KeyHash: hash},
		},
		Result: []resultVector{
			{State: "succeeded", Value: json.RawMessage(`{"refund":"R-1","amount":1250}`)},
			{State: "succeeded", Value: json.RawMessage(`"done"`)},
			{State: "succeeded", Value: json.RawMessage(`null`)},
			{State: "succeeded", Bytes: "00ff10"},
			{State: "rejected", Value: rejection},
		},
	}
}

// TestVectors checks that docs/reference/protocol/vectors.json has what this package computes.
func TestVectors(t *testing.T) {
	t.Parallel()
	want := inputs().compute(t)
	if *updateVectors {
		var b bytes.Buffer
		e := json.NewEncoder(&b)
		e.SetEscapeHTML(false)
		e.SetIndent("", "  ")
		if err := e.Encode(want); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(vectorsFile, b.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	is := published(t)
	if !reflect.DeepEqual(flat(t, is), flat(t, want)) {
		t.Fatal("docs/reference/protocol/vectors.json is not what the code computes: go test ./idempotency -run TestVectors -update")
	}
	// Each of its inputs gives its output; an output with one changed byte differs.
	lines := flat(t, is.compute(t))
	changed := 0
	for i, line := range flat(t, is) {
		if line != lines[i] {
			t.Errorf("line %d is %s, want %s", i, line, lines[i])
		}
		for _, output := range []string{`"key_hash": "`, `"canonical": "`, `"fingerprint": "`, `"name": "`, `"lock": "`, `"stored_hex": "`} {
			at := strings.Index(line, output)
			if at < 0 || strings.Contains(line, `""`) {
				continue
			}
			b := []byte(line)
			b[at+len(output)] ^= 1
			if changed++; string(b) == lines[i] {
				t.Errorf("line %d: a changed byte is not noticed", i)
			}
		}
	}
	if changed < 40 {
		t.Errorf("only %d outputs", changed)
	}
}

func published(t *testing.T) (v vectors) {
	t.Helper()
	text, err := os.ReadFile(vectorsFile)
	if err != nil {
		t.Fatal(err)
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&v); err != nil {
		t.Fatal(err)
	}
	return v
}

// flat returns the lines of v in JSON.
func flat(t *testing.T, v vectors) []string {
	t.Helper()
	b, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(string(b), "\n")
}

// TestVectorsAreRead checks that another implementation of the key's hash, written from
// docs/reference/protocol.md alone, agrees.
func TestVectorsAreRead(t *testing.T) {
	t.Parallel()
	for _, c := range published(t).KeyHash {
		key := []byte(c.Key)
		if c.KeyHex != "" {
			key, _ = hex.DecodeString(c.KeyHex)
		}
		text := "holdfast record 1"
		for _, part := range []string{c.Namespace, c.Owner, c.Operation, string(key)} {
			length, _ := hex.DecodeString(fmt.Sprintf("%016x", len(part)))
			text += string(length) + part
		}
		if got := fmt.Sprintf("%x", sha256.Sum256([]byte(text))); got != c.KeyHash {
			t.Errorf("%+v: %s", c, got)
		}
	}
}
