package idemhttp_test

import (
	"context"
	"database/sql"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/holdfasttest"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/idempotency/idemclient"
	"github.com/holdfast-go/holdfast/idempotency/idemhttp"
)

// refundTool is what the model calls. The task and the order give the key: the model neither sees nor chooses it.
func refundTool(ctx context.Context, client *http.Client, url, task, order, cents string) string {
	ctx, cancel := context.WithTimeout(idemclient.WithKey(ctx, refundKey(task, order)), 20*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/orders/"+order+"/refunds", strings.NewReader(cents))
	if err != nil {
		return "Not sent: " + err.Error()
	}
	return told(client.Do(r))
}

// lookUpTool says what became of the refund, and never makes one.
func lookUpTool(ctx context.Context, client *http.Client, url, task, order string) string {
	key, err := idemclient.FormatKey(refundKey(task, order))
	if err != nil {
		return "Not sent: " + err.Error()
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/refunds/lookup", http.NoBody)
	if err != nil {
		return "Not sent: " + err.Error()
	}
	r.Header.Set(idemclient.HeaderKey, key)
	return told(client.Do(r))
}

func refundKey(task, order string) string {
	return task + "/refund/" + order
}

// told makes an answer of the service one that a model acts on rightly.
func told(response *http.Response, err error) string {
	const unknown = "UNKNOWN: it may have been done. Call the look-up tool. Do not start another refund."
	if err != nil {
		return unknown // no answer: *idemclient.UnansweredError
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	switch {
	case err != nil:
		return unknown
	case response.Header.Get(idemclient.HeaderConfirm) != "":
		return "ASK THE USER: a refund like this one was made before. It needs their word, and the same tool cannot give it."
	case idemclient.Definite(response):
		return "FINAL: " + string(text) // also a replayed 404
	case response.StatusCode == http.StatusNotFound && response.Request.Method == http.MethodGet:
		return "NOT STORED: it was not done, or is on its way. Call the refund tool with the same arguments."
	}
	return "NOT DECIDED: call the tool again with the same arguments."
}

// TestAgent plays what agents do, with the tools of docs/howto/agents.md.
func TestAgent(t *testing.T) {
	t.Parallel()
	kit := holdfasttest.SQLite(t, holdfast.Options{SingleOwner: true})
	if _, err := kit.Pool.ExecContext(t.Context(), `CREATE TABLE refunds (order_no TEXT, cents TEXT)`); err != nil {
		t.Fatal(err)
	}
	store, err := idempotency.New(t.Context(), kit.DB)
	if err != nil {
		t.Fatal(err)
	}
	m, err := idemhttp.New(store, idemhttp.Operation("refund"), idemhttp.Options{
		Logger: slog.New(slog.DiscardHandler),
		Similar: func(r *http.Request, body []byte) (*idempotency.Similar, error) {
			return &idempotency.Similar{By: []string{r.PathValue("order"), string(body)}, Window: time.Hour}, nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle("GET /refunds/lookup", m.Lookup("refund"))
	mux.Handle("POST /orders/{order}/refunds", m.Handler(func(w http.ResponseWriter, r *http.Request, tx *sql.Tx) error {
		cents, err := io.ReadAll(r.Body)
		if err != nil {
			return err
		}
		if r.PathValue("order") == "none" {
			http.Error(w, "no such order", http.StatusNotFound)
			return nil
		}
		if _, err := tx.ExecContext(r.Context(), `INSERT INTO refunds VALUES (?, ?)`, r.PathValue("order"), cents); err != nil {
			return err
		}
		_, err = fmt.Fprintf(w, "refunded %s", cents)
		return err
	}))
	server := httptest.NewServer(mux)
	defer server.Close()
	ctx, client := t.Context(), server.Client()
	client.Transport = &idemclient.Transport{Base: client.Transport, Attempts: 1}
	defer client.CloseIdleConnections()

	lost, cancel := context.WithCancel(ctx)
	cancel() // the runtime ends the call
	for _, step := range []struct{ what, got, want string }{
		{"a look before", lookUpTool(ctx, client, server.URL, "task-1", "42"), "NOT STORED"},
		{"a call that is cut off", refundTool(lost, client, server.URL, "task-1", "42", "1250"), "UNKNOWN"},
		{"the refund", refundTool(ctx, client, server.URL, "task-1", "42", "1250"), "FINAL: refunded 1250"},
		{"the model forgot it", refundTool(ctx, client, server.URL, "task-1", "42", "1250"), "FINAL: refunded 1250"},
		{"a look after", lookUpTool(ctx, client, server.URL, "task-1", "42"), "FINAL: refunded 1250"},
		{"other arguments", refundTool(ctx, client, server.URL, "task-1", "42", "1300"), "FINAL: {"}, // 422
		{"no such order", refundTool(ctx, client, server.URL, "task-3", "none", "5"), "NOT DECIDED"}, // its replay is final
		{"a look at it", lookUpTool(ctx, client, server.URL, "task-3", "none"), "FINAL: no such order"},
		{"the same again", refundTool(ctx, client, server.URL, "task-3", "none", "5"), "FINAL: no such order"},
		{"another task, the same refund", refundTool(ctx, client, server.URL, "task-2", "42", "1250"), "ASK THE USER"},
	} {
		if !strings.HasPrefix(step.got, step.want) {
			t.Errorf("%s: %q, want %q", step.what, step.got, step.want)
		}
	}
	var n int
	if err := kit.Pool.QueryRowContext(ctx, `SELECT COUNT(*) FROM refunds`).Scan(&n); err != nil || n != 1 {
		t.Errorf("%d refunds, %v", n, err)
	}
}
