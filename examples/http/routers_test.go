package routers_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/gin-gonic/gin"
	"github.com/labstack/echo/v5"
	"go.uber.org/goleak"
	_ "modernc.org/sqlite"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/adapters/holdfastsql"
	routers "github.com/holdfast-go/holdfast/examples/http"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/idempotency/idemclient"
	"github.com/holdfast-go/holdfast/idempotency/idemhttp"
	"github.com/holdfast-go/holdfast/migrations"
)

func TestMain(m *testing.M) {
	gin.SetMode(gin.ReleaseMode)
	gin.DefaultErrorWriter = io.Discard
	goleak.VerifyTestMain(m)
}

// shop is a database with a middleware on it.
type shop struct {
	pool *sql.DB
	once *idemhttp.Middleware[*sql.Tx]
	runs int
}

func open(t *testing.T) *shop {
	t.Helper()
	pool, err := sql.Open("sqlite", "file:"+filepath.Join(t.TempDir(), "shop.db"))
	must(t, err)
	t.Cleanup(func() { must(t, pool.Close()) })
	must(t, migrations.Up(t.Context(), pool))
	_, err = pool.ExecContext(t.Context(), `CREATE TABLE refunds (order_no TEXT)`)
	must(t, err)
	db, err := holdfastsql.Open(t.Context(), pool, holdfast.Options{SingleOwner: true})
	must(t, err)
	store, err := idempotency.New(t.Context(), db)
	must(t, err)
	once, err := idemhttp.New(store, idemhttp.Operation("refund"), idemhttp.Options{Logger: slog.New(slog.DiscardHandler)})
	must(t, err)
	return &shop{pool: pool, once: once}
}

// refund succeeds or fails in the way that the order's name says.
func (s *shop) refund(r *http.Request, tx *sql.Tx, order string) (string, error) {
	s.runs++
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return "", err
	}
	if _, err := tx.ExecContext(r.Context(), `INSERT INTO refunds VALUES (?)`, order); err != nil {
		return "", err
	}
	switch order {
	case "busy":
		if s.runs == 1 {
			return "", s.busy(r.Context())
		}
	case "rejected":
		return "", idempotency.Reject("no", "never")
	case "fails":
		return "", errors.New("boom")
	case "panics":
		panic("boom")
	}
	return fmt.Sprintf("refunded %s, run %d", body, s.runs), nil
}

// busy returns SQLite's own error for a write lock that is taken, after which the transaction
// runs again.
func (s *shop) busy(ctx context.Context) error {
	conn, err := s.pool.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	_, err = conn.ExecContext(ctx, `PRAGMA busy_timeout = 0; BEGIN IMMEDIATE`)
	return err
}

func post(h http.Handler, order, key string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodPost, "/orders/"+order+"/refunds", strings.NewReader("100"))
	if key != "" {
		r.Header.Set(idemclient.HeaderKey, key)
	}
	w := httptest.NewRecorder()
	func() {
		defer func() { _ = recover() }() // as a server does
		h.ServeHTTP(w, r)
	}()
	return w
}

func (s *shop) wantRefunds(t *testing.T, order string, want int) {
	t.Helper()
	var n int
	must(t, s.pool.QueryRowContext(t.Context(), `SELECT COUNT(*) FROM refunds WHERE order_no = ?`, order).Scan(&n))
	if n != want {
		t.Errorf("%s has %d refunds in the table, want %d", order, n, want)
	}
}

// TestRouters checks that each router gives one effect and one answer, also when the database
// requires another run, and that failures are not stored.
func TestRouters(t *testing.T) {
	t.Parallel()
	for name, router := range map[string]func(*idemhttp.Middleware[*sql.Tx], routers.Refund) http.Handler{
		"chi": routers.Chi, "gin": routers.Gin, "echo": routers.Echo,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := open(t)
			h := router(s.once, s.refund)
			for _, c := range []struct {
				order           string
				status, refunds int
				kept            bool
			}{
				{"busy", http.StatusCreated, 1, true},
				{"A-17", http.StatusCreated, 1, true},
				{"rejected", http.StatusUnprocessableEntity, 0, true},
				{"fails", http.StatusInternalServerError, 0, false},
				{"panics", 0, 0, false},
			} {
				first, second := post(h, c.order, c.order), post(h, c.order, c.order)
				s.wantRefunds(t, c.order, c.refunds)
				if c.status == 0 {
					continue // the router's recoverer or the server answers
				}
				if first.Code != c.status || first.Header().Get(idemclient.HeaderReplayed) != "" {
					t.Errorf("%s: first %d %s", c.order, first.Code, first.Body)
				}
				if replayed := second.Header().Get(idemclient.HeaderReplayed) == "true"; replayed != c.kept {
					t.Errorf("%s: replayed is %v", c.order, replayed)
				}
				if second.Code != first.Code || second.Body.String() != first.Body.String() {
					t.Errorf("%s: first %s, then %s", c.order, first.Body, second.Body)
				}
			}
			if w := post(h, "A-17", ""); w.Code != http.StatusBadRequest {
				t.Errorf("without a key: %d %s", w.Code, w.Body)
			}
			s.doubleClick(t, h)
		})
	}
}

func (s *shop) doubleClick(t *testing.T, h http.Handler) {
	t.Helper()
	answers := make([]*httptest.ResponseRecorder, 20)
	var wg sync.WaitGroup
	for i := range answers {
		wg.Go(func() { answers[i] = post(h, "twice", "twice") })
	}
	wg.Wait()
	for _, a := range answers {
		if a.Code != http.StatusCreated || a.Body.String() != answers[0].Body.String() {
			t.Errorf("got %d %s, another got %s", a.Code, a.Body, answers[0].Body)
		}
	}
	s.wantRefunds(t, "twice", 1)
}

// TestNaiveForms shows what goes wrong with the routers' own middleware forms, and why they
// are not used.
func TestNaiveForms(t *testing.T) {
	t.Parallel()
	t.Run("gin runs its handler once only", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		engine := gin.New()
		engine.POST("/orders/:order/refunds", func(c *gin.Context) {
			s.once.Wrap(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				c.Request = r
				c.Next()
			})).ServeHTTP(c.Writer, c.Request)
		}, func(c *gin.Context) {
			tx, _ := idemhttp.Tx[*sql.Tx](c.Request.Context())
			if _, err := s.refund(c.Request, tx, "busy"); err != nil {
				idemhttp.Fail(c.Request.Context(), err)
			}
		})
		w := post(engine, "busy", "k")
		s.wantRefunds(t, "busy", 0)
		if w.Code != http.StatusInternalServerError { // detected, and not treated as a success
			t.Errorf("got %d %s", w.Code, w.Body)
		}
	})
	t.Run("echo answers an error after the commit", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		e := echo.New()
		e.Use(echo.WrapMiddleware(s.once.Wrap))
		e.POST("/orders/:order/refunds", func(c *echo.Context) error {
			tx, _ := idemhttp.Tx[*sql.Tx](c.Request().Context())
			_, err := s.refund(c.Request(), tx, "fails")
			return err
		})
		post(e, "fails", "k")
		s.wantRefunds(t, "fails", 1) // from a handler that failed
	})
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
