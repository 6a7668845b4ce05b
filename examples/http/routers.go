// Package routers shows package idemhttp with chi, gin and echo. It is a separate module, so that
// Holdfast requires none of them.
//
// The handler may run more than once for one request. So each example wraps the router's innermost
// handler (chi, whose handlers are net/http's), or a whole router, which makes its own context
// each time it is called (gin, echo). The routers' own form of middleware is not used: gin's
// Context.Next runs the handler once only, and echo.WrapMiddleware passes a returned error on
// after the response has been committed.
package routers

import (
	"database/sql"
	"net/http"

	"github.com/gin-gonic/gin"
	"github.com/go-chi/chi/v5"
	"github.com/labstack/echo/v5"

	"github.com/holdfast-go/holdfast/idempotency/idemhttp"
)

// Refund is the service's work, independent of the router.
type Refund func(r *http.Request, tx *sql.Tx, order string) (text string, err error)

// Chi wraps the route's handler. The operation's name comes from the middleware (see idemhttp.New), not from
// the route's pattern, so the pattern may change.
func Chi(once *idemhttp.Middleware[*sql.Tx], refund Refund) http.Handler {
	router := chi.NewRouter()
	router.Method(http.MethodPost, "/orders/{order}/refunds", once.Handler(
		func(w http.ResponseWriter, r *http.Request, tx *sql.Tx) error {
			text, err := refund(r, tx, chi.URLParam(r, "order"))
			if err != nil {
				return err
			}
			w.WriteHeader(http.StatusCreated)
			_, err = w.Write([]byte(text))
			return err
		}))
	return router
}

// Gin wraps the engine. Requests without a key (GET, OPTIONS) pass through. Put routes that need
// no key into another engine.
func Gin(once *idemhttp.Middleware[*sql.Tx], refund Refund) http.Handler {
	engine := gin.New()
	engine.Use(gin.Recovery()) // its 500 is not stored
	engine.POST("/orders/:order/refunds", func(c *gin.Context) {
		ctx := c.Request.Context()
		tx, _ := idemhttp.Tx[*sql.Tx](ctx) // always found: POST needs a key
		text, err := refund(c.Request, tx, c.Param("order"))
		if err != nil {
			idemhttp.Fail(ctx, err)
			return
		}
		c.String(http.StatusCreated, "%s", text)
	})
	return once.Wrap(engine)
}

// Echo wraps the instance. A returned error becomes the response of echo's error handler, and is
// stored or not by its status. An error passed to Fail is a rejection and is stored, or it rolls
// back, and the handler runs again if the database asks for it.
func Echo(once *idemhttp.Middleware[*sql.Tx], refund Refund) http.Handler {
	e := echo.New()
	e.POST("/orders/:order/refunds", func(c *echo.Context) error {
		ctx := c.Request().Context()
		tx, _ := idemhttp.Tx[*sql.Tx](ctx) // always found: POST needs a key
		text, err := refund(c.Request(), tx, c.Param("order"))
		if err != nil {
			idemhttp.Fail(ctx, err)
			return nil
		}
		return c.String(http.StatusCreated, text)
	})
	return once.Wrap(e)
}
