package scaleout_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/adapters/holdfastsql"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/idempotency/operators"
	"github.com/holdfast-go/holdfast/idempotency/outbox"
	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/auditlog"
	"github.com/holdfast-go/holdfast/internal/dialect"
	"github.com/holdfast-go/holdfast/internal/dialect/vitess"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
	"github.com/holdfast-go/holdfast/internal/test/statements"
	"github.com/holdfast-go/holdfast/limits"
	"github.com/holdfast-go/holdfast/migrations"
	"github.com/holdfast-go/holdfast/optimistic/register"
)

// notPlanned lists the statements that the router refuses, with its answer. They run on a shard.
var notPlanned = map[string]string{
	"Sweep.Locks.Raise": "VT09001", // the floor has no owner: docs/howto/scale-out.md
	"restore.floor":     "VT09001",
}

// elsewhere lists the statements that another engine sends: Vitess gathers no leases.
var elsewhere = []string{"GrantedLeases", "ReleasedLeases", "Leases.ManyRow"}

// placeholders of the texts that name no table, with what they stand for in a plan.
var placeholders = map[string]string{
	"{of}": "", "{states}": "1", "{from}": "holdfast_staged", "{picked}": "owner = 'owner'", "{due}": "due_at <= 1",
	"{names}": "'a', 'b'", "{attempts}": "'a', 'b'", "{tokens}": "1, 2", "{ids}": "1, 2", "{hashes}": "'a', 'b'", "{waiter}": "'w'", "{count}": "1", "{name}": "'a'", "{limit}": "10",
}

var (
	statement    = regexp.MustCompile(`^(SELECT|INSERT|UPDATE|DELETE)\b`)
	ownTable     = regexp.MustCompile(`\{(records|locks|tickets|waiters|registers|staged|steps|provider_events|interventions|outbox|outbox_keys|similar|limits|limit_entries|proposals|floor|audit)\}`)
	number       = regexp.MustCompile(`\$[1-9][0-9]*`)
	sweptTable   = regexp.MustCompile(`^Sweep\.(Waiters|Tickets|LimitEntries)\.`)
	noStatements = regexp.MustCompile(`^(Doctor|Prove|Admission|Enforce|Rows|Sweep\.Table|Privileges)\b`) // about the server, or of tables of the program's
)

// TestPlans plans each statement of the dialect on a sharded keyspace, as the router would, and runs
// those that read: vtgate may plan a statement and send a shard another text. A statement that names
// the owner goes to its shard as a whole.
func TestPlans(t *testing.T) {
	pool := dbtest.OpenSQL(t, sharded(t)[0])
	if err := migrations.Up(t.Context(), pool); err != nil {
		t.Fatal(err)
	}
	d := vitess.Dialect
	all := map[string]string{}
	textsOf(reflect.ValueOf(d), "", all)
	for _, every := range []bool{false, true} {
		all[fmt.Sprint("ListLeases ", every)], all[fmt.Sprint("ListTickets ", every)] = d.ListLeases(every), d.ListTickets(every)
	}
	maps.Copy(all, constants(t))
	compiled(t, pool, func(name, text string) { all[name] = text })
	planned := 0
	for _, path := range slices.Sorted(maps.Keys(all)) {
		text := all[path]
		if !statement.MatchString(text) || noStatements.MatchString(path) || slices.Contains(elsewhere, path) {
			continue
		}
		planned++
		query := d.Compile(path, filled(&d, path, text)).Text
		plan, err := planOf(t.Context(), pool, query)
		if refusal := notPlanned[path]; refusal != "" {
			if err == nil || !strings.Contains(err.Error(), refusal) {
				t.Errorf("%s: %v, want %s", path, err, refusal)
			}
			continue
		}
		switch {
		case err != nil:
			t.Errorf("%s: %v: %s", path, err, query)
		case strings.Contains(text, "$0") && !ownersOne.MatchString(path) && (plan.Inputs != nil || plan.Variant != "EqualUnique" && plan.Variant != "Sharded"):
			t.Errorf("%s does not go to the owner's shard as a whole: %+v: %s", path, plan, query)
		case strings.HasPrefix(text, "SELECT"):
			if err := reads(t.Context(), pool, query); err != nil {
				t.Errorf("%s: planned, and then: %v: %s", path, err, query)
			}
		}
	}
	if planned < 120 {
		t.Errorf("only %d statements were planned", planned)
	}
	t.Logf("statements planned=%d", planned)
}

// ownersOne are the lists of every owner, whose $0 is only where they begin.
var ownersOne = regexp.MustCompile(`^List(Leases|Tickets) true$`)

// filled is a text with values, and the tables' names.
func filled(d *dialect.Dialect, path, text string) string {
	rows := d.Leases.AnnounceRow
	if m := sweptTable.FindStringSubmatch(path); m != nil {
		rows = map[string]string{"Waiters": "{waiters}", "Tickets": "{tickets}", "LimitEntries": "{limit_entries}"}[m[1]]
	} else if strings.HasPrefix(path, "Sweep.Similar.") {
		rows = "{similar}"
	}
	text = strings.ReplaceAll(text, "{rows}", rows)
	for from, to := range placeholders {
		text = strings.ReplaceAll(text, from, to)
	}
	text = ownTable.ReplaceAllString(text, "holdfast_$1")
	text = strings.ReplaceAll(strings.ReplaceAll(text, "{now}", d.Now), "$0", "'owner'")
	return number.ReplaceAllString(text, "1")
}

type plan struct {
	OperatorType, Variant string
	Inputs                []any
}

func planOf(ctx context.Context, pool *sql.DB, query string) (p plan, err error) {
	var text strings.Builder
	if err := each(ctx, pool, "VEXPLAIN PLAN "+query, func(rows *sql.Rows) error {
		var line string
		defer func() { text.WriteString(line) }()
		return rows.Scan(&line)
	}); err != nil {
		return p, err
	}
	err = json.Unmarshal([]byte(text.String()), &p)
	return p, err
}

func reads(ctx context.Context, pool *sql.DB, query string) error {
	return each(ctx, pool, query, func(*sql.Rows) error { return nil })
}

func each(ctx context.Context, pool *sql.DB, query string, f func(rows *sql.Rows) error) error {
	rows, err := pool.QueryContext(ctx, query)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		if err := f(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

// textsOf adds the texts in v.
func textsOf(v reflect.Value, path string, all map[string]string) {
	switch v.Kind() {
	case reflect.String:
		all[path] = v.String()
	case reflect.Struct:
		for i := range v.NumField() {
			textsOf(v.Field(i), strings.TrimPrefix(path+"."+v.Type().Field(i).Name, "."), all)
		}
	}
}

// compiled calls f with the statements that the packages which send them have compiled.
func compiled(t *testing.T, pool *sql.DB, f func(name, text string)) {
	t.Helper()
	db, err := holdfastsql.Open(t.Context(), pool, holdfast.Options{SingleOwner: true})
	if err != nil {
		t.Fatal(err)
	}
	store, err := idempotency.New(t.Context(), db)
	if err != nil {
		t.Fatal(err)
	}
	statements.In(*store, f)
	statements.In(*operators.New(store), f) // and its ledger's
	box, err := outbox.New(t.Context(), db, "box")
	if err != nil {
		t.Fatal(err)
	}
	statements.In(*box, f)
	values, err := register.New(t.Context(), db)
	if err != nil {
		t.Fatal(err)
	}
	statements.In(*values, f)
	statements.In(*auditlog.New(access.Of(db).Dialect, access.Of(db).Table), f)
	amounts, err := limits.New(t.Context(), db, "limits")
	if err != nil {
		t.Fatal(err)
	}
	statements.In(*amounts, f)
}

// constants returns the statements that are constants of package dialect: some are in no field.
func constants(t *testing.T) map[string]string {
	t.Helper()
	files, err := filepath.Glob("../../dialect/*.go")
	if err != nil {
		t.Fatal(err)
	}
	exprs := map[string]ast.Expr{}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, decl := range file.Decls {
			of, is := decl.(*ast.GenDecl)
			if !is || of.Tok != token.CONST {
				continue
			}
			for _, spec := range of.Specs {
				for i, id := range spec.(*ast.ValueSpec).Names {
					if values := spec.(*ast.ValueSpec).Values; i < len(values) {
						exprs[id.Name] = values[i]
					}
				}
			}
		}
	}
	var value func(e ast.Expr) string
	value = func(e ast.Expr) string {
		switch e := e.(type) {
		case *ast.BasicLit:
			if e.Kind == token.STRING {
				s, _ := strconv.Unquote(e.Value)
				return s
			}
		case *ast.BinaryExpr:
			return value(e.X) + value(e.Y)
		case *ast.Ident:
			return value(exprs[e.Name])
		}
		return ""
	}
	all := map[string]string{}
	for name, e := range exprs {
		if text := value(e); text != "" && ast.IsExported(name) {
			all[name] = text
		}
	}
	return all
}
