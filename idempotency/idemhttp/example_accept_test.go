package idemhttp_test

import (
	"context"
	"database/sql"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"

	"github.com/holdfast-go/holdfast/adapters/holdfastsql"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/idempotency/idemclient"
	"github.com/holdfast-go/holdfast/idempotency/idemhttp"
	"github.com/holdfast-go/holdfast/idempotency/staged"
	"github.com/holdfast-go/holdfast/migrations"
)

// bank is a payment provider that honours idempotency keys.
type bank struct{}

func (bank) Refund(_ context.Context, _, order string) (string, error) { return "re_" + order, nil }

// payments is the whole service: the request, the provider and the record meet.
func payments(ctx context.Context, db *sql.DB, provider bank) (http.Handler, error) {
	holdfast, err := holdfastsql.Open(ctx, db)
	if err != nil {
		return nil, err
	}
	store, err := idempotency.New(ctx, holdfast)
	if err != nil {
		return nil, err
	}
	refunds, err := staged.New(store, staged.Workflow[string, string, *sql.Tx]{
		Name: "refund",
		Run: func(ctx context.Context, r *staged.Run[*sql.Tx], order string) (string, error) { // steps; runs again after a crash
			call := staged.ExternalCall[string]{Step: "pay", OnLeaseEnd: staged.TakeOver}
			ref, err := staged.Call(ctx, r, call, func(ctx context.Context, key string) (string, error) { return provider.Refund(ctx, key, order) })
			if err != nil {
				return "", err
			}
			return staged.Local(ctx, r, "close", func(ctx context.Context, tx *sql.Tx) (string, error) {
				_, err := tx.ExecContext(ctx, `UPDATE refunds SET reference = ? WHERE order_no = ?`, ref, order)
				return ref, err
			})
		},
	})
	if err != nil {
		return nil, err
	}
	go func() { _ = refunds.RunCompleter(ctx) }() // what is started here it continues at once
	once, err := idemhttp.New(store, idemhttp.Operation("refund request"), idemhttp.Options{Owner: merchant})
	if err != nil {
		return nil, err
	}
	status, err := idemhttp.Status(once, refunds, "/refunds/")
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.Handle("GET /refunds/", status)
	mux.Handle("POST /orders/{order}/refunds", once.Handler(func(w http.ResponseWriter, r *http.Request, tx *sql.Tx) error {
		owner, order := r.Header.Get("Merchant"), r.PathValue("order")
		if _, err := tx.ExecContext(r.Context(), `INSERT INTO refunds (order_no) VALUES (?)`, order); err != nil {
			return err
		}
		op := idempotency.Op{Owner: owner, Key: idempotency.KeyOf(order, "1")} // refund 1 of the order
		started, err := refunds.StartTx(r.Context(), tx, op, order)            // committed with the row
		if err != nil {
			return err
		}
		return idemhttp.Accept(w, r, started) // 202 and a Location, or the result if the client waits
	}))
	return mux, nil
}

func merchant(r *http.Request) (string, error) { return r.Header.Get("Merchant"), nil } // from a verified credential

// A refund that calls the bank: the handler books it and starts it in one transaction, and answers 202
// with the address of its status, or the result if the client waits for it.
func ExampleAccept() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	dir, err := os.MkdirTemp("", "holdfast")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	db, err := sql.Open("sqlite", "file:"+filepath.Join(dir, "shop.db")+"?_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)")
	if err != nil {
		panic(err)
	}
	defer db.Close()
	if err := migrations.Up(ctx, db); err != nil {
		panic(err)
	}
	if _, err := db.ExecContext(ctx, `CREATE TABLE refunds (order_no TEXT PRIMARY KEY, reference TEXT)`); err != nil {
		panic(err)
	}
	service, err := payments(ctx, db, bank{})
	if err != nil {
		panic(err)
	}
	ask := func(method, path, prefer string) *http.Response {
		r := httptest.NewRequestWithContext(ctx, method, path, http.NoBody)
		r.Header.Set("Merchant", "shop-7")
		r.Header.Set(idemclient.HeaderKey, "order-42-refund-1")
		r.Header.Set("Prefer", prefer)
		w := httptest.NewRecorder()
		service.ServeHTTP(w, r)
		return w.Result()
	}
	show := func(response *http.Response) {
		defer response.Body.Close()
		text, _ := io.ReadAll(response.Body)
		fmt.Println(response.StatusCode, string(text))
	}
	first := ask("POST", "/orders/42/refunds", "respond-async")
	show(first)
	show(ask("GET", first.Header.Get("Location"), "wait=30"))
	show(ask("POST", "/orders/42/refunds", "")) // the client asks again
	// Output:
	// 202 {"status":"waiting"}
	// 200 {"status":"succeeded","result":"re_42"}
	// 200 {"status":"succeeded","result":"re_42"}
}
