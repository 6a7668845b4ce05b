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
	"strings"

	_ "modernc.org/sqlite"

	"github.com/holdfast-go/holdfast/adapters/holdfastsql"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/idempotency/idemclient"
	"github.com/holdfast-go/holdfast/idempotency/idemhttp"
	"github.com/holdfast-go/holdfast/migrations"
)

// A refund over HTTP: a client sends the request twice with one key.
func Example() {
	if err := shop(context.Background()); err != nil {
		fmt.Println(err)
	}
	// Output:
	// 201 replayed="" refunded 1250 cents of order 42
	// 201 replayed="true" refunded 1250 cents of order 42
	// refunds in the table: 1
}

// shop sets up the rest of the program: a pool, the tables and a server.
func shop(ctx context.Context) error {
	dir, err := os.MkdirTemp("", "holdfast")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	pool, err := sql.Open("sqlite", "file:"+filepath.Join(dir, "shop.db"))
	if err != nil {
		return err
	}
	defer pool.Close()
	if err := migrations.Up(ctx, pool); err != nil {
		return err
	}
	if _, err := pool.ExecContext(ctx, `CREATE TABLE refunds (order_no TEXT, cents TEXT)`); err != nil {
		return err
	}
	handler, err := refunds(ctx, pool)
	if err != nil {
		return err
	}
	server := httptest.NewServer(handler)
	defer server.Close()
	if err := askTwice(ctx, server.URL); err != nil {
		return err
	}
	var n int
	if err := pool.QueryRowContext(ctx, `SELECT COUNT(*) FROM refunds`).Scan(&n); err != nil {
		return err
	}
	fmt.Println("refunds in the table:", n)
	return nil
}

func refunds(ctx context.Context, pool *sql.DB) (http.Handler, error) {
	db, err := holdfastsql.Open(ctx, pool)
	if err != nil {
		return nil, err
	}
	store, err := idempotency.New(ctx, db)
	if err != nil {
		return nil, err
	}
	once, err := idemhttp.New(store, idemhttp.Operation("refund"), idemhttp.Options{
		Owner: func(*http.Request) (string, error) { return "shop-7", nil }, // from a verified credential
	})
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.Handle("POST /orders/{order}/refunds", once.Handler(
		func(w http.ResponseWriter, r *http.Request, tx *sql.Tx) error {
			cents, err := io.ReadAll(r.Body)
			if err != nil {
				return err
			}
			if len(cents) > 6 {
				return idempotency.Reject("over_refund", "more than was paid") // kept 30 days: each retry gets this 422
			}
			if _, err := tx.ExecContext(r.Context(), `INSERT INTO refunds VALUES (?, ?)`, r.PathValue("order"), cents); err != nil {
				return err // rolled back; run again if the database requires it, otherwise 500
			}
			w.WriteHeader(http.StatusCreated) // sent after COMMIT
			_, err = fmt.Fprintf(w, "refunded %s cents of order %s", cents, r.PathValue("order"))
			return err
		}))
	return mux, nil
}

func askTwice(ctx context.Context, url string) error {
	client := http.Client{Transport: &idemclient.Transport{}}
	defer client.CloseIdleConnections()
	ctx = idemclient.WithKey(ctx, "order-42-refund-1") // one intent, even if it is sent many times
	for range 2 {
		request, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/orders/42/refunds", strings.NewReader("1250"))
		if err != nil {
			return err
		}
		response, err := client.Do(request)
		if err != nil {
			return err
		}
		text, err := io.ReadAll(response.Body)
		_ = response.Body.Close()
		if err != nil {
			return err
		}
		fmt.Printf("%d replayed=%q %s\n", response.StatusCode, response.Header.Get(idemclient.HeaderReplayed), text)
	}
	return nil
}
