// Package holdfastvet finds mistakes in the use of Holdfast that compile.
//
//	go install github.com/holdfast-go/holdfast/holdfastvet/cmd/holdfastvet@latest
//	go vet -vettool=$(which holdfastvet) ./...
//
// It reports, in functions that Holdfast runs in a transaction (those given to
// idempotency.Do, DB.InTx, an HTTP middleware and so on, which take a context and
// a transaction):
//
//   - a call of net/http's client. The transaction cannot take it back, and it
//     may run more than once: make it a step of package staged, or make it before
//     or after the transaction.
//   - a query on the pool (*sql.DB, *sqlx.DB, *pgxpool.Pool). It is not part of the
//     transaction: its write stays when the transaction rolls back. Use the
//     transaction that the function receives.
//
// And anywhere: an idempotency key that is new at each call (a random UUID, the
// time of day), so that no duplicate is ever recognized; a lease's context that is
// given to InTx, which then answers "context canceled" where its guard would say
// that the lease is lost; an error of Do, InTx, Guard and so on that is dropped.
//
// And in a function with a *staged.Run, which the next attempt runs again to reach
// the same steps: the clock, random values, steps in the order of a map or in
// goroutines, and names of steps that another attempt cannot know.
//
// And in a package with a staged.ExternalCall that is not TakeOver: a request that
// gets the header Idempotency-Key, if the package does not use idemclient.SendOnce.
// net/http sends such a request again when a kept connection dies, and a provider
// that ignores keys pays twice.
//
// Functions that such a function calls are followed, also into other packages: what
// they send, and whether they return what is new at each call, is kept as facts. Calls
// of interfaces and of variables are not followed, and no goroutines of helpers.
package holdfastvet

import (
	"errors"
	"go/ast"
	"go/token"
	"go/types"
	"strings"

	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/analysis/passes/inspect"
	"golang.org/x/tools/go/ast/inspector"
	"golang.org/x/tools/go/types/typeutil"
)

const module = "github.com/holdfast-go/holdfast"

// Analyzer reports the mistakes that the package names.
var Analyzer = &analysis.Analyzer{
	Name:      "holdfast",
	Doc:       "find HTTP calls and the outer pool in functions that Holdfast runs in a transaction, idempotency keys that are always new, dropped errors, steps that the next attempt does not reach, and outside calls that net/http repeats",
	URL:       "https://pkg.go.dev/" + module + "/holdfastvet",
	Requires:  []*analysis.Analyzer{inspect.Analyzer},
	FactTypes: []analysis.Fact{new(outside), new(always)},
	Run:       run,
}

func run(pass *analysis.Pass) (any, error) {
	c := &checker{Pass: pass, bodies: map[types.Object]*ast.BlockStmt{}, values: map[types.Object]ast.Expr{}, seen: map[token.Pos]bool{}}
	in, ok := pass.ResultOf[inspect.Analyzer].(*inspector.Inspector)
	if !ok {
		return nil, errors.New("the result of the pass inspect is missing")
	}
	in.Preorder([]ast.Node{(*ast.FuncDecl)(nil), (*ast.AssignStmt)(nil)}, c.define)
	if !quiet(pass.Pkg.Path()) {
		c.learn()
	}
	in.Preorder([]ast.Node{(*ast.CallExpr)(nil), (*ast.CompositeLit)(nil), (*ast.ExprStmt)(nil), (*ast.AssignStmt)(nil), (*ast.FuncDecl)(nil), (*ast.FuncLit)(nil)}, func(n ast.Node) {
		switch n := n.(type) {
		case *ast.ExprStmt:
			c.dropped(n.X, nil)
		case *ast.AssignStmt:
			if len(n.Rhs) == 1 {
				c.dropped(n.Rhs[0], n.Lhs[len(n.Lhs)-1])
			}
		case *ast.FuncDecl:
			c.staged(n.Type, n.Body)
		case *ast.FuncLit:
			c.staged(n.Type, n.Body)
		case *ast.CallExpr:
			if of(module, typeutil.Callee(pass.TypesInfo, n)) {
				c.functions(n.Args)
				c.leaseContext(n)
			}
		case *ast.CompositeLit:
			c.key(n)
			c.external(n)
		}
	})
	in.Preorder([]ast.Node{(*ast.CallExpr)(nil)}, c.keyed)
	return nil, nil
}

type checker struct {
	*analysis.Pass

	bodies map[types.Object]*ast.BlockStmt // of the package's functions
	values map[types.Object]ast.Expr       // of variables; nil where there are several
	seen   map[token.Pos]bool
	once   *bool // the package uses idemclient.SendOnce
	asks   bool  // it has an external call whose provider may ignore keys
}

// define remembers functions and the values of variables that have only one.
func (c *checker) define(n ast.Node) {
	switch n := n.(type) {
	case *ast.FuncDecl:
		if o := c.TypesInfo.Defs[n.Name]; o != nil && n.Body != nil {
			c.bodies[o] = n.Body
		}
	case *ast.AssignStmt:
		for i, left := range n.Lhs {
			id, ok := left.(*ast.Ident)
			if !ok {
				continue
			}
			right := n.Rhs[min(i, len(n.Rhs)-1)]
			if o := c.TypesInfo.Defs[id]; o != nil {
				c.values[o] = right
			} else if o := c.TypesInfo.Uses[id]; o != nil {
				c.values[o] = nil
			}
		}
	}
}

// functions checks those arguments that Holdfast runs in a transaction.
func (c *checker) functions(args []ast.Expr) {
	for _, arg := range args {
		sig, ok := c.TypesInfo.TypeOf(arg).(*types.Signature)
		if !ok || !takesTx(sig) {
			continue
		}
		if f, ok := ast.Unparen(arg).(*ast.FuncLit); ok {
			ast.Inspect(f.Body, c.inTx)
		} else if o := c.used(arg); c.bodies[o] != nil {
			ast.Inspect(c.bodies[o], c.inTx)
		} else if f := c.outside(o); f != nil {
			c.reportf(arg, "%s: %s", o.Name(), f.message())
		}
	}
}

// takesTx: one of the parameters is a transaction.
func takesTx(sig *types.Signature) bool {
	for v := range sig.Params().Variables() {
		switch named(v.Type()) {
		case "database/sql.Tx", "github.com/jmoiron/sqlx.Tx", "github.com/jackc/pgx/v5.Tx":
			return true
		}
	}
	return false
}

// pools are the types whose methods run outside of the transaction.
var pools = map[string]string{
	"database/sql.DB": "*sql.DB", "github.com/jmoiron/sqlx.DB": "*sqlx.DB", "github.com/jackc/pgx/v5/pgxpool.Pool": "*pgxpool.Pool",
}

// harmless are methods of pools that send nothing, or change nothing.
var harmless = map[string]bool{
	"Stats": true, "Stat": true, "Config": true, "DriverName": true, "Rebind": true, "BindNamed": true, "Driver": true,
	"SetMaxOpenConns": true, "SetMaxIdleConns": true, "SetConnMaxLifetime": true, "SetConnMaxIdleTime": true, "MapperFunc": true, "Unsafe": true,
}

func (c *checker) inTx(n ast.Node) bool {
	if call, ok := n.(*ast.CallExpr); ok && !c.seen[call.Pos()] {
		if f := c.sends(call); f != nil {
			c.reportf(call, "%s", f.message())
		} else if callee := typeutil.Callee(c.TypesInfo, call); c.outside(callee) != nil {
			c.reportf(call, "%s: %s", callee.Name(), c.outside(callee).message())
		}
	}
	return true
}

// sends returns what a call itself does outside of a transaction; nil is nothing.
func (c *checker) sends(call *ast.CallExpr) *outside {
	callee := typeutil.Callee(c.TypesInfo, call)
	if callee == nil || callee.Pkg() == nil {
		return nil
	}
	receiver := ""
	if selector, ok := ast.Unparen(call.Fun).(*ast.SelectorExpr); ok {
		receiver = named(c.TypesInfo.TypeOf(selector.X))
	}
	switch {
	case httpCall(callee, receiver):
		return &outside{}
	case pools[receiver] != "" && !harmless[callee.Name()]:
		return &outside{Pool: pools[receiver] + "." + callee.Name()}
	}
	return nil
}

func (c *checker) reportf(n ast.Node, format string, args ...any) {
	c.seen[n.Pos()] = true
	c.Reportf(n.Pos(), format, args...)
}

// httpCall: a request is sent.
func httpCall(callee types.Object, receiver string) bool {
	if callee.Pkg().Path() != "net/http" {
		return false
	}
	switch callee.Name() {
	case "Get", "Head", "Post", "PostForm":
		return receiver == "" || receiver == "net/http.Client"
	case "Do":
		return receiver == "net/http.Client"
	case "RoundTrip":
		return true
	}
	return false
}

// key checks the Key of an idempotency.Op.
func (c *checker) key(lit *ast.CompositeLit) {
	if named(c.TypesInfo.TypeOf(lit)) != module+"/idempotency.Op" {
		return
	}
	for _, e := range lit.Elts {
		kv, ok := e.(*ast.KeyValueExpr)
		if !ok {
			continue
		}
		if id, ok := kv.Key.(*ast.Ident); !ok || id.Name != "Key" {
			continue
		}
		if by := c.fresh(kv.Value, 3, true); by != "" {
			c.Reportf(kv.Value.Pos(), "the idempotency key is new at each call (%s), so no duplicate is recognized: make it of what identifies the operation, or take it from the client", by)
		}
	}
}

// generators make a value that never comes again.
var generators = map[string]bool{
	"github.com/google/uuid.New": true, "github.com/google/uuid.NewString": true, "github.com/google/uuid.NewRandom": true,
	"github.com/google/uuid.NewV7": true, "github.com/google/uuid.NewV6": true, "github.com/google/uuid.NewUUID": true, "github.com/google/uuid.Must": false,
	"github.com/gofrs/uuid.NewV4": true, "github.com/gofrs/uuid/v5.NewV4": true, "github.com/gofrs/uuid/v5.NewV7": true,
	"github.com/oklog/ulid/v2.Make": true, "github.com/rs/xid.New": true, "github.com/segmentio/ksuid.New": true,
	"crypto/rand.Text": true, "time.Now": true, "time.Since": true, "time.Until": true, module + "/idempotency/idemclient.NewKey": true,
}

// fresh names the generator that e calls, following variables with one value up to depth times. What is given to other
// functions does not count where args is false, but for those that only write it in another form.
func (c *checker) fresh(e ast.Expr, depth int, args bool) (by string) {
	ast.Inspect(e, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncLit:
			return false
		case *ast.CallExpr:
			if by = c.generator(n); by == "" && !args && !c.forms(n) {
				by = c.fresh(n.Fun, depth, args)
				return false
			}
		case *ast.Ident:
			if value := c.values[c.TypesInfo.Uses[n]]; value != nil && depth > 0 {
				if found := c.fresh(value, depth-1, args); found != "" {
					by = found
				}
			}
		}
		return by == ""
	})
	return by
}

// forms: a call gives what it is given in another form.
func (c *checker) forms(call *ast.CallExpr) bool {
	o := typeutil.Callee(c.TypesInfo, call)
	if o == nil || o.Pkg() == nil {
		return true // a conversion, or built in
	}
	switch o.Pkg().Path() {
	case "fmt", "strings", "strconv", "encoding/hex", "encoding/base64", "github.com/google/uuid", module + "/idempotency":
		return true
	}
	return false
}

// of reports whether o belongs to a package of the module.
func of(module string, o types.Object) bool {
	return o != nil && o.Pkg() != nil && (o.Pkg().Path() == module || strings.HasPrefix(o.Pkg().Path(), module+"/"))
}

// named is the path and name of a type or of what it points to.
func named(t types.Type) string {
	if t == nil {
		return ""
	}
	t = types.Unalias(t)
	if p, ok := t.(*types.Pointer); ok {
		t = types.Unalias(p.Elem())
	}
	n, ok := t.(*types.Named)
	if !ok || n.Obj().Pkg() == nil {
		return ""
	}
	return n.Obj().Pkg().Path() + "." + n.Obj().Name()
}
