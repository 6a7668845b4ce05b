package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/internal/dialect"
	"github.com/holdfast-go/holdfast/internal/dialect/vitess"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
)

// samples returns what docs/howto/privileges.md shows of commands: after a line "$ holdfast …" the output, to the
// next such line, the end of the block, or a line "..." that stands for the rest.
func samples(t *testing.T) map[string]string {
	t.Helper()
	text, err := os.ReadFile("../../docs/howto/privileges.md")
	if err != nil {
		t.Fatal(err)
	}
	all, at := map[string]string{}, ""
	for line := range strings.Lines(string(text)) {
		if name, ok := strings.CutPrefix(line, "$ holdfast "); ok {
			at = strings.TrimSpace(name)
			all[at] = ""
		} else if strings.HasPrefix(line, "```") {
			at = ""
		} else if at != "" {
			all[at] += line
		}
	}
	return all
}

// TestPrivilegesTableACL compares the table ACL of docs/howto/privileges.md with the rights of the roles.
func TestPrivilegesTableACL(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/howto/privileges.md")
	if err != nil {
		t.Fatal(err)
	}
	before, rest, _ := strings.Cut(string(text), "```json\n")
	acl, after, _ := strings.Cut(rest, "```")
	switch want := tableACL(t); {
	case acl == want:
	case *update:
		if err := os.WriteFile("../../docs/howto/privileges.md", []byte(before+"```json\n"+want+"```"+after), 0o600); err != nil {
			t.Fatal(err)
		}
	default:
		t.Error("the table ACL of docs/howto/privileges.md is not the one of the roles: go test ./cmd/holdfast -run TestPrivilegesTableACL -update")
	}
}

// tableACL is the file for vttablet: an account is named like its role.
func tableACL(t *testing.T) string {
	t.Helper()
	roles := []dialect.Role{dialect.RoleApp, dialect.RoleReaper, dialect.RoleOperator, dialect.RoleReader}
	var lines []string
	for _, table := range dialect.GrantedTables() {
		var readers, writers []string
		for _, role := range roles {
			list, ok := vitess.Dialect.Rights(role, table)
			if !ok {
				t.Fatal(table)
			}
			reads := slices.ContainsFunc(list, func(r dialect.Right) bool { return r.Privilege == "SELECT" })
			writes := slices.ContainsFunc(list, func(r dialect.Right) bool { return r.Privilege != "SELECT" })
			if reads {
				readers = append(readers, string(role))
			}
			if writes {
				writers = append(writers, string(role))
			}
		}
		line, err := json.Marshal(struct {
			Name    string   `json:"name"`
			Tables  []string `json:"table_names_or_prefixes"`
			Readers []string `json:"readers"`
			Writers []string `json:"writers"`
			Admins  []string `json:"admins"`
		}{table, []string{"holdfast_" + table}, append(readers, "migrator"), append(writers, "migrator"), []string{"migrator"}})
		if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, "  "+string(line))
	}
	return "{\"table_groups\": [\n" + strings.Join(lines, ",\n") + "\n]}\n"
}

// TestPrivilegesSamplesOfServer runs the commands of docs/howto/privileges.md that look at an account.
func TestPrivilegesSamplesOfServer(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, e dbtest.Engine) {
		if e != dbtest.Postgres {
			return // the page shows PostgreSQL
		}
		dbtest.Needs(t, e, dbtest.Users)
		url := dbtest.DSN(t, e)
		if code, _, err := command(t, "migrate", "up", "-dsn", url); code != exitOK {
			t.Fatal(err)
		}
		pool := dbtest.OpenSQL(t, url)
		app, asApp := accountOf(t, url, "app")
		reaper, asReaper := accountOf(t, url, "reaper")
		for _, q := range []string{
			`REVOKE INSERT ON holdfast_records FROM ` + app, `GRANT TRUNCATE ON holdfast_records TO ` + app,
			`REVOKE DELETE ON holdfast_records FROM ` + reaper,
		} {
			if _, err := pool.ExecContext(t.Context(), q); err != nil {
				t.Fatal(err)
			}
		}
		all := samples(t)
		_, doctor, _ := command(t, "doctor", "--role", "app", "-dsn", asApp)
		if got := about(doctor, "privileges:"); got != all["doctor --role app"] {
			t.Errorf("doctor --role app:\n%s", got)
		}
		_, _, got := command(t, "reap", "-dsn", asReaper)
		if got = regexp.MustCompile(`"hf_\w+"\.`).ReplaceAllString(got, `"shop".`); got != all["reap"] {
			t.Errorf("reap:\n%s", got)
		}
	})
}

// accountOf makes an account with the grants of a role, on PostgreSQL, and returns its URL.
func accountOf(t *testing.T, url, role string) (name, as string) {
	t.Helper()
	pool := dbtest.OpenSQL(t, url)
	exec := func(q string) {
		t.Helper()
		if _, err := pool.ExecContext(context.WithoutCancel(t.Context()), q); err != nil {
			t.Errorf("%s: %v", q, err)
		}
	}
	var schema string
	if err := pool.QueryRowContext(t.Context(), `SELECT current_schema()`).Scan(&schema); err != nil {
		t.Fatal(err)
	}
	name = "hf_" + strings.ToLower(rand.Text()[:12])
	exec(`CREATE USER ` + name + ` PASSWORD 'x'`)
	t.Cleanup(func() { exec(`DROP OWNED BY ` + name); exec(`DROP USER ` + name) })
	_, grants, _ := command(t, "migrate", "grants", "--engine", "postgres", "-schema", schema, "--role", role, "--to", name)
	exec(grants)
	scheme, rest, _ := strings.Cut(url, "://")
	return name, scheme + "://" + name + ":x" + rest[strings.LastIndex(rest, "@"):]
}

// about returns the findings that name a check, with what to do.
func about(findings, check string) (text string) {
	in := false
	for line := range strings.Lines(findings) {
		if !strings.HasPrefix(line, " ") {
			in = strings.Contains(line, check)
		}
		if in {
			text += line
		}
	}
	return text
}
