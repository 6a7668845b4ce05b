package main

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
)

// TestOpsSimilar finds operations that were executed twice for one request, under different keys.
func TestOpsSimilar(t *testing.T) {
	onEveryEngine(t, func(o operator) {
		store, err := idempotency.New(o.Ctx, o.DB)
		o.Check(err)
		do := func(owner, key, request string, fails error) {
			_, _ = idempotency.Do(o.Ctx, store, idempotency.Op{Owner: owner, Name: "refund", Key: key, Request: request},
				func(context.Context, *sql.Tx) (idempotency.ID, error) { return idempotency.ID("R-" + key), fails })
		}
		for _, key := range []string{"a", "b", "c"} {
			do("anna", key, map[bool]string{true: "100", false: "200"}[key != "c"], nil)
		}
		do("ben", "d", "100", nil)
		do("anna", "rejected", "100", idempotency.Reject("no", "never"))
		if out := o.ok("ops", "similar", "--name=other"); out != "no such pairs\n0 pairs in 5 rows\n" {
			o.Error(out)
		}
		var found similarPairs
		for _, args := range [][]string{nil, {"--owner=anna"}} {
			found = similarPairs{}
			o.json(&found, append([]string{"ops", "similar", "--name=refund"}, args...)...)
			if len(found.Pairs) != 1 || found.Found != 1 || !found.Complete {
				o.Fatalf("%v: %+v", args, found)
			}
			p := found.Pairs[0]
			keys := []string{p.First.Key, p.Second.Key}
			slices.Sort(keys)
			if p.Owner != "anna" || !slices.Equal(keys, []string{"a", "b"}) || p.First.BusinessID != "R-"+p.First.Key || time.Since(p.First.At).Abs() > time.Hour {
				o.Errorf("got %+v", p)
			}
		}
		if out := o.ok("ops", "similar", "--name=refund"); !strings.Contains(out, "anna") || !strings.HasSuffix(out, "1 pairs in 5 rows\n") {
			o.Error(out)
		}
		time.Sleep(100 * time.Millisecond) // twice what --since says
		for _, args := range []string{"--owner=ben", "--namespace=other", "--since=50ms"} {
			if out := o.ok("ops", "similar", "--name=refund", args); !strings.HasPrefix(out, "no such pairs\n") {
				o.Errorf("%s: %s", args, out)
			}
		}
		if out := o.ok("ops", "similar", "--name=refund", "--rows=2"); !strings.Contains(out, "there are more rows") {
			o.Error(out)
		}
		o.misused("--name for operations", "ops", "similar")
		o.misused("--name for operations", "ops", "similar", "--name=refund", "--table=refunds")
		o.misused("are for --table", "ops", "similar", "--name=refund", "--key=id")
		o.misused("--limit", "ops", "similar", "--name=refund", "--limit=-1")
	})
}

// TestOpsSimilarRows finds rows of a table that are alike: over the end of a page, with names that
// have to be quoted, and in each kind of time.
func TestOpsSimilarRows(t *testing.T) {
	onEveryEngine(t, func(o operator) {
		d := access.Of(o.DB).Dialect
		instant, epoch := "TIMESTAMP(6) NULL", `FROM_UNIXTIME(%d / 1000)`
		switch o.Engine.Kin() {
		case dbtest.Postgres:
			instant, epoch = "TIMESTAMPTZ", `to_timestamp(%d / 1000.0)`
		case dbtest.SQLite:
			instant, epoch = "INTEGER", `%d`
		}
		o.Must(fmt.Sprintf(`CREATE TABLE %s (id BIGINT NOT NULL PRIMARY KEY, %s %s, amount BIGINT, made_ms BIGINT NOT NULL, made_at %s)`,
			d.Ident("pay ments"), d.Ident("order;--"), o.Text(), instant))
		now := time.Now().UnixMilli()
		var values []string
		row := func(id int, order, amount string, ago int64) {
			values = append(values, fmt.Sprintf(`(%d, '%s', %s, %d, `+epoch+`)`, id, order, amount, now-ago, now-ago))
		}
		const second, many = 1000, 1500
		row(1, "A", "100", 3600*second)
		row(2, "A", "100", 100*second)
		row(3, "A", "101", 90*second)
		row(4, "B", "100", 80*second)
		row(5, "A", "NULL", 70*second)
		for i := range many {
			row(10+i, fmt.Sprint("other ", i), "100", 50*second)
		}
		row(10+many, "A", "100", 60*second)
		o.Must(`INSERT INTO ` + d.Ident("pay ments") + ` VALUES ` + strings.Join(values, ", "))
		kinds := [][]string{{"--time=made_ms", "--unit=ms"}, {"--time=made_at"}}
		if o.Engine == dbtest.SQLite {
			kinds = kinds[:1]
		}
		for _, kind := range kinds {
			args := append([]string{"ops", "similar", "--table=pay ments", "--key=id", "--columns=order;--,amount"}, kind...)
			var found similarPairs
			o.json(&found, args...)
			if len(found.Pairs) != 1 || found.Rows != many+6 || !found.Complete {
				o.Fatalf("%v: %+v", kind, found)
			}
			if p := found.Pairs[0]; p.First.Key != "2" || p.Second.Key != fmt.Sprint(10+many) || !slices.Equal(p.By, []string{"A", "100"}) || p.ApartMS != 40*second {
				o.Errorf("%v: %+v", kind, p)
			}
			o.json(&found, append(args, "--window=2h")...)
			if len(found.Pairs) != 2 || found.Pairs[1].First.Key != "1" {
				o.Errorf("%v: in two hours: %+v", kind, found.Pairs)
			}
		}
		o.misused("--unit", "ops", "similar", "--table=pay ments", "--key=id", "--columns=amount", "--time=made_ms")
		o.misused("has no column", "ops", "similar", "--table=pay ments", "--key=id", "--columns=none", "--time=made_ms", "--unit=ms")
		o.misused("unique index", "ops", "similar", "--table=pay ments", "--key=made_ms", "--columns=amount", "--time=made_ms", "--unit=ms")
		o.misused("was not found", "ops", "similar", "--table=none", "--key=id", "--columns=amount", "--time=made_ms", "--unit=ms")
	})
}
