package holdfastvet

import (
	"cmp"
	"go/ast"
	"go/types"
	"strings"

	"golang.org/x/tools/go/types/typeutil"
)

// outside is the fact that a function, or one that it calls, does something that no transaction takes back: with a Pool
// a query on it, and else an HTTP call.
type outside struct{ Pool string }

// AFact marks a fact.
func (*outside) AFact() {}

func (f *outside) String() string { return "outside: " + cmp.Or(f.Pool, "HTTP") }

// message is what is wrong with it in a transaction.
func (f *outside) message() string {
	if f.Pool != "" {
		return f.Pool + " inside a transaction does not belong to it: its effect stays when the transaction rolls back; use the transaction that the function receives"
	}
	return "HTTP call inside a transaction: a rollback does not take it back, and the function may run again; make it an external call of package staged, or make it outside of the transaction"
}

// always is the fact that a function returns a value that is new at each call: what makes it.
type always struct{ By string }

// AFact marks a fact.
func (*always) AFact() {}

func (f *always) String() string { return "new at each call: " + f.By }

// quiet reports whether nothing is learned of a package: its functions are known, or have the pool below a transaction.
func quiet(path string) bool {
	if strings.HasPrefix(path, module+"/examples/") {
		return false
	}
	for _, p := range []string{module, "net/http", "database/sql", "github.com/jmoiron/sqlx", "github.com/jackc", "github.com/google/uuid"} {
		if path == p || strings.HasPrefix(path, p+"/") {
			return true
		}
	}
	return false
}

// learn exports the facts of the package's functions, until those that call each other have none to add.
func (c *checker) learn() {
	for changed := true; changed; {
		changed = false
		for o, body := range c.bodies {
			fn, ok := o.(*types.Func)
			if !ok {
				continue
			}
			if f := c.within(body); f != nil && c.outside(fn) == nil {
				c.ExportObjectFact(fn, f)
				changed = true
			}
			if by := c.returned(fn, body); by != "" && !c.ImportObjectFact(fn, new(always)) {
				c.ExportObjectFact(fn, &always{by})
				changed = true
			}
		}
	}
}

// within returns what body does outside of a transaction, before it returns.
func (c *checker) within(body *ast.BlockStmt) (found *outside) {
	ast.Inspect(body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			return false
		case *ast.CallExpr:
			if found == nil {
				found = c.sends(n)
			}
			if found == nil {
				found = c.outside(typeutil.Callee(c.TypesInfo, n))
			}
		}
		return found == nil
	})
	return found
}

// outside returns what is known of a function.
func (c *checker) outside(o types.Object) *outside {
	var f outside
	if fn, ok := o.(*types.Func); ok && c.ImportObjectFact(fn.Origin(), &f) {
		return &f
	}
	return nil
}

// returned names what makes the results of fn new at each call, if they are what a key is made of.
func (c *checker) returned(fn *types.Func, body *ast.BlockStmt) (by string) {
	results := fn.Signature().Results()
	if results.Len() == 0 || !keyLike(results.At(0).Type()) {
		return ""
	}
	ast.Inspect(body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncLit:
			return false
		case *ast.ReturnStmt:
			if by == "" && len(n.Results) > 0 {
				by = c.fresh(n.Results[0], 3, false)
			}
		}
		return by == ""
	})
	return by
}

// keyLike: a text, an id of bytes, a number or a time.
func keyLike(t types.Type) bool {
	switch u := t.Underlying().(type) {
	case *types.Basic:
		return u.Info()&(types.IsString|types.IsInteger) != 0
	case *types.Array:
		return types.Identical(u.Elem(), types.Typ[types.Byte])
	}
	return named(t) == "time.Time"
}

// generator names what a call makes anew each time: itself, or what the called function makes it with.
func (c *checker) generator(call *ast.CallExpr) string {
	o := typeutil.Callee(c.TypesInfo, call)
	if o == nil || o.Pkg() == nil {
		return ""
	}
	name := o.Pkg().Name() + "." + o.Name()
	fn, ok := o.(*types.Func)
	if generators[o.Pkg().Path()+"."+o.Name()] || ok && fn.Signature().Recv() == nil && draws(o.Pkg().Path(), o.Name()) {
		return name
	}
	var f always
	if ok && c.ImportObjectFact(fn.Origin(), &f) {
		return name + ", by " + f.By
	}
	return ""
}

// draws: a function of a package gives a random value, and does not make a source of such values.
func draws(path, name string) bool {
	return (path == "math/rand" || path == "math/rand/v2") && !strings.HasPrefix(name, "New") && name != "Seed"
}

// used returns the function that an expression names.
func (c *checker) used(e ast.Expr) types.Object {
	switch e := ast.Unparen(e).(type) {
	case *ast.Ident:
		return c.TypesInfo.Uses[e]
	case *ast.SelectorExpr:
		return c.TypesInfo.Uses[e.Sel]
	}
	return nil
}
