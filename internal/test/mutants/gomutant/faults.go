package gomutant

import (
	"cmp"
	"go/ast"
	"go/constant"
	"go/token"
	"go/types"
	"slices"
)

// Visit implements ast.Visitor.
func (f *file) Visit(n ast.Node) ast.Visitor {
	switch n := n.(type) {
	case *ast.FuncLit:
		inner := *f
		inner.results = f.info.Types[n].Type.(*types.Signature).Results() //nolint:forcetypeassert // of a function
		inner.walk(n.Body, f)
		return nil
	case *ast.IfStmt:
		f.condition(n.Cond)
	case *ast.SwitchStmt:
		if n.Tag == nil {
			for _, c := range n.Body.List {
				for _, e := range c.(*ast.CaseClause).List { //nolint:forcetypeassert // a switch has nothing else
					f.condition(e)
				}
			}
		}
	case *ast.BinaryExpr:
		f.binary(n)
	case *ast.BlockStmt:
		f.statements(n.List)
	case *ast.CaseClause:
		f.statements(n.Body)
	case *ast.CommClause:
		f.statements(n.Body)
	case *ast.ReturnStmt:
		f.returned(n)
	case *ast.AssignStmt:
		if n.Tok == token.ASSIGN {
			for _, e := range n.Rhs {
				f.constant(e)
			}
		}
	case *ast.KeyValueExpr:
		f.constant(n.Value)
	}
	return f
}

// walk walks a function within a function, and gives what it found to the outer one.
func (f *file) walk(n ast.Node, outer *file) {
	ast.Walk(f, n)
	outer.edits, outer.found = f.edits, f.found
}

// condition adds the faults in which a part of a condition is always true or always false.
func (f *file) condition(e ast.Expr) {
	switch x := e.(type) {
	case *ast.ParenExpr:
		f.condition(x.X)
		return
	case *ast.UnaryExpr:
		if x.Op == token.NOT {
			f.condition(x.X)
			return
		}
	case *ast.BinaryExpr:
		if x.Op == token.LAND || x.Op == token.LOR {
			f.condition(x.X)
			f.condition(x.Y)
			return
		}
	}
	if f.isConstant(e) || !f.isBool(e) {
		return
	}
	switch f.of(e) {
	case "err != nil": // as an error in every case it is the end of every test
		f.around(e, "((", ") && !planted.On("+f.fault("never", e)+"))")
	case "err == nil":
		f.around(e, "((", ") || planted.On("+f.fault("always", e)+"))")
	default:
		f.around(e, "((", ") && !planted.On("+f.fault("never", e)+") || planted.On("+f.fault("always", e)+"))")
	}
}

func (f *file) isConstant(e ast.Expr) bool { return f.info.Types[e].Value != nil }

func (f *file) isBool(e ast.Expr) bool {
	t := f.info.Types[e].Type
	return t == types.Typ[types.Bool] || t == types.Typ[types.UntypedBool]
}

// binary adds the faults of a comparison or a sum.
func (f *file) binary(n *ast.BinaryExpr) {
	if f.isConstant(n) {
		return
	}
	switch n.Op {
	case token.LSS, token.LEQ, token.GTR, token.GEQ:
		if f.isBool(n) && pure(n.X) && pure(n.Y) {
			equal := f.of(n.X) + " == " + f.of(n.Y)
			f.around(n, "((", ") != ("+equal+" && planted.On("+f.fault("border", n)+")))")
		}
	case token.ADD, token.SUB:
		basic, ok := f.info.Types[n].Type.Underlying().(*types.Basic)
		if !ok || basic.Info()&types.IsNumeric == 0 || basic.Info()&types.IsUntyped != 0 {
			return
		}
		function := map[token.Token]string{token.ADD: "Plus", token.SUB: "Minus"}[n.Op]
		f.around(n, "planted."+function+"("+f.fault("arithmetic", n)+", ", ")")
		f.edit(f.offset(n.OpPos), 1, false, ",")
	}
}

// pure reports whether e may be evaluated twice.
func pure(e ast.Expr) bool {
	switch e := e.(type) {
	case *ast.Ident, *ast.BasicLit:
		return true
	case *ast.SelectorExpr:
		return pure(e.X)
	case *ast.ParenExpr:
		return pure(e.X)
	case *ast.StarExpr:
		return pure(e.X)
	case *ast.IndexExpr:
		return pure(e.X) && pure(e.Index)
	case *ast.BinaryExpr:
		return pure(e.X) && pure(e.Y)
	case *ast.CallExpr:
		id, ok := e.Fun.(*ast.Ident)
		return ok && (id.Name == "len" || id.Name == "int64" || id.Name == "int") && pure(e.Args[0])
	}
	return false
}

// Statements that only say something, or without which a program stands still for ever.
var kept = []string{"Lock", "Unlock", "RLock", "RUnlock", "Done", "Add", "Wait", "cancel", "Helper", "panic"}

// statements adds the faults in which a statement is missing.
func (f *file) statements(list []ast.Stmt) {
	for _, s := range list {
		switch s := s.(type) {
		case *ast.ExprStmt:
			if call, ok := s.X.(*ast.CallExpr); !ok || slices.Contains(kept, called(call)) {
				continue
			}
		case *ast.DeferStmt:
			if slices.Contains(kept, called(s.Call)) {
				continue
			}
		case *ast.AssignStmt:
			if s.Tok == token.DEFINE || len(s.Lhs) == 1 && isBlank(s.Lhs[0]) {
				continue
			}
		case *ast.IncDecStmt, *ast.SendStmt, *ast.GoStmt:
		default:
			continue
		}
		f.around(s, "if !planted.On("+f.fault("missing", s)+") { ", " }")
	}
}

func isBlank(e ast.Expr) bool {
	id, ok := e.(*ast.Ident)
	return ok && id.Name == "_"
}

// called returns the name of what is called.
func called(c *ast.CallExpr) string {
	switch fun := c.Fun.(type) {
	case *ast.Ident:
		return fun.Name
	case *ast.SelectorExpr:
		return fun.Sel.Name
	}
	return ""
}

var errorType = types.Universe.Lookup("error").Type()

// returned adds the faults of what is returned: an error that is nil, a bool that is another, another
// constant.
func (f *file) returned(s *ast.ReturnStmt) {
	if f.results.Len() != len(s.Results) {
		return
	}
	for i, e := range s.Results {
		t := f.results.At(i).Type()
		switch {
		case types.Identical(t, errorType):
			if id, ok := e.(*ast.Ident); !ok || id.Name != "nil" {
				f.around(e, "planted.Error("+f.fault("no error", e)+", ", ")")
			}
		case t == types.Typ[types.Bool] && f.isConstant(e):
			f.around(e, "(", " != planted.On("+f.fault("other", e)+"))")
		case t == types.Typ[types.Bool]:
			f.condition(e)
		default:
			f.constant(e)
		}
	}
}

// constant adds the fault in which a constant of a type of this package is the next one of that type.
func (f *file) constant(e ast.Expr) {
	id, ok := e.(*ast.Ident)
	if !ok {
		return
	}
	c, ok := f.info.Uses[id].(*types.Const)
	if !ok || c.Pkg() != f.pkg || c.Parent() != f.pkg.Scope() {
		return
	}
	if _, named := c.Type().(*types.Named); !named {
		return
	}
	if other := next(f.pkg, c); other != nil {
		f.around(e, "planted.Other("+f.fault("other", e)+", ", ", "+other.Name()+")")
	}
}

// next returns the constant of c's type that is declared after it, or the first one.
func next(p *types.Package, c *types.Const) *types.Const {
	var same []*types.Const
	for _, name := range p.Scope().Names() {
		if o, ok := p.Scope().Lookup(name).(*types.Const); ok && types.Identical(o.Type(), c.Type()) && !constant.Compare(o.Val(), token.EQL, c.Val()) || o == c {
			same = append(same, o)
		}
	}
	slices.SortFunc(same, func(a, b *types.Const) int { return cmp.Compare(a.Pos(), b.Pos()) })
	if len(same) < 2 {
		return nil
	}
	return same[(slices.Index(same, c)+1)%len(same)]
}
