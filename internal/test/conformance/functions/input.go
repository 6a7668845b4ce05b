package functions

import (
	"database/sql"
	"fmt"
	"strings"

	"github.com/holdfast-go/holdfast/internal/test/conformance/hostile"
)

func functionBadArguments(e *env) {
	long := strings.Repeat("k", 1025)
	for what, args := range map[string][]any{
		"no owner": {"default", nil, "refund", "k", nil, 0, 0}, "no key": {"default", "", "refund", "", nil, 0, 0}, "long key": {"default", "", "refund", long, nil, 0, 0},
		"no namespace": {"", "", "refund", "k", nil, 0, 0}, "no operation": {"default", "", nil, "k", nil, 0, 0}, "long owner": {"default", long, "refund", "k", nil, 0, 0},
		"short fingerprint": {"default", "", "refund", "k", "00", 0, 0}, "fingerprint of other digits": {"default", "", "refund", "k", strings.Repeat("g", 64), 0, 0},
		"version": {"default", "", "refund", "k", nil, 2048, 0}, "wait": {"default", "", "refund", "k", nil, 0, -1},
	} {
		err := e.inTx(sql.LevelDefault, func(tx *sql.Tx) error {
			_, err := e.call(tx, "claim", args...)
			return err
		})
		e.refused(what, err, "")
	}
	for what, args := range map[string][]any{
		"state": {"done", `1`, "json", nil, nil, nil}, "codec": {"succeeded", `1`, "xml", nil, nil, nil}, "JSON": {"succeeded", `{`, "json", nil, nil, nil}, "no JSON": {"succeeded", nil, "json", nil, nil, nil},
		"rejection": {"rejected", `{"message":"m"}`, "json", nil, nil, nil}, "rejection of bytes": {"rejected", `{}`, "bytes", nil, nil, nil}, "business id": {"succeeded", `1`, "json", long, nil, nil},
		"TTL": {"succeeded", `1`, "json", nil, 0, nil}, "TTL in seconds": {"succeeded", `1`, "json", nil, 3600, 3600}, "TTL of centuries": {"succeeded", `1`, "json", nil, 3_200_000_000_000_000, nil}, "key's TTL": {"succeeded", `1`, "json", nil, 2, 1}, "key's TTL alone": {"succeeded", `1`, "json", nil, nil, 1},
	} {
		err := e.inTx(sql.LevelDefault, func(tx *sql.Tx) error {
			a, err := e.claim(tx, "bad")
			e.want(what, a, err, "outcome", "claimed")
			_, err = e.call(tx, "finish", append([]any{a["claim"]}, args...)...)
			return err
		})
		e.refused(what, err, "")
	}
	for _, claim := range []any{nil, "", "x", strings.Repeat("0", 94), strings.Repeat("0", 96)} {
		err := e.inTx(sql.LevelDefault, func(tx *sql.Tx) error {
			_, err := e.call(tx, "finish", claim, "succeeded", `1`, "json", nil, nil, nil)
			return err
		})
		e.refused(fmt.Sprint("claim ", claim), err, "")
	}
	e.want("the key", e.lookup("bad"), nil, "outcome", "absent")
}

// functionInjection sends SQL in each argument, and looks whether a table suffered.
func functionInjection(e *env) {
	e.Must(`CREATE TABLE canary (n INTEGER)`)
	e.Must(`INSERT INTO canary VALUES (1)`)
	defer e.Must(`DROP TABLE canary`)
	for i, s := range hostile.Strings() {
		key := "injection " + s
		a, err := e.do(key)
		e.want(key, a, err, "outcome", "claimed")
		e.WantOnce(key)
		tx, err := e.SQL.BeginTx(e.Ctx, nil)
		e.Check(err)
		args := []any{"default", "", "refund", "k", nil, 0, 0}
		args[[]int{0, 1, 2, 4}[i%4]] = text(s)
		_, _ = e.call(tx, "claim", args...)
		_ = tx.Rollback()
		_, _ = e.call(e.SQL, "finish", text(s), text(s), text(s), text(s), text(s), nil, nil)
		_, _ = e.call(e.SQL, "acquire", text(s), text(s), 60_000_000, text(s), text(s))
		_, _ = e.call(e.SQL, "acquire", "injection", text(s), 60_000_000, newAttempt(), "h")
	}
	if n := e.Int(`SELECT COUNT(*) FROM canary`); n != 1 {
		e.Errorf("%d rows", n)
	}
}
