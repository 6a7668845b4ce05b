package holdfastvet

import (
	"go/ast"
	"go/types"
	"strings"

	"golang.org/x/tools/go/types/typeutil"
)

const stagedPath = module + "/idempotency/staged"

// staged checks a function that has a *staged.Run: each attempt must reach the same steps.
func (c *checker) staged(sig *ast.FuncType, body *ast.BlockStmt) {
	if body == nil || !c.hasRun(sig.Params) {
		return
	}
	c.attempt(body, false)
}

func (c *checker) hasRun(params *ast.FieldList) bool {
	for _, p := range params.List {
		if c.isRun(p.Type) {
			return true
		}
	}
	return false
}

func (c *checker) isRun(e ast.Expr) bool { return named(c.TypesInfo.TypeOf(e)) == stagedPath+".Run" }

// attempt checks what runs again in each attempt: all but the functions of steps, whose results are kept. In a loop, a
// step's name may depend on what the loop goes over.
func (c *checker) attempt(n ast.Node, loop bool) {
	ast.Inspect(n, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncLit:
			return !c.hasRun(n.Type.Params) // it is checked as a separate function
		case *ast.GoStmt:
			if c.reachesStep(n.Call) {
				c.reportf(n, "steps in a goroutine: the next attempt may reach them in another order; run them one after the other")
			}
			return false
		case *ast.RangeStmt:
			if _, isMap := types.Unalias(c.TypesInfo.TypeOf(n.X)).Underlying().(*types.Map); isMap && c.reachesStep(n.Body) {
				c.reportf(n, "steps in the order of a map, which is another one in the next attempt: go over its sorted keys")
			}
			c.attempt(n.Body, true)
			return false
		case *ast.ForStmt:
			c.attempt(n.Body, true)
			return false
		case *ast.CallExpr:
			return c.inAttempt(n, loop)
		}
		return true
	})
}

// inAttempt checks a call that each attempt makes, and reports whether its parts are still to be checked.
func (c *checker) inAttempt(call *ast.CallExpr, loop bool) bool {
	name := c.step(call)
	if name == nil {
		if by := c.generator(call); by != "" && !c.seen[call.Pos()] {
			c.reportf(call, "%s gives the next attempt another value: make it in a step of staged.Local, which keeps it, or take it from the request", by)
		}
		return true
	}
	c.stepName(name, loop)
	for _, arg := range call.Args { // but for the function
		if _, isFunc := types.Unalias(c.TypesInfo.TypeOf(arg)).Underlying().(*types.Signature); !isFunc && arg != name {
			c.attempt(arg, loop)
		}
	}
	return false
}

// step returns the expression of the name of the step that call is; nil if it is none.
func (c *checker) step(call *ast.CallExpr) ast.Expr {
	callee := typeutil.Callee(c.TypesInfo, call)
	if callee == nil || callee.Pkg() == nil || callee.Pkg().Path() != stagedPath || len(call.Args) != 4 {
		return nil
	}
	switch callee.Name() {
	case "Local":
		return call.Args[2]
	case "Call":
		if lit, ok := ast.Unparen(call.Args[2]).(*ast.CompositeLit); ok {
			for _, e := range lit.Elts {
				if kv, ok := e.(*ast.KeyValueExpr); ok {
					if id, ok := kv.Key.(*ast.Ident); ok && id.Name == "Step" {
						return kv.Value
					}
				}
			}
		}
		return call.Args[2]
	}
	return nil
}

// stepName checks the name of a step. A value that is no name says nothing.
func (c *checker) stepName(name ast.Expr, loop bool) {
	tv := c.TypesInfo.Types[name]
	if basic, ok := types.Unalias(tv.Type).Underlying().(*types.Basic); !ok || basic.Info()&types.IsString == 0 || tv.Value != nil || c.seen[name.Pos()] {
		return
	}
	switch by := c.fresh(name, 3, true); {
	case by != "":
		c.reportf(name, "the step's name is new in each attempt (%s), so a step that is done runs again: use a constant", by)
	case !loop:
		c.reportf(name, "the step's name is no constant: an attempt that finds another one runs the step again")
	}
}

// reachesStep: a step, or a function that may have steps, is called within n.
func (c *checker) reachesStep(n ast.Node) (found bool) {
	ast.Inspect(n, func(n ast.Node) bool {
		if call, ok := n.(*ast.CallExpr); ok {
			for _, arg := range call.Args {
				found = found || c.isRun(arg)
			}
		}
		return !found
	})
	return found
}

// answers are the calls whose error says whether money moved.
var answers = map[string]bool{"Do": true, "DoTx": true, "InTx": true, "Guard": true, "Start": true, "StartTx": true, "Local": true, "Call": true}

// dropped reports a call whose error goes nowhere: to is what takes the last result, nil if nothing does.
func (c *checker) dropped(e, to ast.Expr) {
	if id, ok := to.(*ast.Ident); to != nil && (!ok || id.Name != "_") {
		return
	}
	call, ok := ast.Unparen(e).(*ast.CallExpr)
	if !ok || strings.HasSuffix(c.Fset.Position(e.Pos()).Filename, "_test.go") { // tests count what is there
		return
	}
	callee, ok := typeutil.Callee(c.TypesInfo, call).(*types.Func)
	if !ok || !of(module, callee) || !answers[callee.Name()] || callee.Pkg().Path() == module+"/sqllock" && callee.Name() == "Do" {
		return // work under a lease that a loop repeats
	}
	results := callee.Signature().Results()
	if n := results.Len(); n > 0 && types.Identical(results.At(n-1).Type(), types.Universe.Lookup("error").Type()) {
		c.reportf(call, "the error of %s.%s is dropped: it says whether the operation was done, refused, or is unknown", callee.Pkg().Name(), callee.Name())
	}
}
