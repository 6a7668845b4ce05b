package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
	"github.com/holdfast-go/holdfast/migrations"
	"github.com/holdfast-go/holdfast/sqllock"
)

// TestSuggestions checks that a typo is answered with the word that was typed and the one that was
// meant, and that what may be a secret is not repeated.
func TestSuggestions(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		want string
		args []string
	}{
		{`unknown command "lokcs"; did you mean "locks"?`, []string{"lokcs"}},
		{`unknown command "lokcs"; did you mean "locks"?`, []string{"lokcs", "list"}},
		{`unknown command "migrat"; did you mean "migrate"?`, []string{"migrat"}},
		{`unknown command "stauts"; did you mean "status"?`, []string{"migrate", "stauts"}},
		{`unknown command "lsit"; did you mean "list"?`, []string{"locks", "lsit"}},
		{`unknown command "status"; did you mean "holdfast migrate status"?`, []string{"status"}},
		{`unknown command "leases"; did you mean "holdfast locks"?`, []string{"leases"}},
		{`unknown command: holdfast locks has blocked, list, queues, release`, []string{"locks", "hunter2-and-more"}},
		{`unknown flag: --onwer; did you mean "--owner"?`, []string{"locks", "list", "--onwer", "x"}},
		{`unknown flag: --dns; did you mean "--dsn"?`, []string{"locks", "list", "-dns=x"}},
		{`unknown flag: --jsn; did you mean "--dsn" or "--json"?`, []string{"ops", "list", "-jsn"}},
		{`unknown flag: --nonsense: see holdfast ops list --help`, []string{"ops", "list", "--nonsense"}},
		{`--watch=5s`, []string{"locks", "list", "--watch", "5s"}},
		{`--output is table, json, yaml or wide`, []string{"version", "-o", "xml"}},
		{`were all set`, []string{"version", "-o", "yaml", "-json"}},
		{`--watch goes with --history`, []string{"reap", "--watch"}},
		{`--watch is shorter than 100ms`, []string{"locks", "list", "--watch=1ms"}},
	} {
		if c.args[len(c.args)-1] == "--watch=1ms" {
			c.args = append(c.args, "-dsn", migrated1(t))
		}
		if code, out, err := command(t, c.args...); code != exitUsage || out != "" || !strings.Contains(err, c.want) || strings.Contains(err, "hunter2") {
			t.Errorf("%v: status %d, %q, %q", c.args, code, out, err)
		}
	}
}

// migrated1 is the URL of a SQLite database with the tables.
func migrated1(t *testing.T) string {
	t.Helper()
	url := "sqlite://" + filepath.Join(t.TempDir(), "a.db")
	if code, _, err := command(t, "migrate", "up", "-dsn", url); code != exitOK {
		t.Fatal(err)
	}
	return url
}

// TestNoFileIsMade runs each command on a path that is mistyped.
func TestNoFileIsMade(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "mistyped.db")
	for _, args := range [][]string{
		{"doctor"},
		{"doctor", "-json"},
		{"locks", "list"},
		{"locks", "queues"},
		{"locks", "blocked"},
		{"ops", "list"},
		{"ops", "show", "--name", "a", "--key", "b"},
		{"migrate", "status"},
		{"migrate", "version"},
		{"migrate", "down", "--yes"},
		{"reap"},
		{"reap", "--history"},
		{"bench", "--duration", "1s"},
		{"prove", "--duration", "5s"},
		{"console", "--addr", "127.0.0.1:0"},
		{"after-restore", "--yes", "--by", "a", "--reason", "b"},
		{"locks", "release", "--yes", "--key", "k", "--by", "a", "--reason", "b"},
	} {
		code, out, err := command(t, append(args, "-dsn", "sqlite://"+path)...)
		if code != exitUsage || out != "" || !strings.Contains(err, "there is no file") || !strings.Contains(err, path) {
			t.Errorf("%v: status %d, %q, %q", args, code, out, err)
		}
	}
	for _, args := range [][]string{{"lock", "k"}, {"once", "k"}, {"elect", "k"}} {
		code, _, err := command(t, append(args, "-dsn", "sqlite://"+path, "--", "true")...)
		if code != exitNotRun || !strings.Contains(err, "there is no file") {
			t.Errorf("%v: status %d, %q", args, code, err)
		}
	}
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the file: %v", err)
	}
	if code, _, err := command(t, "migrate", "up", "-dsn", "sqlite://"+path); code != exitOK {
		t.Error(err)
	}
}

func TestMigrateStatus(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, e dbtest.Engine) {
		url := existingDSN(t, e)
		pool := dbtest.OpenSQL(t, url)
		status := func(want int, state string) {
			t.Helper()
			code, out, said := command(t, "migrate", "status", "-dsn", url, "-json")
			var got migrated
			if err := json.Unmarshal([]byte(out), &got); err != nil || code != want || len(got.Migrations) != migrations.Version || got.Latest != migrations.Version ||
				got.Migrations[0] != (migration{1, "init", state}) || got.Dirty != (state == stateDirty) || (said == "") != (want == exitOK) {
				t.Errorf("status %d, %s, %q", code, out, said)
			}
			if code, out, _ = command(t, "migrate", "status", "-dsn", url); code != want || !strings.Contains(out, "init  "+state) {
				t.Errorf("status %d, %q", code, out)
			}
		}
		status(exitPending, statePending)
		if code, _, err := command(t, "migrate", "up", "-dsn", url); code != exitOK {
			t.Fatal(err)
		}
		status(exitOK, stateApplied)
		if _, err := pool.ExecContext(t.Context(), `UPDATE holdfast_migrations SET dirty = TRUE`); err != nil {
			t.Fatal(err)
		}
		status(exitPending, stateDirty)
	})
}

// TestNamespaceVariable checks that $HOLDFAST_NAMESPACE names the namespace, and that a flag goes before it.
func TestNamespaceVariable(t *testing.T) {
	url := migrated1(t)
	t.Setenv(namespaceVariable, "payments")
	for _, c := range []struct {
		want string
		args []string
	}{{"payments", nil}, {"other", []string{"--namespace", "other"}}} {
		code, out, err := command(t, append([]string{"ops", "list", "-dsn", url}, c.args...)...)
		if code != exitOK || err != "" || out != `none in the namespace "`+c.want+"\"\n" {
			t.Errorf("%v: status %d, %q, %q", c.args, code, out, err)
		}
	}
	if code, _, err := command(t, "once", "k", "-dsn", url, "--", "true"); code != exitOK {
		t.Errorf("status %d, %q", code, err)
	}
	pool := dbtest.OpenSQL(t, url)
	var got string
	if err := pool.QueryRowContext(t.Context(), `SELECT namespace FROM holdfast_staged`).Scan(&got); err != nil || got != "payments" {
		t.Errorf("once ran in %q: %v", got, err)
	}
}

// TestNamespaces checks that an empty list says where there are some.
func TestNamespaces(t *testing.T) {
	onEveryEngine(t, func(o operator) {
		if out := o.ok("ops", "list"); out != `none in the namespace "default"`+"\n" {
			o.Errorf("got %q", out)
		}
		store, err := idempotency.New(o.Ctx, o.DB, idempotency.Options{Namespace: "payments"})
		o.Check(err)
		for _, key := range []string{"1", "2", "3"} {
			if _, err := refunds[int](o, store).Do(o.Ctx, idempotency.Op{Owner: "shop", Name: "refund", Key: key}, 1); err == nil {
				o.Error("it was to fail")
			}
		}
		if out := o.ok("ops", "list"); out != `none in the namespace "default"; 3 in "payments"`+"\n" {
			o.Errorf("got %q", out)
		}
		if out := o.ok("ops", "list", "-json"); out != "[]\n" {
			o.Errorf("got %q", out)
		}
		if out := o.ok("ops", "list", "--namespace", "payments", "--owner", "other"); out != `none of these in the namespace "payments", which has 3 others in such a state`+"\n" {
			o.Errorf("got %q", out)
		}
		var list []operation
		if o.json(&list, "ops", "list", "--namespace", "payments"); len(list) != 3 {
			o.Errorf("got %+v", list)
		}

		l, err := sqllock.New(o.Ctx, o.DB)
		o.Check(err)
		defer func() { _ = l.Close(o.Ctx) }()
		for _, k := range [][2]string{{"anna", "job/1"}, {"anna", "job/2"}, {"ben", "job/1"}} {
			_, err := l.For(k[0]).Acquire(o.Ctx, k[1])
			o.Check(err)
		}
		if out := o.ok("locks", "list", "--owner", "carl"); out != `no such leases of the owner "carl"; 2 of "anna", 1 of "ben"`+"\n" {
			o.Errorf("got %q", out)
		}
		if out := o.ok("locks", "list", "--begin", "other/"); out != `no leases that begin so; 2 of "anna", 1 of "ben"`+"\n" {
			o.Errorf("got %q", out)
		}
	})
}

// TestDenied checks that an error of an account without the rights says which it lacks.
func TestDenied(t *testing.T) {
	onEveryEngine(t, func(o operator) {
		if o.Engine == dbtest.SQLite || o.Engine == dbtest.Vitess {
			return // they have no accounts
		}
		held, err := sqllock.New(o.Ctx, o.DB)
		o.Check(err)
		defer func() { _ = held.Close(o.Ctx) }()
		_, err = held.Acquire(o.Ctx, "k")
		o.Check(err)
		reader, nothing := o.As("reader", "reader"), o.As("nothing")
		if o.Engine == dbtest.Postgres { // whose tables are not seen without it
			account, err := url.Parse(nothing)
			o.Check(err)
			o.Must(`GRANT USAGE ON SCHEMA "` + o.Schema() + `" TO ` + account.User.Username())
		}
		for _, c := range []struct {
			url    string
			args   []string
			status int
			want   []string
		}{
			{reader, []string{"locks", "list"}, exitOK, nil},
			{reader, []string{"locks", "release", "--yes", "--key", "k", "--by", "a", "--reason", "b"}, exitFailed, []string{"UPDATE on holdfast_locks", "migrate grants --engine " + string(o.Engine) + " --role operator"}},
			{reader, []string{"reap"}, exitFailed, []string{"DELETE", "--role reaper"}},
			{nothing, []string{"ops", "list"}, exitFailed, []string{"SELECT", "on holdfast_", "--role reader"}},
		} {
			code, out, err := command(o.T, append(c.args, "-dsn", c.url)...)
			missing := false
			for _, w := range c.want {
				missing = missing || !strings.Contains(err, w)
			}
			if code != c.status || missing || (err == "") != (c.status == exitOK) {
				o.Errorf("%v: status %d, %q, %q", c.args, code, out, err)
			}
		}
	})
}

// TestOutput checks that every form of an answer says the same.
func TestOutput(t *testing.T) {
	t.Parallel()
	url := migrated1(t)
	o := func(args ...string) string {
		t.Helper()
		code, out, err := command(t, append(args, "-dsn", url)...)
		if code != exitOK || err != "" {
			t.Errorf("%v: status %d, %q", args, code, err)
		}
		return out
	}
	for _, key := range []string{"no", "12", "a: b #", "\xff"} { // two forms of a key, and texts that are no texts in YAML
		code, _, err := command(t, "once", key, "-dsn", url, "--", "sh", "-c", "kill -9 $$")
		if code != exitUnknown {
			t.Errorf("%q: status %d, %q", key, code, err)
		}
	}
	for _, args := range [][]string{
		{"migrate", "status"},
		{"migrate", "version"},
		{"locks", "list"},
		{"locks", "queues"},
		{"ops", "list"},
		{"reap"},
		{"reap", "--history"},
		{"doctor"},
		{"version"},
		{"migrate", "print", "--engine", "sqlite"},
	} {
		fixed := args[0] != "reap" || len(args) > 1 // a pass has a duration
		var fromJSON, fromYAML any
		if err := json.Unmarshal([]byte(o(append(args, "-o", "json")...)), &fromJSON); err != nil {
			t.Errorf("%v: %v", args, err)
		}
		text := o(append(args, "-o=yaml")...)
		if err := yaml.Unmarshal([]byte(text), &fromYAML); err != nil || strings.HasPrefix(text, "{\"") {
			t.Errorf("%v: %v in %s", args, err, text)
		}
		if again, err := json.Marshal(fromYAML); err != nil || fixed && !sameJSON(fromJSON, again) {
			t.Errorf("%v: JSON %v, YAML %s", args, fromJSON, again)
		}
		if table, wide := o(args...), o(append(args, "-o", "wide")...); table == "" || fixed && len(wide) < len(table) {
			t.Errorf("%v: %q is wider than %q", args, table, wide)
		}
	}
}

func sameJSON(a any, b []byte) bool {
	text, err := json.Marshal(a)
	return err == nil && bytes.Equal(text, b)
}

// TestYAMLKeepsTypes checks texts that YAML would read as something else.
func TestYAMLKeepsTypes(t *testing.T) {
	t.Parallel()
	in := map[string]any{
		"a": "no", "b": "12", "c": "null", "d": "~", "e": "", "f": "a: b #c", "g": "two\nlines\n", "h": "\x7f\u0085\u2028", "i": "0x1f", "j": "1e3",
		"k": float64(12), "l": nil, "m": true, "n": []any{}, "o": map[string]any{}, "p": []any{map[string]any{"q": "2026-11-25"}}, "r": "=", "s": "y",
	}
	text, err := marshal(in)
	if err == nil {
		text, err = yamlOf(text)
	}
	var got any
	if err == nil {
		err = yaml.Unmarshal(text, &got)
	}
	want, _ := json.Marshal(in)
	if again, _ := json.Marshal(got); err != nil || !bytes.Equal(again, want) {
		t.Errorf("%v: %s\n%s\n%s", err, text, again, want)
	}
	if !strings.Contains(string(text), `a: "no"`) {
		t.Errorf("a program that reads YAML 1.1 takes no for false: %s", text)
	}
}

// frames ends a command once it has written enough.
type frames struct {
	io.Writer
	text   strings.Builder
	mark   string
	enough context.CancelFunc
}

func (f *frames) Write(b []byte) (int, error) {
	f.text.Write(b)
	if strings.Count(f.text.String(), f.mark) >= 3 {
		f.enough()
	}
	return len(b), nil
}

// TestWatch checks that a list is shown again until a signal, in each form, and that the status is then
// that of success.
func TestWatch(t *testing.T) {
	t.Parallel()
	url := migrated1(t)
	for _, c := range []struct {
		args []string
		mark string
	}{
		{[]string{"locks", "list"}, "no leases\n"},
		{[]string{"locks", "list"}, "\n# "},
		{[]string{"ops", "list"}, "none in"},
		{[]string{"locks", "list", "-json"}, "[]\n"},
		{[]string{"locks", "queues", "-o", "yaml"}, "---\n[]\n"},
		{[]string{"reap", "--history"}, "no pass"},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), dbtest.Hang)
		out, said := frames{mark: c.mark, enough: cancel}, strings.Builder{}
		code := run(ctx, append(c.args, "--watch=100ms", "-dsn", url), &out, &said)
		if n := strings.Count(out.text.String(), c.mark); code != exitOK || n < 3 || said.Len() > 0 || !errors.Is(context.Cause(ctx), context.Canceled) {
			t.Errorf("%v: status %d, %d times %q in %q, %q", c.args, code, n, c.mark, out.text.String(), said.String())
		}
		cancel()
	}
}
