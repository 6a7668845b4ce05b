package holdfastvet

import (
	"go/ast"

	"golang.org/x/tools/go/types/typeutil"
)

// leaseContext reports a lease's context that is given to InTx.
func (c *checker) leaseContext(call *ast.CallExpr) {
	callee := typeutil.Callee(c.TypesInfo, call)
	if !of(module, callee) || callee.Name() != "InTx" || len(call.Args) == 0 {
		return
	}
	arg := ast.Unparen(call.Args[0])
	if id, ok := arg.(*ast.Ident); ok {
		arg = c.values[c.TypesInfo.Uses[id]]
	}
	if given, ok := arg.(*ast.CallExpr); ok {
		if f := typeutil.Callee(c.TypesInfo, given); of(module, f) && f.Name() == "Context" {
			c.Reportf(call.Args[0].Pos(), "the lease's context is given to InTx: a lost lease ends the transaction as context canceled; give it the context around the lease, and its guard answers ErrLost")
		}
	}
}
