// Package routers shows package idemhttp with chi, gin and echo. It is a module
// of its own, so that none of them is required by Holdfast.
//
// The handler may run more than once for one request. So it is the router's
// innermost handler that is wrapped (chi, whose handlers are net/http's), or a
// whole router, which makes a context of its own each time it is called (gin,
// echo). Their own middleware form is not used: gin's Context.Next runs the
// handler once only, and echo.WrapMiddleware hands a returned error on when the
// answer has been committed.
package routers

import (
	"database/sql"
	"net/http"

	"github.com/gin-gonic/gin"
	"github.com/go-chi/chi/v5"
	"github.com/labstack/echo/v5"

	"github.com/holdfast-go/holdfast/idempotency/idemhttp"
)

// Refund is what the service does, whatever router it has.
type Refund func(r *http.Request, tx *sql.Tx, order string) (text string, err error)

// Chi wraps the route's handler, so the operation's name is the route's pattern.
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

// Gin wraps the engine. What is no business of the keys (GET, OPTIONS) passes
// through; routes that need no key belong to another engine.
func Gin(once *idemhttp.Middleware[*sql.Tx], refund Refund) http.Handler {
	engine := gin.New()
	engine.Use(gin.Recovery()) // its 500 is not kept
	engine.POST("/orders/:order/refunds", func(c *gin.Context) {
		ctx := c.Request.Context()
		tx, _ := idemhttp.Tx[*sql.Tx](ctx) // there is one: POST needs a key
		text, err := refund(c.Request, tx, c.Param("order"))
		if err != nil {
			idemhttp.Fail(ctx, err)
			return
		}
		c.String(http.StatusCreated, "%s", text)
	})
	return once.Wrap(engine)
}

// Echo wraps the instance. An error that is returned becomes the answer of its
// error handler, and is kept or not by its status; one that is given to Fail is
// a rejection to be kept, or rolled back and run again where the database asks
// for it.
func Echo(once *idemhttp.Middleware[*sql.Tx], refund Refund) http.Handler {
	e := echo.New()
	e.POST("/orders/:order/refunds", func(c *echo.Context) error {
		ctx := c.Request().Context()
		tx, _ := idemhttp.Tx[*sql.Tx](ctx) // there is one: POST needs a key
		text, err := refund(c.Request(), tx, c.Param("order"))
		if err != nil {
			idemhttp.Fail(ctx, err)
			return nil
		}
		return c.String(http.StatusCreated, text)
	})
	return once.Wrap(e)
}
