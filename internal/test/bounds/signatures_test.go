package bounds_test

import (
	"cmp"
	"fmt"
	"go/types"
	"slices"
	"strings"
	"testing"
)

// TestSignatures walks every exported signature: a program cannot name a type of an internal package, and
// godoc does not show its fields.
func TestSignatures(t *testing.T) {
	for _, p := range packages(t) {
		for _, name := range p.Scope().Names() {
			o := p.Scope().Lookup(name)
			if !o.Exported() {
				continue
			}
			for at, hidden := range hiddenIn(o) {
				t.Errorf("%s.%s shows %s", p.Path(), at, hidden)
			}
		}
	}
}

// hiddenIn returns the types in the signatures of o that a program cannot name, by where they stand.
func hiddenIn(o types.Object) map[string]string {
	found := map[string]string{}
	look := func(at string, t types.Type) {
		if hidden := hiddenType(t); hidden != "" {
			found[at] = hidden
		}
	}
	look(o.Name(), o.Type())
	name, ok := o.(*types.TypeName)
	if !ok {
		return found
	}
	if s, ok := o.Type().Underlying().(*types.Struct); ok {
		for f := range s.Fields() {
			if f.Exported() {
				look(o.Name()+"."+f.Name(), f.Type())
			}
		}
	}
	if i, ok := o.Type().Underlying().(*types.Interface); ok {
		for m := range i.Methods() {
			if m.Exported() {
				look(o.Name()+"."+m.Name(), m.Signature())
			}
		}
	}
	for m := range types.NewMethodSet(types.NewPointer(name.Type())).Methods() {
		if m.Obj().Exported() {
			look(o.Name()+"."+m.Obj().Name(), m.Obj().Type())
		}
	}
	return found
}

// hiddenType returns the first type in t that a program cannot name: an unexported one, or one of an internal
// package. It does not look into a named type, which has its own place.
func hiddenType(t types.Type) string {
	switch t := t.(type) {
	case *types.Alias:
		return firstHidden(t.Obj(), t.TypeArgs(), t.Rhs())
	case *types.Named:
		return firstHidden(t.Obj(), t.TypeArgs())
	case *types.Pointer:
		return hiddenType(t.Elem())
	case *types.Slice:
		return hiddenType(t.Elem())
	case *types.Array:
		return hiddenType(t.Elem())
	case *types.Chan:
		return hiddenType(t.Elem())
	case *types.Map:
		return cmp.Or(hiddenType(t.Key()), hiddenType(t.Elem()))
	case *types.Signature:
		for _, tuple := range []*types.Tuple{t.Params(), t.Results()} {
			for v := range tuple.Variables() {
				if hidden := hiddenType(v.Type()); hidden != "" {
					return hidden
				}
			}
		}
	}
	return ""
}

func firstHidden(o *types.TypeName, args *types.TypeList, of ...types.Type) string {
	if o.Pkg() != nil && (!o.Exported() || slices.Contains(strings.Split(o.Pkg().Path(), "/"), "internal")) {
		return fmt.Sprintf("%s.%s", o.Pkg().Path(), o.Name())
	}
	for t := range args.Types() {
		of = append(of, t)
	}
	for _, t := range of {
		if hidden := hiddenType(t); hidden != "" {
			return hidden
		}
	}
	return ""
}
