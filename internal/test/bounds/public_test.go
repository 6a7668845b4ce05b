package bounds_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/importer"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// public returns the names of all durations and numbers that the public API has, as fields of structs
// (package.Type.Field) and as parameters (package.Type.Method(parameter)).
func public(t *testing.T) map[string]bool {
	t.Helper()
	found := map[string]bool{}
	for _, p := range packages(t) {
		for _, name := range p.Scope().Names() {
			if o := p.Scope().Lookup(name); o.Exported() {
				add(found, p.Name()+"."+name, o)
			}
		}
	}
	return found
}

// packages returns the public packages of this module.
func packages(t *testing.T) (list []*types.Package) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-export", "-deps", "-json=ImportPath,Name,Export", "./...")
	cmd.Dir = "../../.."
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	exports, paths := map[string]string{}, []string{}
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p struct{ ImportPath, Name, Export string }
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		exports[p.ImportPath] = p.Export
		if strings.HasPrefix(p.ImportPath, "github.com/holdfast-go/holdfast") && p.Name != "main" && !regexp.MustCompile(`/(internal|examples|bench)(/|$)`).MatchString(p.ImportPath) {
			paths = append(paths, p.ImportPath)
		}
	}
	from := importer.ForCompiler(token.NewFileSet(), "gc", func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) })
	for _, path := range paths {
		p, err := from.Import(path)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, p)
	}
	return list
}

func add(found map[string]bool, name string, o types.Object) {
	switch o := o.(type) {
	case *types.Func:
		params(found, name, o)
	case *types.TypeName:
		if s, ok := o.Type().Underlying().(*types.Struct); ok {
			for f := range s.Fields() {
				if f.Exported() && isNumber(f.Type()) {
					found[name+"."+f.Name()] = true
				}
			}
		}
		if n, ok := types.Unalias(o.Type()).(*types.Named); ok {
			for m := range n.Methods() {
				if m.Exported() {
					params(found, name+"."+m.Name(), m)
				}
			}
		}
	}
}

func params(found map[string]bool, name string, f *types.Func) {
	for p := range f.Signature().Params().Variables() {
		if isNumber(p.Type()) {
			found[fmt.Sprintf("%s(%s)", name, p.Name())] = true
		}
	}
}

// isNumber reports whether t is a duration or an integer. A named integer is a name for one of a few things.
func isNumber(t types.Type) bool {
	if t.String() == "time.Duration" {
		return true
	}
	b, ok := types.Unalias(t).(*types.Basic)
	return ok && b.Info()&(types.IsInteger|types.IsFloat) != 0
}

// results are types that calls return. Their numbers are no input.
var results = strings.Fields(`
audit.Record audit.BrokenError audit.Head audit.Report doctor.Backlog doctor.Block doctor.Size doctor.Waiting holdfast.Capabilities holdfast.CallResult
holdfast.Event holdfast.RetryError holdfast.SchemaError holdfast.Statement idempotency.Found idempotency.InProgressError
idempotency.SimilarError idempotency.TooManyError idemhttp.Problem idemclient.UnansweredError
operators.Reservation operators.Restored outbox.Delivery outbox.Stats staged.AcceptedError staged.Completed staged.Operation staged.StaleError staged.Step
limits.Entry limits.ExceededError limits.Status register.ConflictError register.Entry reaper.ClockJumpError
reaper.Pass reaper.Report reaper.TaskReport sqllock.Event sqllock.HeldError sqllock.Info fairlock.CapacityError fairlock.NestedError fairlock.Queue
fairlock.Ticket rowlock.TimeoutError sqllock.LostError holdfast.Blocker
`)

// noBounds are numbers that are neither durations nor sizes: what they may be is for the function that
// they are given to.
var noBounds = []string{
	"operators.Lock.Token", "operators.Resolution.Token", "register.WatchOptions.After", // of a row that was read
	"idempotency.Op.RequestVersion", // a version of the program's
	"limits.Request.Amount",         // money
	"cron.Daily(hour)", "cron.Daily(minute)",
	"idemhttp.DefaultDecision(status)",
	"reaper.Options.Pace", // a multiple, with its own bounds
}

// noBoundParams are parameters that are no sizes, in any function.
var noBoundParams = regexp.MustCompile(`\((token|revision|amount|version)\)$`)

func isNoBound(name string) bool {
	dot := strings.LastIndex(name, ".")
	return slices.Contains(noBounds, name) || slices.Contains(results, name[:dot]) || noBoundParams.MatchString(name)
}
