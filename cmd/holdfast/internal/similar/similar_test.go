package similar_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/similar"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/internal/test/conformance"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
)

func TestMain(m *testing.M) { dbtest.VerifyNoLeaks(m) }

// TestSimilar finds pairs.
func TestSimilar(t *testing.T) {
	t.Parallel()
	conformance.Run(t, conformance.SQL(), pairs)
}

func pairs(e *conformance.Env[*sql.Tx]) {
	s := e.Store(idempotency.Options{})
	for _, key := range []string{"a", "b", "c"} {
		op := conformance.Op(key)
		if key != "c" {
			op.Request = "the same"
		}
		if _, err := e.Do(s, op); err != nil {
			e.Fatal(err)
		}
	}
	found, err := similar.Records(e.Ctx, e.DB, similar.Filter{Name: "refund"})
	if err != nil || len(found.Pairs) != 1 || found.Rows != 3 || !found.Complete || found.Pairs[0].First.Key+found.Pairs[0].Second.Key == "c" {
		e.Errorf("%+v, %v", found, err)
	}
	if found, err := similar.Records(e.Ctx, e.DB, similar.Filter{Namespace: "another", Name: "refund"}); err != nil || found.Found != 0 {
		e.Errorf("%+v, %v", found, err)
	}
	for _, bad := range []similar.Filter{{}, {Window: 1}, {Since: 1}, {MaxRows: math.MaxInt}, {Limit: math.MaxInt}} {
		if bad != (similar.Filter{}) {
			bad.Name = "refund"
		}
		if _, err := similar.Records(e.Ctx, e.DB, bad); !errors.Is(err, holdfast.ErrInvalid) {
			e.Errorf("%+v: %v", bad, err)
		}
	}
	// A key of two columns, one of them text; a page of 1000 rows ends between the two of a pair.
	e.Must(`CREATE TABLE payments (shop ` + e.Text() + ` NOT NULL, no BIGINT NOT NULL, order_id ` + e.Text() + ` NOT NULL, cents BIGINT, at_s BIGINT NOT NULL, PRIMARY KEY (shop, no))`)
	values := ""
	for i := range 1100 {
		order := fmt.Sprint(i)
		if i%1099 == 0 {
			order = "twice"
		}
		values += fmt.Sprintf(", ('shop', %d, '%s', 100, %d)", i, order, time.Now().Unix()-int64(i%2))
	}
	e.Must(`INSERT INTO payments VALUES ` + values[2:])
	table := similar.Table{
		TableSpec: holdfast.TableSpec{Table: "payments", Key: []string{"shop", "no"}}, Columns: []string{"order_id", "cents"}, Time: "at_s", Unit: time.Second,
	}
	found, err = similar.Rows(e.Ctx, e.DB, table, similar.Filter{})
	if err != nil || len(found.Pairs) != 1 || found.Rows != 1100 || !found.Complete {
		e.Fatalf("%+v, %v", found, err)
	}
	p := found.Pairs[0]
	keys := []string{p.First.Key, p.Second.Key}
	slices.Sort(keys)
	if !slices.Equal(keys, []string{"shop/0", "shop/1099"}) || !slices.Equal(p.By, []string{"twice", "100"}) {
		e.Errorf("%+v", p)
	}
	if found, err = similar.Rows(e.Ctx, e.DB, table, similar.Filter{MaxRows: 1050}); err != nil || found.Found != 0 || found.Rows != 1050 || found.Complete {
		e.Errorf("%+v, %v", found, err)
	}
	// A migration changes the type of a column: connections have statements of before.
	for _, cents := range []string{"INTEGER", "SMALLINT", "BIGINT"} {
		for range 5 {
			if _, err := similar.Rows(e.Ctx, e.DB, table, similar.Filter{}); err != nil {
				e.Fatal(err)
			}
		}
		e.Must(`DROP TABLE payments`)
		e.Must(`CREATE TABLE payments (shop ` + e.Text() + ` NOT NULL, no BIGINT NOT NULL, order_id ` + e.Text() + ` NOT NULL, cents ` + cents + `, at_s BIGINT NOT NULL, PRIMARY KEY (shop, no))`)
		e.Must(`INSERT INTO payments VALUES ` + values[2:])
		if found, err := similar.Rows(e.Ctx, e.DB, table, similar.Filter{}); err != nil || len(found.Pairs) != 1 || found.Rows != 1100 {
			e.Errorf("%s: %+v, %v", cents, found, err)
		}
	}
	table.Unit = 0
	if _, err := similar.Rows(e.Ctx, e.DB, table, similar.Filter{}); !errors.Is(err, holdfast.ErrInvalid) {
		e.Error(err)
	}
	ended, cancel := context.WithCancel(e.Ctx)
	cancel()
	if _, err := similar.Records(ended, e.DB, similar.Filter{Name: "refund"}); !errors.Is(err, context.Canceled) {
		e.Error(err)
	}
}
