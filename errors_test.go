package holdfast_test

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/idempotency/idemclient"
	"github.com/holdfast-go/holdfast/idempotency/staged"
	"github.com/holdfast-go/holdfast/internal/errcode/catalog"
	"github.com/holdfast-go/holdfast/limits"
	"github.com/holdfast-go/holdfast/optimistic"
	"github.com/holdfast-go/holdfast/sqllock"
	fences "github.com/holdfast-go/holdfast/sqllock/fence"
	"github.com/holdfast-go/holdfast/sqllock/rowlock"
)

// TestCode checks which error of a tree gives the code.
func TestCode(t *testing.T) {
	t.Parallel()
	driver := errors.New("driver")
	for _, c := range []struct {
		err  error
		want string
	}{
		{nil, ""},
		{driver, ""},
		{holdfast.ErrUnknown, "unknown-outcome"},
		{idempotency.ErrUnknown, "unknown-outcome"},
		{&holdfast.UnknownError{Err: fmt.Errorf("%w: %w", holdfast.ErrConnectionLost, driver)}, "unknown-outcome"},
		{&holdfast.UnknownError{Err: driver}, "unknown-outcome"},
		{fmt.Errorf("refund: %w", &holdfast.RetryError{Err: driver}), "transaction-rolled-back"},
		{&sqllock.HeldError{}, "lock-held"},
		{&sqllock.LostError{Err: &holdfast.UnknownError{}}, "lease-lost"},
		{&fences.RefusedError{Err: driver}, "fence-refused"},
		{&rowlock.LostError{}, "session-lock-lost"},
		{&holdfast.InputError{}, "invalid-argument"},
		{&staged.ParkedError{}, "operation-parked"},
		{&staged.StepError{Err: &holdfast.UnknownError{}}, "step-unknown"},
		{idempotency.Reject("fraud", "no"), "rejected"},
		{&idempotency.ResultError{Err: &idempotency.MissingCodecError{}}, "result-unreadable"},
		{&idemclient.UnansweredError{Err: driver}, "request-unanswered"},
		{&limits.EndedError{}, "reservation-expired"},
		{&limits.EndedError{Entry: limits.Entry{State: limits.Voided}}, "reservation-voided"},
		{&optimistic.RowError{Err: driver}, ""},
		{&optimistic.RowError{Err: &optimistic.ConflictError{}}, "version-conflict"},
		{errors.Join(driver, &optimistic.DuplicateError{}), "row-duplicate"},
		{uncomparable{}, ""},
	} {
		if got := holdfast.Code(c.err); got != c.want {
			t.Errorf("%T %v: got %q, want %q", c.err, c.err, got, c.want)
		}
	}
}

type uncomparable []string

func (uncomparable) Error() string { return "" }

// TestEveryErrorHasACode finds the exported errors in the source: each has one entry in the catalog, with
// the code that its package gives it, and each name of the catalog is an error.
func TestEveryErrorHasACode(t *testing.T) {
	t.Parallel()
	listed := map[string]string{}
	for _, e := range catalog.Entries {
		if !regexp.MustCompile(`^[a-z]+(-[a-z]+)*$`).MatchString(e.Code) || !strings.HasSuffix(e.Means, ".") || !strings.HasSuffix(e.Do, ".") || len(e.Names) == 0 {
			t.Errorf("%+v", e)
		}
		for _, name := range e.Names {
			if listed[name] != "" {
				t.Errorf("%s is listed twice", name)
			}
			listed[name] = e.Code
		}
	}
	for _, name := range catalog.Wrappers {
		listed[name] = "-"
	}
	if codes := catalog.Codes(); len(slices.Compact(slices.Sorted(slices.Values(codes)))) != len(codes) {
		t.Error("a code has two entries")
	}
	found := sourceErrors(t)
	if len(found) < 90 {
		t.Errorf("only %d errors are found: %v", len(found), slices.Sorted(maps.Keys(found)))
	}
	for name, code := range found {
		switch {
		case listed[name] == "":
			t.Errorf("%s has no entry in internal/errcode/catalog: add one, and make it with errcode.New or errcode.Type", name)
		case code != "" && code != listed[name]:
			t.Errorf("%s has the code %q, and the catalog says %q", name, code, listed[name])
		}
	}
	for name := range listed {
		if _, is := found[name]; !is {
			t.Errorf("the catalog has %s, which is no exported error", name)
		}
	}
}

// sourceErrors returns the exported errors of the packages that users import, as package.Name, with the
// codes that their declarations give them.
func sourceErrors(t *testing.T) map[string]string {
	t.Helper()
	files, err := exec.CommandContext(t.Context(), "git", "ls-files", "--cached", "--others", "--exclude-standard", "*.go").Output()
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for file := range strings.Lines(string(files)) {
		file = strings.TrimSpace(file)
		if _, err := os.Stat(file); err != nil || strings.HasSuffix(file, "_test.go") || regexp.MustCompile(`(^|/)(internal|testdata)/|^(bench|cmd|examples)/`).MatchString(file) {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		if parsed.Name.Name == "main" {
			continue
		}
		for _, d := range parsed.Decls {
			switch d := d.(type) {
			case *ast.GenDecl:
				declaredErrors(d, parsed.Name.Name, found)
			case *ast.FuncDecl:
				if name := receiver(d); name != "" && ast.IsExported(name) && d.Name.Name == "Error" {
					found[parsed.Name.Name+"."+name] += ""
				}
			}
		}
	}
	return found
}

// declaredErrors adds variables ErrX, codes of types, and aliases of error types.
func declaredErrors(d *ast.GenDecl, in string, found map[string]string) {
	for _, spec := range d.Specs {
		switch s := spec.(type) {
		case *ast.ValueSpec:
			for i, name := range s.Names {
				code := ""
				if i < len(s.Values) {
					code = codeOf(s.Values[i])
				}
				switch {
				case regexp.MustCompile(`^Err[A-Z]`).MatchString(name.Name):
					found[in+"."+name.Name] = code
				case name.Name == "_" && code != "":
					if x, is := s.Values[i].(*ast.CallExpr).Fun.(*ast.IndexExpr); is {
						found[in+"."+x.Index.(*ast.StarExpr).X.(*ast.Ident).Name] = code
					}
				}
			}
		case *ast.TypeSpec:
			if s.Assign != 0 && ast.IsExported(s.Name.Name) && strings.HasSuffix(s.Name.Name, "Error") {
				found[in+"."+s.Name.Name] = ""
			}
		}
	}
}

// codeOf returns the first argument of errcode.New and errcode.Type.
func codeOf(x ast.Expr) string {
	call, is := x.(*ast.CallExpr)
	if !is || len(call.Args) == 0 {
		return ""
	}
	fun := call.Fun
	if index, is := fun.(*ast.IndexExpr); is {
		fun = index.X
	}
	of, is := fun.(*ast.SelectorExpr)
	if !is {
		return ""
	}
	if p, is := of.X.(*ast.Ident); !is || p.Name != "errcode" {
		return "an error without a code: use errcode.New"
	}
	literal, is := call.Args[0].(*ast.BasicLit)
	if !is {
		return ""
	}
	code, _ := strconv.Unquote(literal.Value)
	return code
}

func receiver(d *ast.FuncDecl) string {
	if d.Recv == nil {
		return ""
	}
	x := d.Recv.List[0].Type
	if star, is := x.(*ast.StarExpr); is {
		x = star.X
	}
	if name, is := x.(*ast.Ident); is {
		return name.Name
	}
	return ""
}

// TestErrorsPage checks that docs/reference/errors.md is what the catalog says. go test . -run
// TestErrorsPage -update writes it.
func TestErrorsPage(t *testing.T) {
	t.Parallel()
	file := filepath.Join("docs", "reference", "errors.md")
	var b strings.Builder
	b.WriteString("# Errors\n\n<!-- Made from internal/errcode/catalog: go test . -run TestErrorsPage -update -->\n\n" +
		"Every error has a stable code. `holdfast.Code(err)` returns it, for logs, metrics and alerts; `holdfast explain CODE` prints its entry.\n\n" +
		"```go\nif err != nil {\n\tslog.Error(\"refund\", \"code\", holdfast.Code(err), \"err\", err)\n}\n```\n\n" +
		"In code, ask with `errors.Is` and `errors.As` for the names. An error that wraps several has the code of the outermost.\n" +
		"These say where another error happened, and have its code: ")
	for i, name := range catalog.Wrappers {
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "`%s`", name)
	}
	b.WriteString(".\n\n| code | |\n|---|---|\n")
	for _, e := range catalog.Entries {
		fmt.Fprintf(&b, "| [`%s`](#%s) | %s |\n", e.Code, e.Code, e.Means)
	}
	for _, e := range catalog.Entries {
		fmt.Fprintf(&b, "\n## %s\n\n%s\n\n**Do:** %s\n\n", e.Code, e.Means, e.Do)
		for i, name := range e.Names {
			if i > 0 {
				b.WriteString(", ")
			}
			fmt.Fprintf(&b, "`%s`", name)
		}
		b.WriteString("\n")
	}
	if *update {
		if err := os.WriteFile(file, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if is, err := os.ReadFile(file); err != nil || string(is) != b.String() {
		t.Errorf("%s is not what the catalog says: go test . -run TestErrorsPage -update: %v", path.Base(file), err)
	}
}

// state is an error of PostgreSQL's driver.
type state string

func (s state) Error() string    { return "SQLSTATE " + string(s) }
func (s state) SQLState() string { return string(s) }

// TestRetryErrorNamesTheLimit checks that the error says whose limit ended a transaction.
func TestRetryErrorNamesTheLimit(t *testing.T) {
	t.Parallel()
	for code, want := range map[state]string{
		"55P03": "(LockTimeout of the options, or lock_timeout in a transaction that the caller began, ended it: ",
		"25P04": "(the server's transaction_timeout ended it: ",
	} {
		if text := (&holdfast.RetryError{Attempts: 1, Err: code}).Error(); !strings.Contains(text, want) {
			t.Errorf("%s: %s", code, text)
		}
	}
	if text := (&holdfast.RetryError{Attempts: 1, Err: state("40P01")}).Error(); strings.Contains(text, "ended it") {
		t.Errorf("a deadlock: %s", text)
	}
}
