// Command mysql is a refund service on MySQL or MariaDB: limits, a provider that pays each refund once, webhooks and a console.
package main

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"log"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/adapters/holdfastsql"
	"github.com/holdfast-go/holdfast/console"
	"github.com/holdfast-go/holdfast/examples/service/provider"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/idempotency/idemhttp"
	"github.com/holdfast-go/holdfast/idempotency/staged"
	"github.com/holdfast-go/holdfast/limits"
	"github.com/holdfast-go/holdfast/migrations"
	"github.com/holdfast-go/holdfast/reaper"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	config := must(mysql.ParseDSN(os.Getenv("DATABASE_URL")))
	pool := sql.OpenDB(holdfastsql.Connector(must(mysql.NewConnector(config))))
	must(0, migrations.Up(ctx, pool)) // Holdfast's tables, and two of yours
	must(pool.ExecContext(ctx, `CREATE TABLE IF NOT EXISTS orders (shop VARBINARY(64), order_no VARBINARY(64), paid BIGINT NOT NULL, reserved BIGINT NOT NULL DEFAULT 0,
		refunded BIGINT NOT NULL DEFAULT 0, PRIMARY KEY (shop, order_no), CHECK (reserved >= 0 AND refunded >= 0 AND reserved + refunded <= paid))`))
	must(pool.ExecContext(ctx, `CREATE TABLE IF NOT EXISTS refunds (shop VARBINARY(64), id VARBINARY(300), order_no VARBINARY(64), cents BIGINT, state VARCHAR(16), PRIMARY KEY (shop, id))`))
	db := must(holdfastsql.Open(ctx, pool))
	store := must(idempotency.New(ctx, db))
	bank := provider.Client{URL: os.Getenv("PROVIDER_URL"), Secret: os.Getenv("WEBHOOK_SECRET")}
	key := holdfast.TableSpec{Table: "orders", Key: []string{"shop", "order_no"}}
	orders := must(limits.New(ctx, db, "refunds", limits.Options{Table: &limits.Table{TableSpec: key, Owner: "shop", Limit: "paid", Reserved: "reserved", Captured: "refunded"}}))
	refunds := must(staged.New(store, staged.Workflow[provider.Refund, string, *sql.Tx]{
		Name: "refund", Lease: 2 * time.Second, // when a process dies, another one goes on after the lease
		Run: func(ctx context.Context, r *staged.Run[*sql.Tx], f provider.Refund) (string, error) {
			call := staged.ExternalCall[string]{Step: "pay", Timeout: 30 * time.Second, OnLeaseEnd: staged.TakeOver}
			reference, err := staged.Call(ctx, r, call, func(ctx context.Context, key string) (string, error) {
				answer, err := bank.Refund(ctx, key, f) // an error: the outcome is unknown, so it is asked again with the same key
				return answer.Reference, cmp.Or(err, map[string]error{
					provider.Accepted: staged.Accepted(answer.Reference, 72*time.Hour), // a webhook says more
					provider.Refused:  idempotency.Reject("refused", "the provider refused"),
				}[answer.State])
			})
			state, end := "paid", orders.For(f.Shop).CaptureTx
			if refused := new(idempotency.Rejection); errors.As(err, &refused) {
				state, end = "refused", orders.For(f.Shop).VoidTx // compensates: the order has the amount again
			} else if err != nil {
				return "", err
			}
			_, failed := staged.Local(ctx, r, "book", func(ctx context.Context, tx *sql.Tx) (string, error) {
				if _, err := end(ctx, tx, limits.Request{Key: f.Order, ID: f.ID}); err != nil {
					return "", err
				}
				_, err := tx.ExecContext(ctx, `UPDATE refunds SET state = ? WHERE shop = ? AND id = ?`, state, f.Shop, f.ID)
				return state, err
			})
			return reference, cmp.Or(failed, err)
		},
	}))
	shop := func(r *http.Request) (string, error) { return r.Header.Get("Shop"), nil } // yours: the user's shop
	once := must(idemhttp.New(store, idemhttp.Operation("refund request"), idemhttp.Options{Owner: shop}))
	mux := http.NewServeMux()
	mux.Handle("/console/", http.StripPrefix("/console", must(console.New(ctx, db, console.Options{Token: os.Getenv("CONSOLE_TOKEN"), Ending: ctx.Done()}))))
	mux.Handle("GET /refunds/", must(idemhttp.Status(once, refunds, "/refunds/")))
	mux.Handle("POST /orders/{order}/refunds", once.Handler(func(w http.ResponseWriter, r *http.Request, tx *sql.Tx) error {
		cents, _ := strconv.ParseInt(r.FormValue("cents"), 10, 64) // without a number it is refused below
		f := provider.Refund{Shop: r.Header.Get("Shop"), Order: r.PathValue("order"), ID: r.Header.Get("Idempotency-Key"), Cents: cents}
		_, err := orders.For(f.Shop).ReserveTx(r.Context(), tx, limits.Request{Key: f.Order, ID: f.ID, Amount: f.Cents})
		if errors.Is(err, limits.ErrExceeded) || errors.Is(err, limits.ErrNotFound) || errors.Is(err, holdfast.ErrInvalid) {
			return idempotency.Reject("not-refundable", "the order has less left to refund") // 422, for this key and for 30 days
		} else if err != nil {
			return err
		}
		if _, err := tx.ExecContext(r.Context(), `INSERT INTO refunds VALUES (?, ?, ?, ?, 'asked')`, f.Shop, f.ID, f.Order, f.Cents); err != nil {
			return err
		}
		started, err := refunds.StartTx(r.Context(), tx, idempotency.Op{Owner: f.Shop, Key: f.ID}, f)
		if err != nil {
			return err
		}
		return idemhttp.Accept(w, r, started) // 202, and where its status is
	}))
	mux.HandleFunc("POST /webhook", func(w http.ResponseWriter, r *http.Request) {
		answer, err := bank.Webhook(r)
		event := staged.ProviderEvent{ID: answer.Event, ProviderKey: answer.Key, Outcome: staged.StepDone, Result: answer.Reference}
		if answer.State == provider.Refused {
			event.Outcome, event.Result, event.Rejection = staged.StepRejected, nil, &idempotency.Rejection{Code: "refused"}
		}
		if err == nil {
			_, err = staged.HandleEvent(r.Context(), store, event, nil) // once, however often it comes
		}
		if err != nil {
			w.WriteHeader(http.StatusServiceUnavailable) // the provider sends it again
		}
	})
	server := &http.Server{Addr: os.Getenv("ADDRESS"), Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	go func() { log.Print(server.ListenAndServe()); stop() }()
	go func() { _ = must(reaper.New(ctx, db)).Run(ctx) }()
	_ = refunds.RunCompleter(ctx, staged.RunOptions{Every: time.Second}) // until a signal comes; it stops between two steps
	_ = server.Shutdown(context.Background())
}

func must[T any](value T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return value
}
