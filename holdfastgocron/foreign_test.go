package holdfastgocron_test

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-co-op/gocron/v2"

	"github.com/holdfast-go/holdfast/adapters/holdfastsql"
	"github.com/holdfast-go/holdfast/holdfastgocron"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
	"github.com/holdfast-go/holdfast/migrations"
	"github.com/holdfast-go/holdfast/sqllock"
	"github.com/holdfast-go/holdfast/sqllock/election"
)

// foreignVariable has the database of a run of gocron's suite.
const foreignVariable = "HOLDFAST_TEST_GOCRON_URL"

// TestForeign runs gocron's own test of several schedulers, with the Locker and the Elector here in the place of its
// doubles. The test is in gocron's package, which this one imports, so its two functions are read from the module that
// go.mod names, and compiled here.
func TestForeign(t *testing.T) {
	if os.Getenv(foreignVariable) != "" {
		t.Skip("gocron's suite has no suite in it")
	}
	dbtest.OnlyNightly(t, "gocron's suite waits for seconds, and not for events")
	overlay := filepath.Join(t.TempDir(), "overlay.json")
	suite := filepath.Join(filepath.Dir(overlay), "suite_test.go")
	must(t, os.WriteFile(suite, gocronSuite(t), 0o600))
	here, err := os.Getwd()
	must(t, err)
	text, err := json.Marshal(map[string]any{"Replace": map[string]string{filepath.Join(here, "suite_test.go"): suite}})
	must(t, err)
	must(t, os.WriteFile(overlay, text, 0o600))
	dbtest.Each(t, func(t *testing.T, e dbtest.Engine) {
		url := dbtest.DSN(t, e)
		must(t, migrations.Up(t.Context(), dbtest.OpenSQL(t, url)))
		cmd := exec.CommandContext(t.Context(), "go", "test", "-overlay", overlay, "-count=1", "-v", "-run", "^TestScheduler_WithDistributed$", ".")
		cmd.Env = append(os.Environ(), foreignVariable+"="+url)
		out, err := cmd.CombinedOutput()
		if passed := bytes.Count(out, []byte("    --- PASS: ")); err != nil || passed < 4 {
			t.Errorf("%d passed, %v\n%s", passed, err, out)
		}
	})
}

// gocronSuite returns TestScheduler_WithDistributed, and what it calls, as a file of this package.
func gocronSuite(t *testing.T) []byte {
	t.Helper()
	dir, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "github.com/go-co-op/gocron/v2").Output()
	must(t, err)
	files := token.NewFileSet()
	f, err := parser.ParseFile(files, filepath.Join(strings.TrimSpace(string(dir)), "scheduler_test.go"), nil, parser.SkipObjectResolution)
	must(t, err)
	var text bytes.Buffer
	fmt.Fprint(&text, "package holdfastgocron_test\n\nimport (\n\t. \"github.com/go-co-op/gocron/v2\"\n")
	for _, path := range []string{"context", "testing", "time", "github.com/stretchr/testify/assert", "github.com/stretchr/testify/require"} {
		fmt.Fprintf(&text, "\t%q\n", path)
	}
	fmt.Fprint(&text, ")\n\nfunc verifyNoGoroutineLeaks(*testing.T) {} // the programs here go on\n")
	for _, d := range f.Decls {
		if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil && (fn.Name.Name == "TestScheduler_WithDistributed" || fn.Name.Name == "newTestScheduler") {
			fmt.Fprint(&text, "\n")
			must(t, format.Node(&text, files, fn))
			fmt.Fprint(&text, "\n")
		}
	}
	return text.Bytes()
}

// What gocron's test names.
var (
	_ gocron.Locker  = (*testLocker)(nil)
	_ gocron.Elector = (*testElector)(nil)
)

// foreignLocks opens one more program on the database of a run of gocron's suite.
func foreignLocks() *locks {
	pool, err := dbtest.OpenURL(os.Getenv(foreignVariable))
	if err != nil {
		panic(err)
	}
	db, err := holdfastsql.Open(context.Background(), pool)
	if err != nil {
		panic(err)
	}
	l, err := sqllock.New(context.Background(), db)
	if err != nil {
		panic(err)
	}
	return l
}

// testLocker is the double of gocron's test, which all schedulers of a case share. Here each call is of a program of
// its own.
type testLocker struct {
	notLocked chan struct{}
	owner     owner
}

// owner keeps the locks of a case apart from those of the others.
type owner struct {
	once sync.Once
	id   string
}

func (o *owner) of(l *sqllock.Locker[*sql.Tx]) *locks {
	o.once.Do(func() { o.id = fmt.Sprint(time.Now().UnixNano()) })
	return l.For(o.id)
}

func (l *testLocker) Lock(ctx context.Context, key string) (gocron.Lock, error) {
	held, err := holdfastgocron.NewLocker(l.owner.of(foreignLocks()), time.Minute).Lock(ctx, key)
	if errors.Is(err, sqllock.ErrHeld) {
		l.notLocked <- struct{}{}
	}
	return held, err
}

// testElector is its double for a leader. Each call is of a member that has seen who leads.
type testElector struct {
	notLeader chan struct{}
	owner     owner
}

func (e *testElector) IsLeader(ctx context.Context) error {
	all := e.owner.of(foreignLocks())
	member := holdfastgocron.NewElector(election.New(all, "scheduler"))
	go func() { _ = member.Run(context.WithoutCancel(ctx), nil) }()
	for seen := false; !seen && member.IsLeader(ctx) != nil; {
		_, seen, _ = election.New(all, "scheduler").Leader(ctx)
	}
	err := member.IsLeader(ctx)
	if err != nil {
		e.notLeader <- struct{}{}
	}
	return err
}
