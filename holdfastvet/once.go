package holdfastvet

import (
	"go/ast"
	"go/constant"
	"net/http"

	"golang.org/x/tools/go/types/typeutil"
)

// external finds external calls whose provider may ignore keys.
func (c *checker) external(lit *ast.CompositeLit) {
	if named(c.TypesInfo.TypeOf(lit)) != module+"/idempotency/staged.ExternalCall" {
		return
	}
	for _, e := range lit.Elts {
		kv, ok := e.(*ast.KeyValueExpr)
		if !ok {
			continue
		}
		if id, ok := kv.Key.(*ast.Ident); ok && id.Name == "OnLeaseEnd" && c.mentions(kv.Value, module+"/idempotency/staged", "TakeOver") {
			return
		}
	}
	c.asks = true
}

// keyed checks requests that get a key: net/http repeats them.
func (c *checker) keyed(n ast.Node) {
	call, ok := n.(*ast.CallExpr)
	if !ok || !c.asks || len(call.Args) != 2 {
		return
	}
	callee := typeutil.Callee(c.TypesInfo, call)
	selector, ok := ast.Unparen(call.Fun).(*ast.SelectorExpr)
	if !ok || callee == nil || callee.Name() != "Set" && callee.Name() != "Add" || named(c.TypesInfo.TypeOf(selector.X)) != "net/http.Header" {
		return
	}
	if field, ok := ast.Unparen(selector.X).(*ast.SelectorExpr); !ok || named(c.TypesInfo.TypeOf(field.X)) != "net/http.Request" {
		return
	}
	name := c.TypesInfo.Types[call.Args[0]].Value
	if name == nil || name.Kind() != constant.String {
		return
	}
	switch http.CanonicalHeaderKey(constant.StringVal(name)) {
	case "Idempotency-Key", "X-Idempotency-Key":
		if !c.sendsOnce() {
			c.Reportf(call.Pos(), "net/http repeats a request with this header when a kept connection dies, and a provider that ignores keys pays twice: send it through idemclient.SendOnce")
		}
	}
}

// sendsOnce reports whether the package uses idemclient.SendOnce.
func (c *checker) sendsOnce() bool {
	if c.once == nil {
		found := false
		for _, f := range c.Files {
			found = found || c.mentions(f, module+"/idempotency/idemclient", "SendOnce")
		}
		c.once = &found
	}
	return *c.once
}

// mentions reports whether n uses a name of a package.
func (c *checker) mentions(n ast.Node, path, name string) (found bool) {
	ast.Inspect(n, func(n ast.Node) bool {
		if id, ok := n.(*ast.Ident); ok && id.Name == name {
			o := c.TypesInfo.Uses[id]
			found = found || o != nil && o.Pkg() != nil && o.Pkg().Path() == path
		}
		return !found
	})
	return found
}
